"""The commands for messages that wait in an exchange x-delayed-message. RabbitMQ has no such commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from leveret.broker.management.cli.columns import Column, field, fields, to_rows
from leveret.broker.management.cli.command import Command, CommandContext, Outcome, Result, ResultRows
from leveret.broker.management.cli.faults import ApiFault, CommandFault, bad_argument, failed

_SECTION: Final = "Queues"
#: Messages per request.
_BATCH: Final = 1000
_LIMIT_DEFAULT: Final = 100


def _time(milliseconds: int) -> str:
    """Return a time as text; one that is too late for the calendar as a number."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError):
        return str(milliseconds)


_COLUMNS: Final[dict[str, Column]] = {
    "id": field("id"),
    "due": field("due", _time),
    **fields("delay", "exchange", "routing_key", "payload_bytes"),
}


def _check_limit(context: CommandContext) -> None:
    if context.integer("limit", _LIMIT_DEFAULT) < 1:
        raise bad_argument("--limit must be 1 or more")


def _check_number(context: CommandContext) -> None:
    number = context.arguments[1]
    if not (number.isascii() and number.isdigit()):
        raise bad_argument(f"<id> is the number of a message, as list_delayed_messages shows it, not {number}")


def _list(context: CommandContext) -> ResultRows:
    left, found = context.integer("limit", _LIMIT_DEFAULT), list[dict[str, Any]]()
    while left > 0:
        part = _ask(context, "GET", offset=len(found), count=min(left, _BATCH))["messages"]
        found += part
        left -= len(part)
        if not part:
            break
    return to_rows(_COLUMNS, tuple(_COLUMNS), found)


def _show(context: CommandContext) -> Result:
    found = _ask(context, "GET", context.arguments[1])
    lines = [f"{name}: {column.read(found)}" for name, column in _COLUMNS.items()]
    properties = found["properties"] if isinstance(found["properties"], dict) else {}
    lines += [f"properties.{name}: {value}" for name, value in properties.items()]
    lines.append(f"payload ({found['payload_encoding']}): {found['payload']}")
    return Outcome("\n".join(lines), found)


def _cancel(context: CommandContext) -> Result:
    _ask(context, "DELETE", context.arguments[1])
    return _done(context, "cancelled")


def _deliver(context: CommandContext) -> Result:
    _ask(context, "POST", context.arguments[1], "deliver")
    return _done(context, "delivered")


def _done(context: CommandContext, what: str) -> Outcome:
    exchange, number = context.arguments
    return Outcome(f"Message {number} of exchange '{exchange}' is {what}", {"id": int(number), "result": what})


def _ask(context: CommandContext, method: str, *below: str, **query: Any) -> Any:
    path = ("exchanges", context.vhost, context.arguments[0], "delayed", *below)
    try:
        if method == "GET":
            return context.api.get(*path, **query)
        if method == "DELETE":
            return context.api.delete(*path)
        return context.api.post(*path)
    except ApiFault as fault:
        raise _to_fault(fault) from fault


def _to_fault(fault: ApiFault) -> CommandFault:
    if fault.status == 405 or (fault.not_found and fault.error == "Object Not Found"):
        return failed("the broker does not support commands for delayed messages: it is not Leveret")
    return failed(fault.reason)


def _command(name: str, summary: str, run: Any, doing: str) -> Command:
    """Return a command for one message."""
    return Command(
        name=name,
        section=_SECTION,
        summary=summary,
        usage="[--vhost <vhost>] <exchange> <id> [--timeout <timeout>]",
        run=run,
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: (
            f"{doing} message {context.arguments[1]} of exchange '{context.arguments[0]}'"
            f" in vhost '{context.vhost}' ..."
        ),
        check=_check_number,
        explanations=(
            ("<exchange>", "exchange of type x-delayed-message"),
            ("<id>", "number of the message, as list_delayed_messages shows it"),
        ),
    )


COMMANDS: Final = (
    Command(
        name="list_delayed_messages",
        section=_SECTION,
        summary="Lists messages that wait in an exchange x-delayed-message, the next one that is due first",
        usage="[--vhost <vhost>] <exchange> [--limit <number>] [--no-table-headers] [--timeout <timeout>]",
        run=_list,
        min_arguments=1,
        max_arguments=1,
        options=("limit", "table-headers"),
        banner=lambda context: (
            f"Listing delayed messages of exchange '{context.arguments[0]}' in vhost '{context.vhost}' ..."
        ),
        check=_check_limit,
        explanations=(
            ("<exchange>", "exchange of type x-delayed-message"),
            ("--limit <number>", f"maximum number of messages; default: {_LIMIT_DEFAULT}"),
        ),
    ),
    _command("show_delayed_message", "Shows a waiting message with its body", _show, "Showing"),
    _command("cancel_delayed_message", "Removes a waiting message", _cancel, "Cancelling"),
    _command("deliver_delayed_message", "Routes a waiting message to its queues now", _deliver, "Delivering"),
)
