"""The matrix: which files it has, how outcomes are recorded, and what the table says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.recording import Outcome, feature_and_variant, read
from tests.matrix.runs import FileRun
from tests.matrix.suite import PROGRAMS, ROOT, Program
from tests.matrix.table import notes, rows, text

_PROGRAM = Program("Program", None, ())


def _run(*outcomes: Outcome, status: int = 0) -> FileRun:
    return FileRun(_PROGRAM, Path("test_file.py"), outcomes, status, "")


def _outcome(feature: str, variant: str = "", *, passed: bool = True, told: tuple[str, ...] = ()) -> Outcome:
    return Outcome(feature, variant, passed, 1.0, told)


def test_every_file_belongs_to_a_program() -> None:
    listed = {file for program in PROGRAMS for file in program.files}
    assert {path for path in listed if not (ROOT / path).is_file()} == set()
    found = {path.relative_to(ROOT) for path in (ROOT / "tests/matrix/programs").rglob("test_*.py")}
    assert found - listed == set()


def test_every_environment_is_described() -> None:
    directory = ROOT / "tests/matrix/environments"
    for name in {program.environment for program in PROGRAMS if program.environment}:
        assert (directory / f"{name}.txt").is_file()
        assert "==" in (directory / f"{name}.constraints.txt").read_text()


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/test_x.py::test_one_thing", ("one thing", "")),
        ("tests/test_x.py::test_one_thing[classic]", ("one thing", "classic")),
        ("tests/test_x.py::TestGroup::test_it[a::b]", ("it", "a::b")),
    ],
)
def test_feature_and_variant(nodeid: str, expected: tuple[str, str]) -> None:
    assert feature_and_variant(nodeid) == expected


def test_outcomes_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_features.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def spoiled():\n"
        "    yield\n"
        "    raise ValueError\n"
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "def test_it_works(n, record_property):\n"
        "    record_property('note', f'said {n}')\n"
        "    assert n == 1\n"
        "def test_left_out():\n"
        "    pytest.skip('not here')\n"
        "def test_spoiled(spoiled):\n"
        "    pass\n"
    )
    outcomes = tmp_path / "outcomes"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.matrix.recording", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "-c", str(tmp_path / "pytest.ini"), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "MATRIX_OUTCOMES": str(outcomes)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    found = [(each.feature, each.variant, each.passed, each.notes) for each in read(outcomes)]
    assert found == [
        ("it works", "1", True, ("said 1",)),
        ("it works", "2", False, ("said 2",)),
        ("left out", "", False, ()),
        ("spoiled", "", False, ()),
    ]


def test_table() -> None:
    runs = {
        "Leveret": [_run(_outcome("delay", "classic"), _outcome("delay", "quorum", passed=False), _outcome("retry"))],
        "RabbitMQ": [_run(_outcome("delay", "classic"), _outcome("delay", "quorum"))],
    }
    assert text(rows(runs), list(runs)) == (
        "| Program | Feature                 | Leveret      | RabbitMQ |\n"
        "| ------- | ----------------------- | ------------ | -------- |\n"
        "| Program | delay (classic, quorum) | FAIL: quorum | pass     |\n"
        "| Program | retry                   | pass         | –        |\n"
    )


def test_notes() -> None:
    runs = {"Leveret": [_run(_outcome("delay", "classic", told=("after 1 s",)), _outcome("retry"))]}
    assert notes(rows(runs)) == "delay (classic), Leveret: after 1 s\n"


@pytest.mark.parametrize(
    ("run", "succeeded"),
    [
        (_run(_outcome("a")), True),
        (_run(_outcome("a"), _outcome("b", passed=False)), False),
        (_run(_outcome("a"), status=1), False),
        (_run(), False),
        (FileRun(_PROGRAM, Path("test_file.py"), (), 5, "", left_out=True), True),
    ],
    ids=["all", "one failed", "pytest failed", "none has run", "left out"],
)
def test_success(run: FileRun, succeeded: bool) -> None:
    assert run.succeeded is succeeded
