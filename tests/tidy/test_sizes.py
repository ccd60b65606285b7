"""Functions stay small enough to be read at once: 40 lines are aimed at. Classes are as long as their subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tidy.measure import function_lines, is_junk_drawer, only_reexports

ROOT: Final = Path(__file__).parents[2]
ROOMS: Final = ("broker", "leveret", "policies", "protocol", "storage", "tests", "docker")

FUNCTION_LINES_MAX: Final = 70


def sources(*suffixes: str) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            # Maven puts generated sources under target/.
            if path.suffix in suffixes and path.is_file() and "target" not in path.parts:
                yield path


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in sources(".py")
        for name, lines in function_lines(path.read_text("utf-8")).items()
        if lines > FUNCTION_LINES_MAX
    }
    assert long == {}


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
