"""Comparing documents field by field and type by type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

#: Types by the name that findings give them. JSON has one kind of number; that some clients want integers is no matter
#: of the text but of the fraction.
_NAMES = {bool: "boolean", int: "integer", float: "fraction", str: "string", type(None): "null"}


def type_name(value: Any) -> str:
    """The type of a JSON value."""
    if isinstance(value, Mapping):
        return "object"
    return "list" if isinstance(value, list) else _NAMES[type(value)]


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """What one document has that the other has not.

    Args:
        theirs: The sample.
        ours: What is compared with it.
        path: Of both, keys with dots between them; ``[]`` is an element of a list.

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
        if theirs and ours:
            yield from differences(theirs[0], ours[0], f"{path}[]")
    elif wanted != found:
        yield f"{path}: {found} for {wanted}"


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
