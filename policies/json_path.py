"""Paths to values in JSON documents: names, indexes, and all elements of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

#: A step of a path: a name, an index, or None for all elements of a list.
Step: TypeAlias = str | int | None

_STEP: Final = re.compile(r"""\.?([^.\[\]"]+)|\[(\d{1,9})\]|\[(\*)\]|\["((?:[^"\\]|\\.)*)"\]""")
_STEPS_MAX: Final = 32


@lru_cache(maxsize=256)
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
    """Iterate over the values at a path; none if there is no such value.

    Args:
        document: A decoded JSON document.
        path: The result of parse_path().
    """
    if not path:
        yield document
        return
    step, rest = path[0], path[1:]
    if step is None:
        if isinstance(document, list):
            for element in document:
                yield from values_at(element, rest)
    elif isinstance(step, str):
        if isinstance(document, Mapping) and step in document:
            yield from values_at(document[step], rest)
    elif isinstance(document, list) and step < len(document):
        yield from values_at(document[step], rest)


def _unquoted(text: str, quoted: str) -> str:
    try:
        return str(json.loads(f'"{quoted}"'))
    except ValueError:
        raise ValueError(f"'{text}' has a name that is not a JSON string") from None
