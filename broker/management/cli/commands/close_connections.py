"""Commands that close connections."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ok_result
from leveret.broker.management.cli.faults import ApiFault, bad_argument, failed
from leveret.broker.management.cli.progress import ProgressLine
from leveret.broker.management.cli.terms import connection_name

SECTION: Final = "Operations"


def _close(context: CommandContext, name: str, reason: str) -> bool:
    """Close a connection and return whether it existed."""
    try:
        context.api.delete("connections", name, headers={"X-Reason": _header(reason)})
    except ApiFault as fault:
        if fault.not_found:
            return False
        raise
    return True


def _header(reason: str) -> str:
    # Python encodes headers as Latin-1. This conversion makes it send the UTF-8 bytes.
    return " ".join(reason.splitlines()).encode().decode("latin-1")


def _close_one(context: CommandContext) -> Result:
    identifier, reason = context.arguments
    name = connection_name(identifier)
    if name is None:
        raise failed(f'Error:\n{{:invalid_pid_syntax, "{identifier}"}}')
    # A connection that no longer exists counts as closed.
    _close(context, name, reason)
    return ok_result(context)


def _check_numbers(context: CommandContext) -> None:
    for option in ("limit", "per-connection-delay"):
        if context.integer(option, 0) < 0:
            raise bad_argument(f"--{option} cannot be negative")


def _close_all(context: CommandContext) -> Result:
    (reason,) = context.arguments
    found = context.api.get("connections", columns="name,vhost", disable_stats=True)
    names = [each["name"] for each in found if context.flag("global") or each["vhost"] == context.vhost]
    limit = context.integer("limit", 0)
    if limit > 0:
        names = names[:limit]
    _close_each(context, names, reason, context.integer("per-connection-delay", 0) / 1000)
    text = f"Closed {len(names)} connections"
    return Outcome(text, {"node": context.node, "result": "ok", "value": text} if context.json else None)


def _close_each(context: CommandContext, names: list[str], reason: str, delay: float) -> None:
    silent = context.flag("silent") or context.flag("quiet")
    with ProgressLine("Closing", len(names), silent=silent) as progress:
        for index, name in enumerate(names):
            if index and delay > 0:
                time.sleep(delay)
            _close(context, name, reason)
            progress.update(index + 1)


def _close_all_of_user(context: CommandContext) -> Result:
    user, reason = context.arguments
    found: list[dict[str, Any]] = context.api.find("connections", "username", user) or []
    _close_each(context, [each["name"] for each in found], reason, 0)
    return ok_result(context)


def _close_all_banner(context: CommandContext) -> str:
    limit = context.integer("limit", 0)
    what = f"{limit}" if limit > 0 else "all"
    where = f"to node {context.node} (across all vhosts)" if context.flag("global") else f"in vhost {context.vhost}"
    return f"Closing {what} connections {where}, reason: {context.arguments[0]}..."


_EXPLANATION: Final = ("<explanation>", "sent to the client: CONNECTION_FORCED - <explanation>")
COMMANDS: Final = (
    Command(
        name="close_connection",
        section=SECTION,
        summary="Closes one connection",
        usage="<connection pid> <explanation>",
        run=_close_one,
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: f"Closing connection {context.arguments[0]}, reason: {context.arguments[1]}...",
        explanations=(("<connection pid>", "pid or name, as list_connections shows them"), _EXPLANATION),
    ),
    Command(
        name="close_all_connections",
        section=SECTION,
        summary="Closes all connections to a virtual host, or to the broker",
        usage=("[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay <delay>] <explanation>"),
        run=_close_all,
        min_arguments=1,
        max_arguments=1,
        options=("global", "limit", "per-connection-delay"),
        timeout=None,
        check=_check_numbers,
        banner=_close_all_banner,
        explanations=(
            ("--global", "connections of all virtual hosts"),
            ("--limit <number>", "maximum number of connections to close"),
            ("--per-connection-delay <milliseconds>", "pause between two connections"),
            _EXPLANATION,
        ),
    ),
    Command(
        name="close_all_user_connections",
        section=SECTION,
        summary="Closes all connections of a user",
        usage="<username> <explanation>",
        run=_close_all_of_user,
        min_arguments=2,
        max_arguments=2,
        timeout=None,
        banner=lambda context: f"Closing connections of user {context.arguments[0]}, reason: {context.arguments[1]}...",
        explanations=(("<username>", "the user's name"), _EXPLANATION),
    ),
)
