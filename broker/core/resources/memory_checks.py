"""Checks memory once a second, and sooner while clients send much; pages messages to disk before the alarm is reached.

Source: https://www.rabbitmq.com/docs/memory-use, https://www.rabbitmq.com/docs/memory#paging-threshold
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, Protocol

from leveret.broker.core.resources.memory import MemoryMonitor, release_free_memory, used_memory

#: Queues with fewer bytes of messages in memory are skipped.
_WORTHWHILE_BYTES: Final = 1 << 20


class Paged(Protocol):
    """Where the messages of a queue are kept; see QueueBacking."""

    @property
    def held_bytes(self) -> int:
        """Body bytes of ready messages in memory."""

    def page_out(self, body_bytes: int) -> None:
        """Page about this many bytes of bodies out to disk."""


class Pager:
    """Pages messages to disk when memory runs low.

    Args:
        backings: Returns where the messages of all queues are kept.
        threshold: Memory use in bytes that starts paging (mutable).
    """

    def __init__(self, backings: Callable[[], Iterable[Paged]], threshold: int) -> None:
        self._backings = backings
        self.threshold = threshold
        #: Whether the last check paged messages out.
        self._has_paged = False

    def page_out_excess(self, used: int) -> int:
        """Page out messages while memory use is above the threshold, the largest queues first.

        Args:
            used: Bytes of memory in use.
        Returns:
            Bytes that will leave memory.
        """
        if self._has_paged and used > self.threshold:
            # Otherwise free memory of the allocator would count as in use, and too many messages would be paged out.
            release_free_memory()
            used = used_memory()
        self._has_paged = False
        excess = used - self.threshold
        if excess <= 0:
            return 0
        holding = [
            (backing.held_bytes, backing) for backing in self._backings() if backing.held_bytes >= _WORTHWHILE_BYTES
        ]
        freed = 0
        for held, backing in sorted(holding, key=itemgetter(0), reverse=True):
            if freed >= excess:
                break
            part = min(held, excess - freed)
            backing.page_out(part)
            freed += part
        self._has_paged = freed > 0
        return freed


_INTERVAL_SECONDS: Final = 1.0
#: Memory is also checked after the broker has received this fraction of the free memory below the limit.
_FRACTION: Final = 4
#: Bounds of that number of bytes.
_BYTES_MIN: Final = 2 * 1024 * 1024
_BYTES_MAX: Final = 64 * 1024 * 1024


class MemoryChecks:
    """Checks memory once a second, and sooner if fast input could fill it in between.

    Args:
        monitor: Sets the memory alarm.
        pager: Pages messages out, once a second.

    Attributes:
        received: Total bytes received by all connections.
    """

    def __init__(self, monitor: MemoryMonitor, pager: Pager, loop: asyncio.AbstractEventLoop) -> None:
        self._monitor = monitor
        self._pager = pager
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        #: Value of received at which memory is checked once.
        self._check_at = math.inf
        self.received = 0

    def start(self) -> None:
        """Start the checks."""
        self._check()
        self._pager.page_out_excess(self._monitor.used)
        self._timer = self._loop.call_later(_INTERVAL_SECONDS, self.start)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def set_limits(self, limit: int, paging_threshold: int) -> None:
        """Change the bytes of memory above which the alarm is set, and those above which messages are paged out."""
        self._monitor.limit = limit
        self._pager.threshold = paging_threshold

    def count_received(self, byte_count: int) -> None:
        """Count bytes that a connection has received, and check memory at the end of the turn if that is due."""
        self.received += byte_count
        if self.received >= self._check_at:
            self._check_at = math.inf
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._monitor.check()
        # Checks get more frequent near the limit, as a message takes more memory than its bytes on the wire.
        free = (self._monitor.limit - self._monitor.used) / _FRACTION
        self._check_at = self.received + min(max(free, _BYTES_MIN), _BYTES_MAX)
