"""Finds out why the API refused a permission: unknown user, unknown virtual host or invalid pattern.

The API's error does not say which of them is missing, and has patterns as lists of character codes.
"""

from __future__ import annotations

from leveret.broker.management.cli.command import CommandContext
from leveret.broker.management.cli.faults import NO_USER, UNAVAILABLE, ApiFault, CommandFault, failed


def check_user_and_vhost(context: CommandContext, user: str, vhost: str) -> None:
    """Check that a user and a virtual host exist.

    Raises:
        CommandFault: the user (exit status 67) or the virtual host (69) does not exist.
    """
    for fault in (missing_vhost(context, vhost), missing_user(context, user)):
        if fault is not None:
            raise fault


def missing_user(context: CommandContext, user: str) -> CommandFault | None:
    """Return the fault for a user that does not exist, None if the user exists."""
    if context.api.find("users", user) is not None:
        return None
    message = f"User {user} does not exist"
    return failed(message, NO_USER, json=_error(context, message), json_status=UNAVAILABLE)


def _error(context: CommandContext, message: str) -> dict[str, str] | None:
    return {"message": message, "node": context.node, "result": "error"} if context.json else None


def missing_vhost(context: CommandContext, vhost: str) -> CommandFault | None:
    """Return the fault for a virtual host that does not exist, None if it exists."""
    if context.api.find("vhosts", vhost) is not None:
        return None
    message = f"Virtual host {vhost} does not exist"
    return failed(message, json=_error(context, message))


def no_such_user(user: str) -> CommandFault:
    """Return the fault for an unknown user as an Erlang term, which rabbitmqctl's list commands print."""
    return failed(f'{{:no_such_user, "{user}"}}')


def check_pattern(fault: ApiFault) -> None:
    """Check whether the API refused an invalid pattern.

    Raises:
        CommandFault: the pattern is invalid (exit status 69); has the pattern, the error and its position.
    """
    match fault.details:
        case ["invalid_regexp", pattern, [list() as why, int() as position]]:
            shown = f"'{_characters(pattern)}'" if isinstance(pattern, list) else f'"{pattern}"'
            raise failed(f"{{:invalid_regexp, {shown}, {{'{_characters(why)}', {position}}}}}") from fault


def _characters(codes: list[int]) -> str:
    """Return the text of an Erlang string, which is a list of character codes."""
    return "".join(map(chr, codes))
