"""Commands that list and close connections, channels and consumers."""

from __future__ import annotations

import time
from typing import Any, Final

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, command, selected_columns
from leveret.broker.leveretctl.command_errors import ApiFault, bad_argument, failed
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.printing import ProgressLine, connection_name
from leveret.broker.leveretctl.selectable_columns import list_objects, table_columns, to_rows
from leveret.broker.management.fields import CHANNEL, CONNECTION, CONSUMER

_CONNECTIONS: Final = table_columns(CONNECTION)
_CHANNELS: Final = table_columns(CHANNEL)
_CONSUMER_COLUMNS: Final = table_columns(CONSUMER)
# Columns always have this order, independently of the arguments, as in rabbitmqctl's list_consumers.
_CONSUMER_DEFAULT: Final = tuple(name for name in _CONSUMER_COLUMNS if name != "activity_status")


@command((HEADERS, Argument("[<column> ...]", columns=_CONNECTIONS), TIMEOUT), banner="Listing connections ...")
def list_connections(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists AMQP 0.9.1 connections for the node."""
    return list_objects(context, _CONNECTIONS, wanted, ("user", "peer_host", "peer_port", "state"), "connections")


@command((HEADERS, Argument("[<column> ...]", columns=_CHANNELS)), banner="Listing channels ...")
def list_channels(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists all channels in the node."""
    default = ("pid", "user", "consumer_count", "messages_unacknowledged")
    return list_objects(context, _CHANNELS, wanted, default, "channels")


@command(
    (VHOST, HEADERS, Argument("[<column> ...]", columns=_CONSUMER_COLUMNS), TIMEOUT),
    banner="Listing consumers in vhost {context.vhost} ...",
)
def list_consumers(context: CommandContext, *wanted: str) -> ResultRows:
    """Lists all consumers for a vhost."""
    found: list[dict[str, Any]] = context.api.find("consumers", context.vhost) or []
    names = selected_columns(wanted, _CONSUMER_DEFAULT)
    return to_rows(_CONSUMER_COLUMNS, tuple(name for name in _CONSUMER_COLUMNS if name in names), found)


_EXPLANATION: Final = Argument("<explanation>", "sent to the client: CONNECTION_FORCED - <explanation>")


def _close(context: CommandContext, name: str, reason: str) -> None:
    """Close a connection; one that no longer exists counts as closed."""
    try:
        context.api.delete("connections", name, headers={"X-Reason": _header(reason)})
    except ApiFault as fault:
        if not fault.not_found:
            raise


def _header(reason: str) -> str:
    # Python encodes headers as Latin-1. This conversion makes it send the UTF-8 bytes.
    return " ".join(reason.splitlines()).encode().decode("latin-1")


@command(
    (Argument("<connection pid>", "pid or name, as list_connections shows them"), _EXPLANATION),
    banner="Closing connection {0}, reason: {1}...",
)
def close_connection(context: CommandContext, identifier: str, reason: str) -> None:
    """Closes one connection."""
    name = connection_name(identifier)
    if name is None:
        raise failed(f'Error:\n{{:invalid_pid_syntax, "{identifier}"}}')
    _close(context, name, reason)


def _check_numbers(context: CommandContext) -> None:
    for name in ("limit", "per-connection-delay"):
        if context.integer(name, 0) < 0:
            raise bad_argument(f"--{name} cannot be negative")


def _close_all_banner(context: CommandContext, reason: str) -> str:
    limit = context.integer("limit", 0)
    what = f"{limit}" if limit > 0 else "all"
    where = f"to node {context.node} (across all vhosts)" if context.flag("global") else f"in vhost {context.vhost}"
    return f"Closing {what} connections {where}, reason: {reason}..."


@command(
    (
        option("global", "connections of all virtual hosts"),
        option("limit", "maximum number of connections to close"),
        option("per-connection-delay", "pause between two connections"),
        _EXPLANATION,
    ),
    line="[--vhost <vhost> --limit <limit>] [-n <node> --global] [--per-connection-delay <delay>] <explanation>",
    banner=_close_all_banner,
    check=_check_numbers,
    timeout=None,
)
def close_all_connections(context: CommandContext, reason: str) -> Result:
    """Closes all connections to a virtual host, or to the broker."""
    found = context.api.get("connections", columns="name,vhost", disable_stats=True)
    names = [each["name"] for each in found if context.flag("global") or each["vhost"] == context.vhost]
    limit = context.integer("limit", 0)
    if limit > 0:
        names = names[:limit]
    _close_each(context, names, reason, context.integer("per-connection-delay", 0) / 1000)
    text = f"Closed {len(names)} connections"
    return Outcome(text, {"node": context.node, "result": "ok", "value": text} if context.json else None)


def _close_each(context: CommandContext, names: list[str], reason: str, delay: float) -> None:
    with ProgressLine("Closing", len(names), silent=context.silent) as progress:
        for index, name in enumerate(names):
            if index and delay > 0:
                time.sleep(delay)
            _close(context, name, reason)
            progress.update(index + 1)


@command(
    (Argument("<username>", "the user's name"), _EXPLANATION),
    banner="Closing connections of user {0}, reason: {1}...",
    timeout=None,
)
def close_all_user_connections(context: CommandContext, user: str, reason: str) -> None:
    """Closes all connections of a user."""
    found: list[dict[str, Any]] = context.api.find("connections", "username", user) or []
    _close_each(context, [each["name"] for each in found], reason, 0)
