"""Why permissions were refused: the API does not say which subject is missing, and spells patterns in numbers."""

from __future__ import annotations

from leveret.broker.management.cli.api import ApiFault
from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import NO_USER, UNAVAILABLE, CommandFault, failed


def check_subjects(context: CommandContext, user: str, vhost: str) -> None:
    """Check that a user and a virtual host exist.

    Raises:
        CommandFault: one of them does not; 67 for the user, 69 for the virtual host.
    """
    for fault in (missing_vhost(context, vhost), missing_user(context, user)):
        if fault is not None:
            raise fault


def missing_user(context: CommandContext, user: str) -> CommandFault | None:
    """Return the fault of a user that does not exist, None if there is one."""
    if context.api.find("users", user) is not None:
        return None
    message = f"User {user} does not exist"
    return failed(message, NO_USER, json=_error(context, message), json_status=UNAVAILABLE)


def _error(context: CommandContext, message: str) -> dict[str, str] | None:
    return {"message": message, "node": context.node, "result": "error"} if context.json else None


def missing_vhost(context: CommandContext, vhost: str) -> CommandFault | None:
    """Return the fault of a virtual host that does not exist, None if there is one."""
    if context.api.find("vhosts", vhost) is not None:
        return None
    message = f"Virtual host {vhost} does not exist"
    return failed(message, json=_error(context, message))


def no_such_listed_user(user: str) -> CommandFault:
    """Return the fault of commands that list what belongs to a user, in the words of rabbitmqctl."""
    return failed(f'{{:no_such_user, "{user}"}}')


def check_pattern(fault: ApiFault) -> None:
    """Check that a refusal was not for a pattern.

    Raises:
        CommandFault: it was: the pattern, what is wrong with it and where, as rabbitmqctl has it (69).
    """
    match fault.details:
        case ["invalid_regexp", pattern, [list() as why, int() as position]]:
            shown = f"'{_characters(pattern)}'" if isinstance(pattern, list) else f'"{pattern}"'
            raise failed(f"{{:invalid_regexp, {shown}, {{'{_characters(why)}', {position}}}}}") from fault


def _characters(codes: list[int]) -> str:
    """Return an Erlang string, which is the list of its characters."""
    return "".join(map(chr, codes))
