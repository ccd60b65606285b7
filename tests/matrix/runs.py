"""Runs the files of the suite, a few at a time, each in its program's environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.matrix.environments import Environment
from tests.matrix.recording import Outcome, read
from tests.matrix.suite import ROOT, Program

_DEADLINE: Final = 1200.0
_CONFIG: Final = Path("tests/matrix/programs/pytest.ini")


@dataclass(frozen=True)
class Target:
    """A broker that the programs are tried on.

    Attributes:
        name: As the table names it.
        url: AMQP URL of its default user.
        http_url: Base URL of its HTTP API, with that user.
        given: Whether somebody else runs it; files that start a Leveret of their own then use this one.
    """

    name: str
    url: str
    http_url: str
    given: bool


@dataclass(frozen=True)
class FileRun:
    """What became of one file of tests.

    Attributes:
        program: The program that it tests.
        file: The file.
        outcomes: One for each test.
        status: pytest's exit status.
        output: What pytest printed.
        left_out: Whether there was nothing to run: all tests restart the broker, which is not ours.
    """

    program: Program
    file: Path
    outcomes: tuple[Outcome, ...]
    status: int
    output: str
    left_out: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether all tests have run and passed."""
        passed = bool(self.outcomes) and all(each.passed for each in self.outcomes)
        return self.left_out or (passed and self.status == 0)


def run(programs: Sequence[Program], target: Target, jobs: int, done: Callable[[FileRun], None]) -> list[FileRun]:
    """Run all files of some programs.

    Args:
        programs: Their environments must have been made.
        target: The broker.
        jobs: How many files run at a time.
        done: Called after each file.
    """
    # Of each program the longest file first: that is how they are listed.
    files = [(program, file) for program in programs for file in program.files]
    files.sort(key=lambda each: each[0].files.index(each[1]))
    runs = []
    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(_run_file, program, file, target) for program, file in files]):
            runs.append(future.result())
            done(runs[-1])
    return runs


def _run_file(program: Program, file: Path, target: Target) -> FileRun:
    with tempfile.TemporaryDirectory(prefix="matrix-") as directory:
        outcomes = Path(directory) / "outcomes"
        command, variables = _command(program, file, target)
        command += ["-q", f"--basetemp={directory}/files", "-p", "tests.matrix.recording"]
        environment = {**os.environ, **variables, "MATRIX_OUTCOMES": str(outcomes)}
        try:
            finished = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
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
        left_out = target.given and status == pytest.ExitCode.NO_TESTS_COLLECTED
        return FileRun(program, file, tuple(read(outcomes)), status, output, left_out)


def _command(program: Program, file: Path, target: Target) -> tuple[list[str], dict[str, str]]:
    """How pytest is called for a file, and with which environment variables."""
    if program.environment is None:
        command = [sys.executable, "-m", "pytest", str(file)]
        return command, {"BROKER_URL": target.url} if target.given else {}
    python = str(Environment(program.environment).python)
    confined = ["-c", str(_CONFIG), "--rootdir", str(ROOT), "--confcutdir", str(_CONFIG.parent)]
    variables = {"MATRIX_URL": target.url, "MATRIX_HTTP": target.http_url}
    return [python, "-m", "pytest", *confined, str(file)], variables
