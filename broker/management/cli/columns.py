"""Selectable columns, as in `list_queues name messages`, and where the API's objects hold their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from leveret.broker.management.cli.command import ResultRows
from leveret.broker.management.cli.output import (
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


def field(path: str, convert: Callable[[Any], Any] | None = None) -> Column:
    """Return a column that shows one field.

    Args:
        path: dotted path of the field.
        convert: applied to the value unless it is missing or null.
    """
    steps = path.split(".")

    def read(found: Any) -> Any:
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return found if found is None or convert is None else convert(found)

    return Column(read, (path,))


def fields(*names: str) -> dict[str, Column]:
    """Return columns that have the same names as their fields."""
    return {name: field(name) for name in names}


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


# Forms of the table of fields that depend on the value, unless it is null, and those that depend on the whole object.
_OF_VALUES: Final[dict[str, Callable[[Any], Any] | None]] = {
    "": None,
    "empty": None,
    "arguments": Arguments,
    "json": lambda found: compact_json(found or {}),
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
            found[name] = Column(_or_zero(field(path).read), needs)
        elif form in _OF_OBJECTS:
            found[name] = Column(_OF_OBJECTS[form], needs)
        else:
            found[name] = field(path, _OF_VALUES[form])._replace(fields=needs)
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
