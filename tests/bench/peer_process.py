"""Starts and stops brokers to compare with."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from tests.bench.in_flight import BenchError
from tests.support.wire import Connection, ConnectionClosed, ConnectionDropped

_START_SECONDS: Final = 90.0
_STOP_SECONDS: Final = 20.0
_PORTS: Final = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Return ports that stay free over a restart: none that the system would give to another program.

    Raises:
        BenchError: fewer ports are free.
    """
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise BenchError("no free ports")


def start(command: list[str], log: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, so that the whole group can be ended."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def wait_until_ready(name: str, url: str, node: subprocess.Popen[bytes], log: Path) -> None:
    """Return once a broker accepts AMQP connections.

    Args:
        name: of the product, for the error.
        url: AMQP URL.
        node: the process.
        log: its output.

    Raises:
        BenchError: it has ended, or did not start within 90 s.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            Connection(url).close()
        except (OSError, ConnectionDropped, ConnectionClosed) as error:
            if node.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(errors="replace")[-2000:]
                raise BenchError(f"{name} did not start: {error}\n{text}") from error
            time.sleep(0.1)
        else:
            return


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program and all of its process group; its data is not needed again."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_STOP_SECONDS)
