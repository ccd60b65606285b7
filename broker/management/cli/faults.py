"""How a command fails: the text for stderr and the exit status, which are rabbitmqctl's."""

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
    """A command that ended without its effect.

    Args:
        status: exit status.
        text: printed to stderr as it is, with a line end.
        json: printed instead with `--formatter json`; None: the text all the same.
        json_status: exit status then, when it is another one.
    """

    def __init__(self, status: int, text: str, *, json: Any = None, json_status: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.json = json
        self.json_status = status if json_status is None else json_status


class UsageFault(Exception):
    """A command line that the command does not understand.

    Args:
        text: what is wrong with it; the arguments and the usage are added where it is printed.
        status: exit status.
    """

    def __init__(self, text: str, status: int = USAGE) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class OutOfTime(Exception):
    """No answer within the timeout."""


def failed(text: str, status: int = UNAVAILABLE, *, json: Any = None, json_status: int | None = None) -> CommandFault:
    """Return the fault that most commands end with: the text under the word `Error:`."""
    return CommandFault(status, f"Error:\n{text}", json=json, json_status=json_status)


def no_such_vhost(vhost: str) -> CommandFault:
    """Return the fault of commands that look up the virtual host first."""
    return CommandFault(DATA, f"Virtual host '{vhost}' does not exist")


def bad_argument(text: str) -> UsageFault:
    """Return the fault of an argument whose value cannot be used."""
    return UsageFault(f"Bad argument: {text}" if text else "Bad argument.", DATA)
