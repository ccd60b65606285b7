"""Functions and classes stay small enough to be read at once.

Aimed at: 40 lines a function. Failing here: more than the limits below. Files are as long as their subject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.measure import class_methods, function_lines, is_junk_drawer, only_reexports

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("broker", "leveret", "policies", "protocol", "storage", "tests", "docker")

FUNCTION_LINES_MAX: Final = 70
CLASS_METHODS_MAX: Final = 25

# Allowed exceptions: "file:function" or "file:Class" -> its size, each row with its reason
# as a comment. The tables may only shrink: a size has to be the true one, and a row no longer needed fails.
# Lower the number when the thing gets smaller; raise none.
FUNCTION_EXCEPTIONS: Final[dict[str, int]] = {}
CLASS_EXCEPTIONS: Final[dict[str, int]] = {}


def sources(*suffixes: str) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            # Maven puts generated sources under target/.
            if path.suffix in suffixes and path.is_file() and "target" not in path.parts:
                yield path


def measured(measure: Callable[[str], dict[str, int]]) -> dict[str, int]:
    return {
        f"{path.relative_to(ROOT)}:{name}": size
        for path in sources(".py")
        for name, size in measure(path.read_text("utf-8")).items()
    }


def complaints(sizes: dict[str, int], limit: int, exceptions: dict[str, int]) -> list[str]:
    large = {name: size for name, size in sizes.items() if size > limit}
    found = [
        f"{name}: {size}, allowed {exceptions.get(name, limit)}"
        for name, size in large.items()
        if size > exceptions.get(name, limit)
    ]
    found += [
        f"{name}: the exception for {size} is too wide, it is {large.get(name, f'within {limit}')} now"
        for name, size in exceptions.items()
        if size > large.get(name, 0)
    ]
    return found


def test_functions_are_short() -> None:
    assert complaints(measured(function_lines), FUNCTION_LINES_MAX, FUNCTION_EXCEPTIONS) == []


def test_classes_have_few_methods() -> None:
    assert complaints(measured(class_methods), CLASS_METHODS_MAX, CLASS_EXCEPTIONS) == []


def test_names_say_what_is_inside() -> None:
    junk = {
        str(path.relative_to(ROOT))
        for path in sources(".py", ".java", ".js", ".sh")
        if any(is_junk_drawer(Path(part).stem) for part in path.relative_to(ROOT).parts)
    }
    assert junk == set()


def test_packages_are_empty_or_reexport() -> None:
    busy = [
        str(path.relative_to(ROOT))
        for path in sources(".py")
        if path.name == "__init__.py" and not only_reexports(path.read_text("utf-8"))
    ]
    assert busy == []


@pytest.mark.parametrize(
    ("sizes", "exceptions", "count"),
    [
        ({"a": 10}, {}, 0),
        ({"a": 11}, {}, 1),
        ({"a": 11}, {"a": 11}, 0),
        ({"a": 12}, {"a": 11}, 1),
        ({"a": 11}, {"a": 12}, 1),
        ({"a": 10}, {"a": 11}, 1),
        ({"a": 3}, {"a": 5}, 1),
        ({}, {"a": 11}, 1),
    ],
)
def test_exceptions_may_only_shrink(sizes: dict[str, int], exceptions: dict[str, int], count: int) -> None:
    assert len(complaints(sizes, 10, exceptions)) == count
