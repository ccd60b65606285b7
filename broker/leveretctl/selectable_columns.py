"""Selectable columns, as in `list_queues name messages`, and where the API's objects hold their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from leveret.broker.leveretctl.command import CommandContext, ResultRows, selected_columns
from leveret.broker.leveretctl.printing import (
    Arguments,
    channel_identifier,
    compact_json,
    connection_identifier,
    queue_identifier,
)
from leveret.broker.management.fields import Table, columns_of

Read = Callable[[dict[str, Any]], Any]


class Column(NamedTuple):
    """Column of a listing.

    Args:
        read: returns the column's value for an API object.
        fields: dotted paths of the fields that `read` needs, as `?columns=` takes them.
    """

    read: Read
    fields: tuple[str, ...]


def _reader(path: str, convert: Callable[[Any], Any] | None) -> Read:
    """Return a function that reads the field at a dotted path; a value is converted unless it is missing or null."""
    steps = path.split(".")

    def read(found: Any) -> Any:
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return found if found is None or convert is None else convert(found)

    return read


def _protocol(text: str) -> Any:
    """Return `AMQP 0-9-1` as the tuple of version numbers that rabbitmqctl prints."""
    name, _, version = text.partition(" ")
    numbers = version.split("-")
    if name != "AMQP" or not all(number.isdigit() for number in numbers):
        return text
    return tuple(int(number) for number in numbers)


def _exclusive_consumer(consumers: list[dict[str, Any]]) -> Any:
    channels = (each["channel_details"]["name"] for each in consumers if each.get("exclusive"))
    return next(map(channel_identifier, channels), None)


def time_text(milliseconds: int) -> str:
    """Return a time as text; one that is too late for the calendar as a number."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
    except (OverflowError, ValueError):
        return str(milliseconds)


# Forms of the table of fields that depend on the value, unless it is null, and those that depend on the whole object.
_OF_VALUES: Final[dict[str, Callable[[Any], Any] | None]] = {
    "": None,
    "empty": None,
    "arguments": Arguments,
    "json": compact_json,
    "object": lambda found: compact_json(found or {}),
    "sum": lambda found: sum(found.values()),
    "tags": lambda found: [tag for tag in found.split(",") if tag] if isinstance(found, str) else found,
    "time": time_text,
    "line": lambda found: json.dumps(found, ensure_ascii=False)[1:-1] if isinstance(found, str) else str(found),
    "connection": connection_identifier,
    "channel": channel_identifier,
    "exclusive_consumer": _exclusive_consumer,
    "protocol": _protocol,
}
_OF_OBJECTS: Final[dict[str, Read]] = {
    "queue": lambda found: queue_identifier(found.get("node", ""), found.get("vhost", ""), found["name"]),
    "exchange_kind": lambda found: "exchange",
}


def table_columns(table: Table) -> dict[str, Column]:
    """Return the columns of a kind of object, as the table of fields describes them."""
    found = {}
    for name, path, form, needs in columns_of(table):
        if form == "count":
            found[name] = Column(_or_zero(_reader(path, None)), needs)
        else:
            found[name] = Column(_OF_OBJECTS.get(form) or _reader(path, _OF_VALUES[form]), needs)
    return found


def _or_zero(read: Read) -> Read:
    return lambda found: read(found) or 0


def columns_query(columns: Mapping[str, Column], names: tuple[str, ...]) -> str:
    """Return the `?columns=` value that requests only the fields that these columns need."""
    return ",".join(dict.fromkeys(path for name in names for path in columns[name].fields)) or "name"


def to_rows(columns: Mapping[str, Column], names: tuple[str, ...], found: Iterable[dict[str, Any]]) -> ResultRows:
    """Convert API objects to rows of columns."""
    readers = [(name, columns[name].read) for name in names]
    return ResultRows(names, ({name: read(each) for name, read in readers} for each in found), streamed=True)


def list_rows(columns: Mapping[str, Column], found: Iterable[dict[str, Any]], *names: str) -> ResultRows:
    """Convert API objects to rows of columns, by default all; the names are printed even if there are no rows."""
    return to_rows(columns, names or tuple(columns), found)._replace(streamed=False)


def list_objects(
    context: CommandContext,
    columns: Mapping[str, Column],
    wanted: tuple[str, ...],
    default: tuple[str, ...],
    *path: str,
) -> ResultRows:
    """Return rows of all objects at a path of the API.

    Args:
        wanted: Columns as the arguments name them.
        default: Columns without arguments.
    """
    names = selected_columns(wanted, default)
    # As in rabbitmqctl, an unknown virtual host has no objects.
    return to_rows(columns, names, context.api.find(*path, columns=columns_query(columns, names)) or [])
