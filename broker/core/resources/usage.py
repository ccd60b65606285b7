"""Resource usage of the process."""

from __future__ import annotations

import gc
import os
import resource
import threading
from typing import ClassVar

from leveret.broker.core.counters.history import SampledCounters
from leveret.broker.core.resources.memory import used_memory


class NodeStatistics(SampledCounters):
    """Samples of resource usage, read from the system and the interpreter."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "mem_used",
        "fd_used",
        "sockets_used",
        "proc_used",
        "disk_free",
        "gc_num",
        "gc_bytes_reclaimed",
        "context_switches",
        "run_queue",
    )

    __slots__ = ()

    def row(self, sockets: int, disk_free: int) -> tuple[int, ...]:
        """Measure and return the numbers, by FIELDS.

        Args:
            sockets: Number of file descriptors of clients.
            disk_free: Free bytes on the disk of the data directory.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return (
            used_memory(),
            open_files(),
            sockets,
            threading.active_count(),
            disk_free,
            sum(generation["collections"] for generation in gc.get_stats()),
            0,
            usage.ru_nvcsw + usage.ru_nivcsw,
            0,
        )


def open_files() -> int:
    """Return the number of open file descriptors; 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def open_files_max() -> int:
    """Return the limit of open file descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
