"""Columns of choice: what `list_queues name messages` names, and where each value is in the API's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from leveret.broker.management.cli.command import CommandContext, ResultRows
from leveret.broker.management.cli.faults import UsageFault

Read = Callable[[dict[str, Any]], Any]


class Column(NamedTuple):
    """One column.

    Args:
        read: takes its value from an object.
        fields: paths of the object that it needs, dotted as `?columns=` has them.
    """

    read: Read
    fields: tuple[str, ...]


def field(path: str, convert: Callable[[Any], Any] | None = None) -> Column:
    """Return a column that is one field.

    Args:
        path: dotted.
        convert: applied to the value, unless that is missing or null.
    """
    steps = path.split(".")

    def read(found: Any) -> Any:
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        return found if found is None or convert is None else convert(found)

    return Column(read, (path,))


def fields(*names: str) -> dict[str, Column]:
    """Return columns that are called as their fields are."""
    return {name: field(name) for name in names}


def nothing() -> Column:
    """Return a column that is always empty: what RabbitMQ has only with mirrors, or only in Erlang."""
    return Column(lambda found: None, ())


def chosen(arguments: list[str], default: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that the arguments name, each once; commas separate names too."""
    names = [name for argument in arguments for name in argument.split(",") if name]
    return tuple(dict.fromkeys(names)) or default


def check_columns(known: Iterable[str]) -> Callable[[CommandContext], None]:
    """Return the check of a command that lists columns of choice."""
    names = frozenset(known)

    def check(context: CommandContext) -> None:
        strange = sorted(set(chosen(context.arguments, ())) - names)
        if strange:
            raise UsageFault(f"Info key(s) {','.join(strange)} are not supported")

    return check


def needed(columns: Mapping[str, Column], names: tuple[str, ...]) -> str:
    """Return the `?columns=` that asks for no more than what some columns need."""
    return ",".join(dict.fromkeys(path for name in names for path in columns[name].fields)) or "name"


def listing(columns: Mapping[str, Column], names: tuple[str, ...], found: Iterable[dict[str, Any]]) -> ResultRows:
    """Return objects as rows of columns."""
    readers = [(name, columns[name].read) for name in names]
    return ResultRows(names, ({name: read(each) for name, read in readers} for each in found), streamed=True)
