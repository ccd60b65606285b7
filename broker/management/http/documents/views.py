"""Documents from tables of fields: an object's view has the attributes that the fields are read from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from leveret.broker.management.fields import Field

#: Functions that sources may call.
_FUNCTIONS: Final[dict[str, Any]] = {"len": len, "list": list, "max": max, "str": str}


def document_maker(fields: Iterable[Field]) -> Callable[[object], dict[str, Any]]:
    """Return a function that makes the document of an object's view.

    Args:
        fields: The fields in their order. Those without a source and parts of other fields are left out.
    """
    shown = [field for field in fields if field.source and "." not in field.name]
    values = ", ".join(f"{field.name!r}: {field.source}" for field in shown)
    optional = [field.name for field in shown if field.optional]
    without = [f"if document[{name!r}] is None: del document[{name!r}]" for name in optional]
    return _compiled([field.source for field in shown], f"document = {{{values}}}", *without, "return document")


@cache
def values_of(*sources: str) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that computes the values of sources (see Field) from a view."""
    return _compiled(sources, f"return ({''.join(f'{source}, ' for source in sources)})")


def _compiled(sources: Iterable[str], *lines: str) -> Callable[[object], Any]:
    """Compile a function of a view, as a dataclass compiles its methods: one by one, attributes take twice as long.

    Args:
        lines: Its lines, which have the sources.
    """
    parsed = [node for source in sources for node in ast.walk(ast.parse(source, mode="eval"))]
    names = {node.id for node in parsed if isinstance(node, ast.Name)} - _FUNCTIONS.keys()
    made: dict[str, Callable[[object], Any]] = {}
    text = "\n ".join(["def read(view):", *(f"{name} = view.{name}" for name in sorted(names)), *lines])
    exec(text, dict(_FUNCTIONS), made)
    return made["read"]


def sort_keys(
    fields: Iterable[Field], view_of: Callable[[Any], object], type_of: Callable[[Any], str] = lambda item: ""
) -> dict[str, Callable[[Any], Any]]:
    """Return the values that lists are sorted by, by the name of the field; they need no document.

    Args:
        view_of: Returns the view of an object.
        type_of: Returns its type, if the fields are not those of all types.
    """

    def key(field: Field) -> Callable[[Any], Any]:
        read = values_of(field.sort or field.source)

        def value_or_missing(item: Any) -> Any:
            if field.of and type_of(item) not in field.of:
                return ...
            [value] = read(view_of(item))
            return ... if value is None and (field.sort or field.optional) else value

        return value_or_missing

    simple = [field for field in fields if field.source and "." not in field.name and "object" not in field.type]
    return {field.name: key(field) for field in (*simple, *(field for field in fields if field.sort))}


def iso_time(seconds: int) -> str:
    """Format a time in seconds since 1970, for example ``2026-11-21T02:30:16.000+00:00``."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
