"""Selectable columns, as in `list_queues name messages`, and where the API's objects hold their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from leveret.broker.management.cli.command import ResultRows

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


def empty_column() -> Column:
    """Return a column that is always empty, for values that only mirrored queues or Erlang have."""
    return Column(lambda found: None, ())


def columns_query(columns: Mapping[str, Column], names: tuple[str, ...]) -> str:
    """Return the `?columns=` value that requests only the fields that these columns need."""
    return ",".join(dict.fromkeys(path for name in names for path in columns[name].fields)) or "name"


def to_rows(columns: Mapping[str, Column], names: tuple[str, ...], found: Iterable[dict[str, Any]]) -> ResultRows:
    """Convert API objects to rows of columns."""
    readers = [(name, columns[name].read) for name in names]
    return ResultRows(names, ({name: read(each) for name, read in readers} for each in found), streamed=True)
