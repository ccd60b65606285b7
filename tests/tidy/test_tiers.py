"""Each row of the table of tiers says something of tests that are there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.tiers import FIRST, INTERPRETED, SECOND, is_slow

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.parametrize("row", [*SECOND, *FIRST, *INTERPRETED])
def test_a_row_has_tests(row: str) -> None:
    path, _, name = row.partition("::")
    files = [ROOT / path] if path.endswith(".py") else [*ROOT.glob(f"{path}*")]
    assert files
    assert any(each.exists() for each in files)
    if name:
        function = name.partition("[")[0]
        assert f"def {function}(" in files[0].read_text("utf-8")


def test_a_row_of_the_first_tier_is_needed() -> None:
    assert [row for row in FIRST if not row.startswith(SECOND)] == []


def test_modules_of_one_form_are_not_compiled() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["hooks"]["custom"]
    folders = tuple(row.removeprefix("tests/unit/") for row in INTERPRETED)
    assert [module for module in hook["modules"] if module.startswith(folders)] == []


def test_tiers() -> None:
    assert is_slow("tests/spark/test_export.py::test_all_names_come_back")
    assert not is_slow("tests/spark/test_sink.py::test_rows_that_are_not_taken")
    assert not is_slow("tests/unit/test_anything.py::test_it")
