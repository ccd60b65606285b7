"""Name, limits and statistics of the broker's node, and what it has of its cluster if it leads one."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from leveret.broker.core.counters.counters import NodeStatistics
from leveret.storage.clock import Clock
from leveret.storage.commit import Copies
from leveret.storage.definitions_database import Changes

#: RabbitMQ's default disk_free_limit, in bytes.
_DISK_FREE_LIMIT: Final = 50_000_000


#: How the names of nodes begin; the name of the host, or of the node in a cluster, follows.
NODE_PREFIX: Final = "leveret@"


@dataclass(slots=True)
class Node:
    """The node of the cluster that is the broker.

    Args:
        name: Node name as in RabbitMQ: program, ``@``, host.
        data_dir: The data directory.
        config_files: Configuration files read at the start.
        addresses: Hosts and ports by listener (amqp, management, prometheus); filled when they listen.
        memory_limit: Bytes of memory above which the memory alarm is set.
        disk_free_limit: Bytes of free disk space below which the disk alarm is set.
        statistics: Resource usage of the process.

    Attributes:
        started_at: Time of the start, in milliseconds since 1970.
        is_serving: Whether all listeners are open, and it is not being stopped.
    """

    clock: Clock
    name: str = field(default_factory=lambda: f"{NODE_PREFIX}{socket.gethostname()}")
    data_dir: Path = Path()
    config_files: tuple[str, ...] = ()
    addresses: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    memory_limit: int = 0
    disk_free_limit: int = _DISK_FREE_LIMIT
    statistics: NodeStatistics = field(default_factory=NodeStatistics)
    started_at: int = field(init=False)
    is_serving: bool = field(init=False, default=False)
    # The system clock may be changed while the broker runs.
    _started: int = field(init=False)

    def __post_init__(self) -> None:
        self.started_at = self.clock.now() // 1000
        self._started = self.clock.monotonic()

    def uptime(self) -> int:
        """Return the milliseconds since the start."""
        return (self.clock.monotonic() - self._started) // 1000

    def disk_free(self) -> int:
        """Return the free bytes on the disk of the data directory; 0 if unknown."""
        try:
            found = os.statvfs(self.data_dir)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize


@dataclass(frozen=True, slots=True)
class Replica:
    """What a leader has of its cluster; a RuntimeError of its functions says why something cannot be.

    Attributes:
        node: Name of the node, as in RabbitMQ.
        copies: Other machines that must have what clients are told.
        record: Records changes of definitions that are durable.
        report: Returns what is known of the cluster, for JSON.
        metrics: Returns the metrics of this node as lines of Prometheus's text format.
        nodes: Returns the other nodes with their fields in the HTTP API.
        hand_over: Lets the node of a name lead, or any for ""; returns its name.
        forget: Forgets the node of a name, which does not come back.
    """

    node: str
    copies: Copies
    record: Callable[[Changes], None]
    report: Callable[[], dict[str, Any]]
    metrics: Callable[[], Iterator[str]]
    nodes: Callable[[], list[dict[str, Any]]]
    hand_over: Callable[[str], Awaitable[str]]
    forget: Callable[[str], Awaitable[None]]
