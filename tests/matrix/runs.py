"""Runs the files of tests, a few at a time, each in its program's environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.matrix.environments import Environment
from tests.matrix.suite import ROOT, Program

_DEADLINE: Final = 1200.0
_CONFIG: Final = Path("tests/matrix/programs/pytest.ini")


@dataclass(frozen=True)
class Target:
    """A broker that the programs are tried on."""

    name: str
    url: str
    http_url: str


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    feature: str
    variant: str
    passed: bool


@dataclass(frozen=True)
class Run:
    """What became of one program's tests."""

    program: Program
    outcomes: tuple[Outcome, ...]
    status: int
    output: str

    @property
    def succeeded(self) -> bool:
        """Whether all tests have run and passed."""
        return bool(self.outcomes) and all(each.passed for each in self.outcomes) and self.status == 0


def run(programs: Sequence[Program], target: Target, jobs: int, done: Callable[[Run], None]) -> list[Run]:
    """Run the tests of some programs."""
    runs = []
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda program: _run(program, target), programs):
            runs.append(found)
            done(found)
    return runs


def _run(program: Program, target: Target) -> Run:
    with tempfile.TemporaryDirectory(prefix="matrix-") as directory:
        report = Path(directory) / "report.xml"
        command = [str(Environment(program.environment).python), "-m", "pytest", "-q", str(program.file)]
        command += ["-c", str(_CONFIG), "--rootdir", str(ROOT), "--confcutdir", str(_CONFIG.parent)]
        command += [f"--basetemp={directory}/files", f"--junit-xml={report}"]
        try:
            finished = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "MATRIX_URL": target.url, "MATRIX_HTTP": target.http_url},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_DEADLINE,
                check=False,
            )
            status, output = finished.returncode, finished.stdout
        except subprocess.TimeoutExpired as error:
            status, output = 1, f"{error}\n{error.output or ''}"
        return Run(program, tuple(outcomes(report.read_text())) if report.exists() else (), status, output)


def outcomes(report: str) -> list[Outcome]:
    """Return the outcomes that a report of pytest in JUnit's format tells."""
    found = []
    for case in ET.fromstring(report).iter("testcase"):
        name, _, variant = case.attrib["name"].partition("[")
        passed = not any(child.tag in ("failure", "error", "skipped") for child in case)
        found.append(Outcome(name.removeprefix("test_").replace("_", " "), variant.removesuffix("]"), passed))
    return found
