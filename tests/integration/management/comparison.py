"""Comparing documents field by field and type by type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

#: Types by the name that findings give them. JSON has one kind of number, but some clients
#: expect integers, so numbers with a fraction are a type of their own.
_NAMES = {bool: "boolean", int: "integer", float: "fraction", str: "string", type(None): "null"}

#: What tells an element of a list from the others.
_IDENTIFYING = (
    "name", "vhost", "user", "component", "exchange", "source", "destination", "properties_key", "consumer_tag",
    "protocol",
)  # fmt: skip


def type_name(value: Any) -> str:
    """The type of a JSON value."""
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, list) else _NAMES[type(value)]


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """What one document has that the other has not.

    Yields:
        ``missing PATH``, ``added PATH``, or ``PATH: TYPE for TYPE``.
    """
    wanted, found = type_name(theirs), type_name(ours)
    if wanted == found == "object":
        for key in theirs:
            below = f"{path}.{key}" if path else key
            if key in ours:
                yield from differences(theirs[key], ours[key], below)
            else:
                yield f"missing {below}"
        for key in ours:
            if key not in theirs:
                yield f"added {path}.{key}" if path else f"added {key}"
    elif wanted == found == "list":
        for one, other in _pairs(theirs, ours):
            yield from differences(one, other, f"{path}[]")
    elif wanted != found:
        yield f"{path}: {found} for {wanted}"


def _pairs(theirs: list[Any], ours: list[Any]) -> list[tuple[Any, Any]]:
    """Elements to compare: those that are about the same thing; the first ones where there is no such pair."""
    by_identity = {_identity(each): each for each in reversed(ours) if isinstance(each, Mapping)}
    pairs = [
        (each, by_identity[_identity(each)])
        for each in theirs
        if isinstance(each, Mapping) and _identity(each) in by_identity
    ]
    return pairs or list(zip(theirs[:1], ours[:1], strict=False))


def _identity(element: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(element[key]) for key in _IDENTIFYING if key in element)


def unexplained(found: Iterable[str], explained: Iterable[str]) -> list[str]:
    """Differences that no pattern explains."""
    patterns = list(explained)
    return [each for each in found if not any(fnmatchcase(each, pattern.replace("[]", "[[]]")) for pattern in patterns)]


def unused(found: Iterable[str], explained: Iterable[str]) -> list[str]:
    """Patterns that explain nothing."""
    differing = list(found)
    return [
        pattern
        for pattern in explained
        if not any(fnmatchcase(each, pattern.replace("[]", "[[]]")) for each in differing)
    ]
