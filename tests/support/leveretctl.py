"""Runs `leveretctl`: within the test's process, which is fast, or as the program that a shell would start."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from leveret.broker.management.cli.program import URL_VARIABLE, Streams, run

_ROOT = Path(__file__).parents[2]
_DEADLINE = 180.0


class Ran(NamedTuple):
    """What came of a run.

    Args:
        status: exit status.
        out: standard output.
        err: standard error.
    """

    status: int
    out: str
    err: str


class Leveretctl:
    """The commands, for one broker, run within this process.

    Args:
        url: of the broker's HTTP API; None leaves it to the program's default.
    """

    def __init__(self, url: str | None) -> None:
        self._environment = {} if url is None else {URL_VARIABLE: url}

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        """Run one command line.

        Args:
            arguments: its words.
            stdin: what it reads from standard input.
        """
        out, err = io.StringIO(), io.StringIO()
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = run(list(arguments), self._environment, Streams(out, err))
        finally:
            sys.stdin = before
        return Ran(status, out.getvalue(), err.getvalue())

    def output(self, *arguments: str, stdin: str = "") -> str:
        """Run one and return its standard output; fail unless it succeeds and has nothing to complain about."""
        ran = self(*arguments, stdin=stdin)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran.out


class LeveretctlProgram(Leveretctl):
    """The program, for one broker, each time a process of its own; otherwise as `Leveretctl`."""

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        inherited = {key: value for key, value in os.environ.items() if key != URL_VARIABLE}
        ended = subprocess.run(
            [sys.executable, "-m", "leveret.broker.management.cli", *arguments],
            env=inherited | self._environment,
            cwd=_ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_DEADLINE,
            check=False,
        )
        return Ran(ended.returncode, ended.stdout, ended.stderr)
