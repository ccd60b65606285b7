"""Which modules are changed, and which tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The project's folder.
ROOT: Final = Path(__file__).resolve().parents[2]
#: Where modules are.
_PACKAGES: Final = ("analytics", "broker", "policies", "protocol", "storage")
#: Tests beside those of tests/unit, by the folder that they are about.
_BESIDE: Final = {
    "broker/core/exchanges": ["tests/contract/test_choosing_exchanges.py", "tests/contract/test_exchange_types.py"],
    "broker/core/queues": [
        "tests/unit/broker/core/test_counters.py",
        "tests/unit/broker/operations/test_removal.py",
        "tests/unit/broker/operations/test_returning.py",
    ],
    "storage/stores": [
        "tests/contract/test_damaged_store.py",
        "tests/contract/test_looking.py",
        "tests/contract/test_message_store.py",
        "tests/unit/storage/readers/test_kept_for_readers.py",
        "tests/unit/storage/test_engine.py",
    ],
}


class UnknownPlaceError(Exception):
    """There is no such module or folder; the text says what there could be."""


@dataclass(frozen=True)
class Scope:
    """What one run changes and runs."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]


def scope_of(place: str, root: Path = ROOT) -> Scope:
    """Return what belongs to a module or folder."""
    path = Path(place)
    modules: tuple[str, ...] = ()
    if path.parts and path.parts[0] in _PACKAGES:
        files = sorted((root / path).rglob("*.py")) if (root / path).is_dir() else [root / path]
        modules = tuple(str(file.relative_to(root)) for file in files if file.is_file() and file.name != "__init__.py")
    if not modules:
        raise UnknownPlaceError(
            f"no module or folder {place}: name one of {', '.join(_PACKAGES)}, "
            "such as storage/stores or policies/policy_keys.py"
        )
    return Scope(str(path), modules, (_mirror(path, root), *_beside(path)))


def _mirror(path: Path, root: Path) -> str:
    """Return the folder of unit tests for a module or folder, or for the nearest folder around it that has one."""
    for folder in (path, *path.parents[:-1]):
        tests = Path("tests/unit") / folder
        if (root / tests).is_dir():
            return str(tests)
    raise UnknownPlaceError(f"no folder of tests/unit mirrors {path} or a folder around it")


def _beside(path: Path) -> list[str]:
    around = {str(path), *(str(folder) for folder in path.parents)}
    return [test for folder, tests in _BESIDE.items() if folder in around for test in tests]
