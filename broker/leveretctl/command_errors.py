"""Errors of commands, with rabbitmqctl's texts for stderr and its exit statuses."""

from __future__ import annotations

from typing import Any, Final

OK: Final = 0
USAGE: Final = 64
DATA: Final = 65
NO_USER: Final = 67
UNAVAILABLE: Final = 69
SOFTWARE: Final = 70
TEMPORARY: Final = 75
INTERRUPTED: Final = 130


class CommandFault(Exception):
    """Failure of a command.

    Args:
        text: text for stderr.
        json: printed instead of the text with `--formatter json`; None prints the text.
        json_status: exit status with `--formatter json` if it differs.
    """

    def __init__(self, status: int, text: str, *, json: Any = None, json_status: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.json = json
        self.json_status = status if json_status is None else json_status


class UsageFault(Exception):
    """Invalid command line; the program adds the arguments and the usage line to the text."""

    def __init__(self, text: str, status: int = USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class ApiFault(Exception):
    """Error response of the API.

    Args:
        reason: reason from the response; a list is joined to one text.
        error: error code from the response, such as `bad_request`.
        details: the reason as received if it is a list.
        detail: what Leveret adds to RabbitMQ's reason; "" for nothing.
    """

    def __init__(
        self, status: int, reason: str, error: str = "", details: list[Any] | None = None, detail: str = ""
    ) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.error = error
        self.details = details or []
        self.detail = detail

    @property
    def not_found(self) -> bool:
        """Whether the requested object does not exist."""
        return self.status == 404


class NoAnswer(Exception):
    """No response."""


class Unreachable(NoAnswer):
    """No response: connection refused, network failure, or the server does not speak HTTP."""


class RequestTimeout(NoAnswer):
    """No response within the timeout."""


def failed(text: str, status: int = UNAVAILABLE, *, json: Any = None, json_status: int | None = None) -> CommandFault:
    """Return a fault whose text follows a line `Error:`, as for most commands."""
    return CommandFault(status, f"Error:\n{text}", json=json, json_status=json_status)


def no_such_vhost(vhost: str) -> CommandFault:
    """Return the fault for an unknown virtual host."""
    return CommandFault(DATA, f"Virtual host '{vhost}' does not exist")


def bad_argument(text: str) -> UsageFault:
    """Return the fault for an argument with an invalid value."""
    return UsageFault(f"Bad argument: {text}" if text else "Bad argument.", DATA)


def no_such_user(user: str) -> CommandFault:
    """Return the fault for an unknown user as an Erlang term, which rabbitmqctl's list commands print."""
    return failed(f'{{:no_such_user, "{user}"}}')


def refused(fault: ApiFault, command: str, before: str = "") -> CommandFault:
    """Return the fault for a refused request of a command that RabbitMQ does not have.

    Args:
        command: name of the command, or what the commands are for.
        before: what is added to the reason: how much was done before.
    """
    if fault.status == 405 or (fault.not_found and fault.error == "Object Not Found"):
        return failed(f"the broker does not support {command}: it is not Leveret")
    return failed(f"{fault.reason}{before}")


def to_command_fault(fault: ApiFault) -> CommandFault:
    """Return the command error for an API error that the command does not handle itself."""
    reason = fault.reason
    if fault.status == 401 and fault.error != "not_authorised":
        reason = f"{reason}: wrong user name or password (--url http://user:password@host:port)"
    return CommandFault(UNAVAILABLE, f"Error:\n{reason}")
