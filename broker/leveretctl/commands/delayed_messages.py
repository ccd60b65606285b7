"""The commands for messages that wait in an exchange x-delayed-message, or in a queue for their retry.

RabbitMQ has no such commands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from leveret.broker.leveretctl.command import CommandContext, Outcome, Result, ResultRows, Run, command
from leveret.broker.leveretctl.command_errors import bad_argument
from leveret.broker.leveretctl.command_line import HEADERS, TIMEOUT, VHOST, Argument, option
from leveret.broker.leveretctl.selectable_columns import Column, table_columns, to_rows
from leveret.broker.management.fields import WAITING_MESSAGE

#: Messages per request.
_BATCH: Final = 1000
_LIMIT_DEFAULT: Final = 100
_COMMANDS: Final = "commands for delayed messages"


class _Place(NamedTuple):
    """Where messages wait, and the names of its commands."""

    kind: str
    noun: str
    list_command: str
    about: str
    columns: dict[str, Column]


_COLUMNS: Final = table_columns(WAITING_MESSAGE)
_EXCHANGE: Final = _Place(
    "exchange", "delayed_message", "list_delayed_messages", "exchange of type x-delayed-message", _COLUMNS
)
_QUEUE: Final = _Place(
    "queue",
    "delayed_retry",
    "list_delayed_retries",
    "queue with delayed retries",
    {name: column for name, column in _COLUMNS.items() if name != "delay"},
)


def _check_limit(context: CommandContext) -> None:
    if context.integer("limit", _LIMIT_DEFAULT) < 1:
        raise bad_argument("--limit must be 1 or more")


def _check_number(place: _Place, context: CommandContext) -> None:
    number = context.arguments[1]
    if not (number.isascii() and number.isdigit()):
        raise bad_argument(f"<id> is the number of a message, as {place.list_command} shows it, not {number}")


def _one(place: _Place, verb: str, summary: str, doing: str) -> Callable[[Run], Run]:
    """Return the decorator of a command for one message."""
    return command(
        (
            VHOST,
            Argument(f"<{place.kind}>", place.about),
            Argument("<id>", f"number of the message, as {place.list_command} shows it"),
            TIMEOUT,
        ),
        name=f"{verb}_{place.noun}",
        summary=summary,
        banner=f"{doing} message {{1}} of {place.kind} '{{0}}' in vhost '{{context.vhost}}' ...",
        check=partial(_check_number, place),
        of_leveret=_COMMANDS,
        place=place,
    )


def _all(place: _Place, summary: str, listing: str) -> Callable[[Run], Run]:
    """Return the decorator of a command that lists messages."""
    return command(
        (
            VHOST,
            Argument(f"<{place.kind}>", place.about),
            option("limit", f"maximum number of messages; default: {_LIMIT_DEFAULT}"),
            HEADERS,
            TIMEOUT,
        ),
        name=place.list_command,
        summary=summary,
        banner=f"Listing {listing} of {place.kind} '{{0}}' in vhost '{{context.vhost}}' ...",
        check=_check_limit,
        of_leveret=_COMMANDS,
        place=place,
    )


@_all(
    _EXCHANGE,
    "Lists messages that wait in an exchange x-delayed-message, the next one that is due first",
    "delayed messages",
)
@_all(
    _QUEUE,
    "Lists returned messages of a queue that wait for their retry, the next one that is due first",
    "delayed retries",
)
def _list(context: CommandContext, name: str, place: _Place) -> ResultRows:
    left, found = context.integer("limit", _LIMIT_DEFAULT), list[dict[str, Any]]()
    while left > 0:
        query = {"offset": len(found), "count": min(left, _BATCH)}
        part = context.api.get(*_path(context, place, name), **query)["messages"]
        found += part
        left -= len(part)
        if not part:
            break
    return to_rows(place.columns, tuple(place.columns), found)


@_one(_EXCHANGE, "show", "Shows a waiting message with its body", "Showing")
@_one(_QUEUE, "show", "Shows a message that waits for its retry, with its body", "Showing")
def _show(context: CommandContext, name: str, number: str, place: _Place) -> Result:
    found = context.api.get(*_path(context, place, name, number))
    lines = [f"{name}: {column.read(found)}" for name, column in place.columns.items()]
    properties = found["properties"] if isinstance(found["properties"], dict) else {}
    lines += [f"properties.{name}: {value}" for name, value in properties.items()]
    lines.append(f"payload ({found['payload_encoding']}): {found['payload']}")
    return Outcome("\n".join(lines), found)


@_one(_EXCHANGE, "cancel", "Removes a waiting message", "Cancelling")
@_one(_QUEUE, "cancel", "Removes a message that waits for its retry", "Cancelling")
def _cancel(context: CommandContext, name: str, number: str, place: _Place) -> Result:
    context.api.delete(*_path(context, place, name, number))
    return _done(place, name, number, "cancelled")


@_one(_EXCHANGE, "deliver", "Routes a waiting message to its queues now", "Delivering")
@_one(_QUEUE, "deliver", "Makes a message ready that waits for its retry", "Delivering")
def _deliver(context: CommandContext, name: str, number: str, place: _Place) -> Result:
    context.api.post(*_path(context, place, name, number, "deliver"))
    return _done(place, name, number, "delivered")


def _done(place: _Place, name: str, number: str, what: str) -> Outcome:
    return Outcome(f"Message {number} of {place.kind} '{name}' is {what}", {"id": int(number), "result": what})


def _path(context: CommandContext, place: _Place, name: str, *below: str) -> tuple[str, ...]:
    return f"{place.kind}s", context.vhost, name, "delayed", *below
