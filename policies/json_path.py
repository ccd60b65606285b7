"""Paths to values in JSON documents: names, indexes, and all elements of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

#: A step of a path: a name, an index, or None for all elements of a list.
Step: TypeAlias = str | int | None
#: What values_at() gives for an element that has no value at the path.
NOTHING: Final = object()

_STEP: Final = re.compile(r"""\.?([^.\[\]"]+)|\[(\d{1,9})\]|\[(\*)\]|\["((?:[^"\\]|\\.)*)"\]""")
_STEPS_MAX: Final = 32


def parse_path(text: str) -> tuple[Step, ...]:
    """Parse a path such as `order.items[0].sku`, `items[*].sku` or `["a.b"]`; a `$` in front is left out.

    Raises:
        ValueError: It has another form, or too many steps; the text says so.
    """
    rest = text.removeprefix("$")
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None or len(steps) == _STEPS_MAX:
            raise ValueError(f"'{text}' is not a path such as order.items[0].sku or items[*].sku")
        name, index, every, quoted = found.groups()
        if quoted is not None:
            steps.append(_unquoted(text, quoted))
        else:
            steps.append(None if every else int(index) if index else name)
        at = found.end()
    return tuple(steps)


def values_at(document: Any, path: tuple[Step, ...]) -> Iterator[Any]:
    """Iterate over the values at a path, with NOTHING for each element that has none, so that a caller can count them.

    Args:
        document: A decoded JSON document.
        path: The result of parse_path().
    """
    #: What is left of the lists on the way, and the place in the path behind each.
    left: list[tuple[Iterator[Any], int]] = [(iter((document,)), 0)]
    while left:
        elements, at = left[-1]
        value = next(elements, left)
        if value is left:
            left.pop()
            continue
        while value is not NOTHING and at < len(path) and path[at] is not None:
            value = _step(value, path[at])
            at += 1
        if at < len(path) and isinstance(value, list):
            left.append((iter(value), at + 1))
        elif at < len(path):
            value = NOTHING
        yield value if at == len(path) else NOTHING


def _step(value: Any, step: Step) -> Any:
    """Return the value of a name or index."""
    if isinstance(step, str):
        return value.get(step, NOTHING) if isinstance(value, dict) else NOTHING
    return value[step] if isinstance(value, list) and step is not None and step < len(value) else NOTHING


def _unquoted(text: str, quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        raise ValueError(f"'{text}' has a name that is not a JSON string") from None
