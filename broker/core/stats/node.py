"""What the node takes of the machine."""

from __future__ import annotations

import gc
import os
import resource
import threading
from typing import ClassVar

from leveret.broker.core.memory import used_memory
from leveret.broker.core.stats.followed import Followed


class NodeStatistics(Followed):
    """Measures the process. There are no counters: the system and the interpreter have them."""

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
        """The numbers, by FIELDS.

        Args:
            sockets: File descriptors of clients.
            disk_free: Bytes free where the data lies.
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
    """File descriptors in use; 0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def open_files_max() -> int:
    """File descriptors that the process may use."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
