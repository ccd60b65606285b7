"""Documents from tables of fields: an object's view has the attributes that the fields are read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from leveret.broker.management.fields import Field

_GARBAGE_COLLECTION: Final[Mapping[str, int]] = {
    "fullsweep_after": 0,
    "max_heap_size": 0,
    "min_bin_vheap_size": 0,
    "min_heap_size": 0,
    "minor_gcs": 0,
}
_NO_RATE: Final[Mapping[str, float]] = {"rate": 0.0}


class ErlangProcess:
    """View of an object that is a process in RabbitMQ; its figures are 0."""

    __slots__ = ()

    garbage_collection = _GARBAGE_COLLECTION
    reductions = 0
    reductions_details = _NO_RATE


def document_maker(fields: Iterable[Field]) -> Callable[[object], dict[str, Any]]:
    """Return a function that makes the document of an object's view.

    It is compiled, as a dataclass compiles its methods: reading dozens of attributes by name would take twice as long.

    Args:
        fields: The fields in their order. Those without a source and parts of other fields are left out.
    """
    shown = [field for field in fields if field.source and "." not in field.name]
    parts = {field.source.partition(".")[0] for field in shown if "." in field.source}
    read = {field.name: field.source if "." in field.source else f"view.{field.source}" for field in shown}
    optional = [field.name for field in shown if field.optional]
    lines = [
        "def make(view):",
        *(f"{part} = view.{part}" for part in sorted(parts)),
        f"document = {{{', '.join(f'{name!r}: {source}' for name, source in read.items())}}}",
        *(f"if document[{name!r}] is None: del document[{name!r}]" for name in optional),
        "return document",
    ]
    made: dict[str, Callable[[object], dict[str, Any]]] = {}
    exec("\n ".join(lines), {}, made)
    return made["make"]


def attributes(paths: Iterable[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that reads attributes, given as dotted paths, in one call."""
    wanted = tuple(paths)
    if len(wanted) > 1:
        return attrgetter(*wanted)
    read = [attrgetter(path) for path in wanted]
    return lambda view: tuple([each(view) for each in read])


def sort_keys(
    fields: Iterable[Field], view_of: Callable[[Any], object], type_of: Callable[[Any], str] = lambda item: ""
) -> dict[str, Callable[[Any], Any]]:
    """Return the values that lists are sorted by, by the name of the field; they need no document.

    Args:
        view_of: Returns the view of an object.
        type_of: Returns its type, if the fields are not those of all types.
    """

    def key(field: Field) -> Callable[[Any], Any]:
        read = attrgetter(field.sort or field.source)

        def value_or_missing(item: Any) -> Any:
            if field.of and type_of(item) not in field.of:
                return ...
            value = read(view_of(item))
            return ... if value is None and (field.sort or field.optional) else value

        return value_or_missing

    simple = [field for field in fields if field.source and "." not in field.name and "object" not in field.type]
    return {field.name: key(field) for field in (*simple, *(field for field in fields if field.sort))}


def iso_time(seconds: int) -> str:
    """Format a time in seconds since 1970, for example ``2026-11-21T02:30:16.000+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
