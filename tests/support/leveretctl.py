"""Runs `leveretctl`: in the test's process, which is fast, or as a separate program."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from leveret.broker.leveretctl.command_line import URL_VARIABLE
from leveret.broker.leveretctl.program import Streams, run

_ROOT = Path(__file__).parents[2]
_DEADLINE = 180.0


class CommandResult(NamedTuple):
    """Result of a command."""

    status: int
    out: str
    err: str


class Leveretctl:
    """Runs commands for one broker in this process."""

    def __init__(self, url: str | None) -> None:
        self._environment = {} if url is None else {URL_VARIABLE: url}

    def __call__(self, *arguments: str, stdin: str = "") -> CommandResult:
        """Run a command."""
        out, err = io.StringIO(), io.StringIO()
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = run(list(arguments), self._environment, Streams(out, err))
        finally:
            sys.stdin = before
        return CommandResult(status, out.getvalue(), err.getvalue())

    def output(self, *arguments: str, stdin: str = "") -> str:
        """Run a command and return its standard output; assert that it succeeds with an empty stderr."""
        result = self(*arguments, stdin=stdin)
        assert (result.status, result.err) == (0, ""), result
        return result.out


class LeveretctlProgram(Leveretctl):
    """Runs commands for one broker as separate processes; otherwise like `Leveretctl`."""

    def __call__(self, *arguments: str, stdin: str = "") -> CommandResult:
        ended = subprocess.run(
            [sys.executable, "-m", "leveret.broker.leveretctl", *arguments],
            env=os.environ | self._environment,
            cwd=_ROOT,
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=_DEADLINE,
            check=False,
        )
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)
