"""Monitors the broker's memory and sets the memory alarm above the watermark.

Source: https://www.rabbitmq.com/docs/memory
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leveret.broker.core.resources.alarms import Alarms

log = logging.getLogger("leveret.memory")

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: Seconds between garbage collections while memory is above the limit.
_COLLECT_SECONDS: Final = 60.0
#: Parameters of mallopt, and their values: bytes from which a buffer is mapped on its own, and that are kept at most.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 32 << 20
_KEPT_BYTES: Final = 64 << 20
_STATM: Final = Path("/proc/self/statm")
#: Files with the memory limit of a container, cgroup v2 and v1.
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def available_memory() -> int:
    """Return the memory available to the broker in bytes: that of the machine, or the container's limit if lower."""
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
    """Return the broker's resident memory in bytes; 0 if it is unknown."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def release_free_memory() -> None:
    """Return free memory of the allocator to the system (malloc_trim).

    Messages that were paged out or consumed may leave hundreds of free megabytes that count as in use.
    """
    if _TRIM is not None:
        _TRIM(0)


def keep_free_memory() -> None:
    """Let the allocator of this process keep some free memory for the next buffers (mallopt).

    By default it returns each large buffer that is free to the system, and takes the pages back with the next one.
    """
    if _MALLOPT is not None:
        _MALLOPT(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        _MALLOPT(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """Return a function of glibc; None with another library."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function


_TRIM: Final = _of_glibc("malloc_trim")
_MALLOPT: Final = _of_glibc("mallopt")


class MemoryMonitor:
    """Sets and clears the memory alarm.

    Args:
        alarms: Where the alarm is set.
        limit: Bytes of memory above which it is set.
        clock: Monotonic real time in seconds.
        collect: Runs a full garbage collection, which takes up to a second; called before the alarm is set, and once a
            minute while it is set.

    Attributes:
        used: Bytes in use at the last check.
    """

    def __init__(
        self,
        alarms: Alarms,
        limit: int,
        clock: Callable[[], float],
        collect: Callable[[], object] = lambda: None,
    ) -> None:
        self._alarms = alarms
        self._collect = collect
        self._clock = clock
        self._collected_at = -math.inf
        self._set = False
        self.used = 0
        self.limit = limit

    def check(self) -> bool:
        """Measure memory, and set or clear the alarm; return whether it changed."""
        self.used = used_memory()
        if self.used > self.limit:
            release_free_memory()
            self.used = used_memory()
        if self.used > self.limit and self._clock() - self._collected_at >= _COLLECT_SECONDS:
            # Garbage must not block publishers.
            self._collected_at = self._clock()
            self._collect()
            release_free_memory()
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
