"""The commands for messages that wait in an exchange x-delayed-message, or in a queue for their retry.

RabbitMQ has no such commands.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

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


class _Place(NamedTuple):
    """Where messages wait.

    Attributes:
        kind: ``exchange`` or ``queue``.
        noun: End of the names of its commands.
        list_command: Name of the one that lists messages.
        about: What kind of exchange or queue it is.
        columns: What is shown of a message.
    """

    kind: str
    noun: str
    list_command: str
    about: str
    columns: dict[str, Column]


_ROUTE: Final = fields("exchange", "routing_key", "payload_bytes")
_TIMES: Final[dict[str, Column]] = {"id": field("id"), "due": field("due", _time)}
_EXCHANGE: Final = _Place(
    "exchange",
    "delayed_message",
    "list_delayed_messages",
    "exchange of type x-delayed-message",
    {**_TIMES, **fields("delay"), **_ROUTE},
)
_QUEUE: Final = _Place(
    "queue", "delayed_retry", "list_delayed_retries", "queue with delayed retries", {**_TIMES, **_ROUTE}
)


def _check_limit(context: CommandContext) -> None:
    if context.integer("limit", _LIMIT_DEFAULT) < 1:
        raise bad_argument("--limit must be 1 or more")


def _check_number(place: _Place, context: CommandContext) -> None:
    number = context.arguments[1]
    if not (number.isascii() and number.isdigit()):
        raise bad_argument(f"<id> is the number of a message, as {place.list_command} shows it, not {number}")


def _list(place: _Place, context: CommandContext) -> ResultRows:
    left, found = context.integer("limit", _LIMIT_DEFAULT), list[dict[str, Any]]()
    while left > 0:
        part = _ask(place, context, "GET", offset=len(found), count=min(left, _BATCH))["messages"]
        found += part
        left -= len(part)
        if not part:
            break
    return to_rows(place.columns, tuple(place.columns), found)


def _show(place: _Place, context: CommandContext) -> Result:
    found = _ask(place, context, "GET", context.arguments[1])
    lines = [f"{name}: {column.read(found)}" for name, column in place.columns.items()]
    properties = found["properties"] if isinstance(found["properties"], dict) else {}
    lines += [f"properties.{name}: {value}" for name, value in properties.items()]
    lines.append(f"payload ({found['payload_encoding']}): {found['payload']}")
    return Outcome("\n".join(lines), found)


def _cancel(place: _Place, context: CommandContext) -> Result:
    _ask(place, context, "DELETE", context.arguments[1])
    return _done(place, context, "cancelled")


def _deliver(place: _Place, context: CommandContext) -> Result:
    _ask(place, context, "POST", context.arguments[1], "deliver")
    return _done(place, context, "delivered")


def _done(place: _Place, context: CommandContext, what: str) -> Outcome:
    name, number = context.arguments
    return Outcome(f"Message {number} of {place.kind} '{name}' is {what}", {"id": int(number), "result": what})


def _ask(place: _Place, context: CommandContext, method: str, *below: str, **query: Any) -> Any:
    path = (f"{place.kind}s", context.vhost, context.arguments[0], "delayed", *below)
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


def _command(place: _Place, verb: str, summary: str, run: Any, doing: str) -> Command:
    """Return a command for one message."""
    return Command(
        name=f"{verb}_{place.noun}",
        section=_SECTION,
        summary=summary,
        usage=f"[--vhost <vhost>] <{place.kind}> <id> [--timeout <timeout>]",
        run=partial(run, place),
        min_arguments=2,
        max_arguments=2,
        banner=lambda context: (
            f"{doing} message {context.arguments[1]} of {place.kind} '{context.arguments[0]}'"
            f" in vhost '{context.vhost}' ..."
        ),
        check=partial(_check_number, place),
        explanations=(
            (f"<{place.kind}>", place.about),
            ("<id>", f"number of the message, as {place.list_command} shows it"),
        ),
    )


def _list_command(place: _Place, summary: str, listing: str) -> Command:
    return Command(
        name=place.list_command,
        section=_SECTION,
        summary=summary,
        usage=f"[--vhost <vhost>] <{place.kind}> [--limit <number>] [--no-table-headers] [--timeout <timeout>]",
        run=partial(_list, place),
        min_arguments=1,
        max_arguments=1,
        options=("limit", "table-headers"),
        banner=lambda context: (
            f"Listing {listing} of {place.kind} '{context.arguments[0]}' in vhost '{context.vhost}' ..."
        ),
        check=_check_limit,
        explanations=(
            (f"<{place.kind}>", place.about),
            ("--limit <number>", f"maximum number of messages; default: {_LIMIT_DEFAULT}"),
        ),
    )


COMMANDS: Final = (
    _list_command(
        _EXCHANGE,
        "Lists messages that wait in an exchange x-delayed-message, the next one that is due first",
        "delayed messages",
    ),
    _command(_EXCHANGE, "show", "Shows a waiting message with its body", _show, "Showing"),
    _command(_EXCHANGE, "cancel", "Removes a waiting message", _cancel, "Cancelling"),
    _command(_EXCHANGE, "deliver", "Routes a waiting message to its queues now", _deliver, "Delivering"),
    _list_command(
        _QUEUE,
        "Lists returned messages of a queue that wait for their retry, the next one that is due first",
        "delayed retries",
    ),
    _command(_QUEUE, "show", "Shows a message that waits for its retry, with its body", _show, "Showing"),
    _command(_QUEUE, "cancel", "Removes a message that waits for its retry", _cancel, "Cancelling"),
    _command(_QUEUE, "deliver", "Makes a message ready that waits for its retry", _deliver, "Delivering"),
)
