"""The node that the broker is, as its tools see it."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.broker.core.stats.node import NodeStatistics

#: Free disk space below which the disk alarm would be set, in bytes: RabbitMQ's default.
_DISK_FREE_LIMIT: Final = 50_000_000


@dataclass(slots=True)
class Node:
    """Name, limits and addresses of the one node there is.

    Args:
        name: As RabbitMQ names nodes: program, ``@``, host.
        data_dir: Where all that is durable lies.
        config_files: Read at the start.
        addresses: Hosts and ports by listener: amqp, management, prometheus; filled when they listen.
        memory_limit: Bytes of memory above which the alarm is set.
        disk_free_limit: Bytes of free disk space below which the alarm is set.
        started_at: Milliseconds since 1970.
        statistics: What it takes of the machine.
    """

    name: str = field(default_factory=lambda: f"leveret@{socket.gethostname()}")
    data_dir: Path = Path()
    config_files: tuple[str, ...] = ()
    addresses: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    memory_limit: int = 0
    disk_free_limit: int = _DISK_FREE_LIMIT
    started_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    statistics: NodeStatistics = field(default_factory=NodeStatistics)
    # The machine's clock may be set meanwhile.
    _started: int = field(default_factory=time.monotonic_ns)

    def uptime(self) -> int:
        """Milliseconds since it was started."""
        return (time.monotonic_ns() - self._started) // 1_000_000

    def disk_free(self) -> int:
        """Bytes free where the data lies; 0 where the system does not tell."""
        try:
            found = os.statvfs(self.data_dir)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize
