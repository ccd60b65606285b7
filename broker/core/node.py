"""Name, limits and statistics of the broker's node."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.broker.core.counters.counters import NodeStatistics
from leveret.storage.clock import Clock

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
