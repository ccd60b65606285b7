"""The matrix: which files it has, and what the table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.matrix.runs import Run, outcomes
from tests.matrix.suite import PROGRAMS, ROOT
from tests.matrix.table import table

TESTS = """
import pytest

@pytest.fixture
def spoiled():
    yield
    raise ValueError

@pytest.mark.parametrize("queue", ["classic", "quorum"])
def test_a_delay(queue):
    assert queue == "classic"

def test_left_out():
    pytest.skip("not here")

def test_spoiled(spoiled):
    pass
"""


def test_every_file_belongs_to_a_program() -> None:
    listed = {program.file for program in PROGRAMS}
    assert {path.relative_to(ROOT) for path in (ROOT / "tests/matrix/programs").rglob("test_*.py")} == listed


def test_the_table_has_what_pytest_reports(tmp_path: Path) -> None:
    (tmp_path / "test_features.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "--junit-xml=report.xml"]
    status = subprocess.run(command, cwd=tmp_path, stdout=subprocess.DEVNULL, check=False).returncode
    found = tuple(outcomes((tmp_path / "report.xml").read_text()))
    run = Run(PROGRAMS[0], found, status, "")
    assert not run.succeeded
    assert table({"Leveret": [run], "RabbitMQ": [Run(PROGRAMS[0], found[:1], 0, "")]}) == (
        "| Program | Feature                   | Leveret      | RabbitMQ |\n"
        "| ------- | ------------------------- | ------------ | -------- |\n"
        "| Celery  | a delay (classic, quorum) | FAIL: quorum | pass     |\n"
        "| Celery  | left out                  | FAIL         | –        |\n"
        "| Celery  | spoiled                   | FAIL         | –        |\n"
    )
