"""Runs a Leveret broker as a separate process on free ports, for black-box tests."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.fork_server import ForkedBroker, ForkServer

_READY = re.compile(
    r"leveret (?P<version>\S+) ready amqp=\S+:(?P<amqp>\d+) management=\S+:(?P<management>\d+)"
    r" prometheus=\S+:(?P<prometheus>\d+)(?: amqps=\S+:(?P<amqps>\d+))?(?: management-tls=\S+)? data=(?P<data>.+)"
)
_START_DEADLINE = 180.0
_STOP_DEADLINE = 180.0
#: What a broker says whose port is taken, and how long to wait before it is started again.
_TAKEN = b"Address already in use"
_RETRY_SECONDS = 0.2
_FORK_SERVER = ForkServer()


class LeveretProcess:
    """A running broker; a context manager that stops it."""

    def __init__(
        self,
        directory: Path,
        *,
        config: Path | None = None,
        settings: Mapping[str, object] | None = None,
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        before_kill: Callable[[int], None] | None = None,
    ) -> None:
        self.directory = directory
        self._before_kill = before_kill
        self._environment = environment
        self.data_dir = directory / "data"
        self.log = directory / "stderr.log"
        self._options = ["--data-dir", str(self.data_dir)]
        if config is not None:
            self._options += ["--config", str(config)]
        for key, value in (settings or {}).items():
            self._options += ["--set", f"{key}={value}"]
        self._options += arguments
        self._ports = {"amqp": 0, "management": 0, "prometheus": 0}
        self.start()

    def __enter__(self) -> LeveretProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker (again), on the ports of the first start, and wait until it is ready.

        While it was down, a client of another test may have got one of its ports, for a moment.
        """
        deadline = time.monotonic() + _START_DEADLINE
        while True:
            begin = self.log.stat().st_size if self.log.exists() else 0
            try:
                self._start()
            except RuntimeError:
                is_taken = self._ports["amqp"] and _TAKEN in self.log.read_bytes()[begin:]
                if not is_taken or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _start(self) -> None:
        arguments = ["--host", "127.0.0.1"]
        for option, name in (
            ("port", "amqp"),
            ("management-port", "management"),
            ("prometheus-port", "prometheus"),
        ):
            arguments += [f"--{option}", str(self._ports[name])]
        self._output, output = os.pipe()
        try:
            with self.log.open("ab") as log:
                self._process = started([*arguments, *self._options], output, log.fileno(), self._environment)
        finally:
            os.close(output)
        try:
            ready = self._ready_line()
        except BaseException:
            self.kill()
            raise
        self.version = ready["version"]
        self._amqps_port = ready["amqps"]
        for name in self._ports:
            self._ports[name] = int(ready[name])

    def _ready_line(self) -> re.Match[str]:
        read, deadline = b"", time.monotonic() + _START_DEADLINE
        while b"\n" not in read:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._output], [], [], left)[0]:
                raise RuntimeError(f"not ready within {_START_DEADLINE} s\n{self.log_text()}")
            chunk = os.read(self._output, 4096)
            if not chunk:
                raise RuntimeError(f"ended with status {self._process.wait()}\n{self.log_text()}")
            read += chunk
        line = read.decode().splitlines()[0]
        ready = _READY.fullmatch(line)
        if ready is None:
            raise RuntimeError(f"unexpected line {line!r}")
        return ready

    @property
    def url(self) -> str:
        """AMQP URL of the default user and vhost."""
        return f"amqp://guest:guest@127.0.0.1:{self._ports['amqp']}"

    @property
    def amqps_url(self) -> str | None:
        """The same over TLS, for a broker that was started with `--amqps-port`; else None."""
        return self._amqps_port and f"amqps://guest:guest@127.0.0.1:{self._amqps_port}"

    @property
    def http_url(self) -> str:
        """Base URL of the management HTTP API, with the default user."""
        return f"http://guest:guest@127.0.0.1:{self._ports['management']}"

    @property
    def prometheus_url(self) -> str:
        """Base URL of the Prometheus endpoint."""
        return f"http://127.0.0.1:{self._ports['prometheus']}"

    @property
    def pid(self) -> int:
        """Process id of the running (or last) broker."""
        return self._process.pid

    def log_text(self) -> str:
        """Return the stderr output of the broker from all starts."""
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """Stop the broker with SIGTERM if it is running; return its exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"did not stop within {_STOP_DEADLINE} s\n{self.log_text()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """Simulate a crash: end the broker with SIGKILL if it is running."""
        if self._process.poll() is None:
            self.kill_now()
            self._process.wait()
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    def kill_now(self) -> None:
        """Send SIGKILL to the broker, also while another thread starts it."""
        with suppress(ProcessLookupError):
            if self._before_kill is not None:
                self._before_kill(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)

    def restart(self, *, crash: bool = False) -> None:
        """Stop the broker (or kill it, with `crash`) and start it on the same ports and data."""
        if crash:
            self.kill()
        else:
            self.stop()
        self.start()


def started(
    arguments: list[str], output: int, log: int, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes] | ForkedBroker:
    """Start the program with these arguments; its output and its log go to these files.

    With an environment, which is added to this process's, it is started as a shell does it: in a new interpreter.
    """
    if environment is None and _FORK_SERVER.can_fork():
        return _FORK_SERVER.fork(arguments, output, log)
    return subprocess.Popen(
        [sys.executable, "-m", "leveret", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=log,
        cwd=Path(__file__).parents[2],
        env=os.environ | dict(environment or {}),
    )


@pytest.fixture
def leveret_process(tmp_path: Path) -> Iterator[Callable[..., LeveretProcess]]:
    """Return a function that starts brokers, each with its own directory; they are stopped after the test.

    Its keyword arguments are those of `LeveretProcess` except `directory`.
    """
    started: list[LeveretProcess] = []

    def start(
        config: Path | None = None,
        settings: Mapping[str, object] | None = None,
        arguments: tuple[str, ...] = (),
    ) -> LeveretProcess:
        directory = tmp_path / f"leveret-{len(started)}"
        directory.mkdir()
        started.append(LeveretProcess(directory, config=config, settings=settings, arguments=arguments))
        return started[-1]

    yield start
    for process in started:
        process.stop()
