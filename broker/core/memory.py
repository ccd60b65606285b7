"""Watching the broker's memory, and raising the alarm above the watermark.

Source: https://www.rabbitmq.com/docs/memory
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leveret.broker.core.alarms import Alarms

log = logging.getLogger("leveret.memory")

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Above the limit all garbage is looked for at most so often, in seconds.
_COLLECT_SECONDS: Final = 60.0
_STATM: Final = Path("/proc/self/statm")
#: Where a container's limit stands, cgroup v2 and v1.
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def available_memory() -> int:
    """Memory that the broker may count on in bytes: the machine's, or the container's if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    for path in _CGROUP_LIMITS:
        try:
            limit = path.read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            total = min(total, int(limit))
    return total


def used_memory() -> int:
    """The broker's resident memory in bytes; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def give_back_memory() -> None:
    """Have the allocator return to the system what is free; it would keep what lies between things in use.

    Messages that were paged out or consumed leave hundreds of megabytes there, which count as in use.
    """
    if _TRIM is not None:
        _TRIM(0)


def _find_trim() -> Callable[[int], int] | None:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        # Not glibc.
        return None
    return trim


_TRIM: Final = _find_trim()


class MemoryMonitor:
    """Compares the memory in use with a limit.

    Args:
        alarms: Where the alarm is set.
        limit: Bytes above which it is set.
        collect: Finds all garbage, which takes up to a second; called before the alarm is set, and once a minute
            while it is.
        clock: Seconds, of a clock that never goes back.

    Attributes:
        used: Bytes in use when it last looked.
    """

    def __init__(
        self,
        alarms: Alarms,
        limit: int,
        collect: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alarms = alarms
        self._collect = collect
        self._clock = clock
        self._collected_at = -math.inf
        self._set = False
        self.used = 0
        self.limit = limit

    def look(self) -> bool:
        """Look once, and log what becomes of the alarm; return whether it changed."""
        self.used = used_memory()
        if self.used > self.limit:
            give_back_memory()
            self.used = used_memory()
        if self.used > self.limit and self._clock() - self._collected_at >= _COLLECT_SECONDS:
            # Garbage is no reason to stop publishers.
            self._collected_at = self._clock()
            self._collect()
            give_back_memory()
            self.used = used_memory()
        above = self.used > self.limit
        changed = above is not self._set
        if changed:
            self._set = above
            if above:
                self._alarms.set("memory")
            else:
                self._alarms.clear("memory")
            log.warning("memory alarm %s (limit %d bytes)", "set" if above else "cleared", self.limit)
        return changed
