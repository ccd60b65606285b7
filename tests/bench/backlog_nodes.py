"""Nodes that keep a backlog over a restart: what they are asked, each in its own way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.bench.accounting import ProcessAccount, listening_pid
from tests.bench.peers import Installation, Node
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import parse_url


class QueueFigures(NamedTuple):
    """What a node says of a queue."""

    messages: int
    messages_ram: int
    memory: int


class BacklogNode(Protocol):
    """A node of the benchmark's own."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    @property
    def url(self) -> str:
        """AMQP URL; the same after a restart."""

    @property
    def account(self) -> ProcessAccount:
        """Of the process that runs now."""

    def restart(self) -> float:
        """Stop it in order and start it again; return the seconds from the start until it serves."""

    def figures(self, queue: str) -> QueueFigures:
        """What it says of a queue."""

    def disk_bytes(self) -> int:
        """What its data take on the disk."""


class LeveretNode:
    """A Leveret; see BacklogNode."""

    def __init__(self, process: LeveretProcess) -> None:
        self._process = process
        self.name = f"Leveret {process.version}"
        self.url = process.url

    @property
    def account(self) -> ProcessAccount:
        return ProcessAccount(self._process.pid)

    def restart(self) -> float:
        self._process.stop()
        began = time.monotonic()
        self._process.start()
        return time.monotonic() - began

    def figures(self, queue: str) -> QueueFigures:
        found = Management(self._process.http_url).request("GET", "queues", "/", queue)
        return QueueFigures(found["messages"], found["messages_ram"], found["memory"])

    def disk_bytes(self) -> int:
        return _used_bytes(self._process.data_dir)


class RabbitNode:
    """A RabbitMQ; see BacklogNode."""

    name = "RabbitMQ"

    def __init__(self, node: Node, directory: Path) -> None:
        self._node, self._directory = node, directory
        self.url = node.url

    @property
    def account(self) -> ProcessAccount:
        pid = listening_pid(parse_url(self.url).port)
        assert pid is not None
        return ProcessAccount(pid)

    def restart(self) -> float:
        self._node.stop()
        began = time.monotonic()
        self._node.start()
        return time.monotonic() - began

    def figures(self, queue: str) -> QueueFigures:
        return QueueFigures(**self._node.queue_figures(queue))

    def disk_bytes(self) -> int:
        return _used_bytes(self._directory)


@contextmanager
def leveret(directory: Path) -> Iterator[BacklogNode]:
    """Start a Leveret with its data below a directory, and stop it at the end."""
    with LeveretProcess(directory) as process:
        yield LeveretNode(process)


@contextmanager
def rabbitmq(installation: Installation, directory: Path) -> Iterator[BacklogNode]:
    """Start a RabbitMQ with its data below a directory, and stop it at the end."""
    node = Node(installation, directory)
    try:
        node.start()
        yield RabbitNode(node, directory)
    finally:
        node.kill()


def _used_bytes(directory: Path) -> int:
    """Bytes of disk blocks below a directory."""
    used = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                used += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return used
