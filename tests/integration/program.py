"""Runs the program `leveret` as a shell would, for tests of its output, exit status and signals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_DEADLINE = 180.0


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "leveret", *arguments]


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program until it ends of itself."""
    return subprocess.run(
        _command(arguments),
        env=os.environ | dict(environment or {}),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )


class Program:
    """The program, running and ready."""

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self.process = process
        self._stderr = stderr
        assert process.stdout is not None
        self.ready_line = process.stdout.readline().rstrip("\n")
        assert self.ready_line, f"ended with status {process.wait(_DEADLINE)}\n{self.log()}"
        words = (word.partition("=") for word in self.ready_line.split())
        self.addresses = {name: address for name, _, address in words if address}

    @property
    def url(self) -> str:
        """AMQP URL of the default user and vhost."""
        return f"amqp://guest:guest@{self.addresses['amqp']}"

    @property
    def http_url(self) -> str:
        """Base URL of the HTTP API, with the default user."""
        return f"http://guest:guest@{self.addresses['management']}"

    def log(self) -> str:
        """What it has written to stderr so far."""
        return self._stderr.read_text()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> tuple[int, str]:
        """Wait for its end; return the exit status and what it printed after the ready line."""
        output, _ = self.process.communicate(timeout=_DEADLINE)
        return self.process.returncode, output


@contextmanager
def running(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Start the program on free ports of this machine, and kill it in the end if it still runs."""
    ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
    options = ("--host", "127.0.0.1", *ports, "--data-dir", str(directory / "data"), *arguments)
    log = directory / "stderr.log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            _command(options),
            env=os.environ | dict(environment or {}),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield Program(process, log)
        finally:
            process.kill()
