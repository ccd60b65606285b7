"""A pytest plugin that writes what became of each test to a file; runs with what every environment has.

MATRIX_OUTCOMES names the file. Each line of it is an object with the keys of `Outcome`.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Outcome:
    """What became of one test.

    Attributes:
        feature: What it tests: its name without `test_`, in words.
        variant: The parameters that it ran with, as pytest names them; empty without any.
        passed: Whether it has passed; what was skipped has not.
        seconds: How long it took, with what it had to prepare.
        notes: What it has to tell, passed or not: the values of its `record_property("note", …)`.
    """

    feature: str
    variant: str
    passed: bool
    seconds: float
    notes: tuple[str, ...] = ()


def feature_and_variant(nodeid: str) -> tuple[str, str]:
    """The feature that a test stands for and the variant of it, from the test's id."""
    test, _, variant = nodeid.partition("[")
    name = test.rpartition("::")[2]
    return name.removeprefix("test_").replace("_", " "), variant.removesuffix("]")


class _Test:
    """The reports of one test, so far."""

    def __init__(self) -> None:
        self.passed, self.called, self.seconds = True, False, 0.0
        self.notes: tuple[str, ...] = ()


class Recorder:
    """Collects reports and writes each test's outcome when it is over.

    Args:
        path: The file; outcomes are appended.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, _Test] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take up one phase of one test."""
        test = self._tests.setdefault(report.nodeid, _Test())
        test.passed &= report.outcome == "passed"
        test.called |= report.when == "call"
        test.seconds += report.duration
        test.notes = tuple(str(value) for key, value in report.user_properties if key == "note")
        if report.when == "teardown":
            feature, variant = feature_and_variant(report.nodeid)
            outcome = Outcome(feature, variant, test.passed and test.called, round(test.seconds, 2), test.notes)
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Start recording."""
    config.pluginmanager.register(Recorder(Path(os.environ["MATRIX_OUTCOMES"])), "matrix-recorder")


def read(path: Path) -> list[Outcome]:
    """The outcomes in a file; none if the file does not exist."""
    if not path.exists():
        return []
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return [Outcome(**{**line, "notes": tuple(line["notes"])}) for line in lines]
