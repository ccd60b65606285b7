from __future__ import annotations

from pathlib import Path

from tests.order import FIRST, rank

TESTS = Path(__file__).parents[1]


def test_each_folder_is_there() -> None:
    assert [name for name in FIRST if not (TESTS / name).is_dir()] == []


def test_others_follow_in_their_order() -> None:
    files = ["tests/bench/test_a.py", "tests/unit/test_a.py", "tests/unit/ui/test_b.py", "test_elsewhere.py"]
    first = [f"tests/{name}/test_a.py" for name in FIRST]
    assert sorted([*files, *reversed(first)], key=rank) == [*first, *files]
