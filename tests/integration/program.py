"""Runs the program `leveret`, for tests of its output, exit status and signals.

It is forked, as brokers are (tests/support/fork_server.py); a new interpreter runs it if it is given an environment.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from tests.support.fork_server import ForkedBroker
from tests.support.leveret_process import started

ROOT = Path(__file__).parents[2]
_DEADLINE = 180.0


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program until it ends of itself."""
    with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
        process = started(list(arguments), output.fileno(), errors.fileno(), environment)
        try:
            status = process.wait(_DEADLINE)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())


class Program:
    """The program, running and ready."""

    def __init__(
        self, process: subprocess.Popen[str] | subprocess.Popen[bytes] | ForkedBroker, output: IO[str], stderr: Path
    ) -> None:
        self.process = process
        self._output = output
        self._stderr = stderr
        self.ready_line = output.readline().rstrip("\n")
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
        return self.process.wait(_DEADLINE), self._output.read()


@contextmanager
def running(directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Program]:
    """Start the program on free ports of this machine, and kill it in the end if it still runs."""
    ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
    options = ("--host", "127.0.0.1", *ports, "--data-dir", str(directory / "data"), *arguments)
    log = directory / "stderr.log"
    reading, writing = os.pipe()
    with os.fdopen(reading) as output, log.open("w") as stderr:
        try:
            process = started(list(options), writing, stderr.fileno(), environment)
        finally:
            os.close(writing)
        try:
            yield Program(process, output, log)
        finally:
            process.kill()
            process.wait()
