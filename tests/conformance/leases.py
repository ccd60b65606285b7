"""Queues that expire, watched without renewing their lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.wire import Channel

T = TypeVar("T")
#: Milliseconds. The first is long enough wherever nothing stands still; the others are for machines that do.
LEASES = (1500, 4500, 10_000)


def gone(channel: Channel, queue: str, exchange: str = "") -> bool:
    """Return whether a queue is gone; asks by publishing, which renews no lease.

    Args:
        channel: To publish on.
        queue: Its name.
        exchange: One that it was bound to with its name: what was declared again after its end is not that queue.
    """
    channel.returns.clear()
    channel.publish(exchange, queue, mandatory=True)
    channel.sync()
    return bool(channel.returns)


class Gaps:
    """How far apart requests were at most when they reached the broker.

    Attributes:
        longest: Seconds from when one was sent until the answer to the next had come; the broker saw no more.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget what was before."""
        self.longest = 0.0
        self._asked = time.monotonic()

    def ask(self, request: Callable[[], T]) -> T:
        """Make a request that waits for its answer, and return that."""
        asked = time.monotonic()
        answer = request()
        self.longest = max(self.longest, time.monotonic() - self._asked)
        self._asked = asked
        return answer


def alive_in_time(attempt: Callable[[int, Gaps], bool]) -> bool:
    """Return whether a queue was still there, asking again with a longer lease where the answer came too late to tell.

    Args:
        attempt: Takes a lease in milliseconds, and the gaps to ask through; returns whether the queue was there.
    """
    for lease in LEASES:
        gaps = Gaps()
        if attempt(lease, gaps):
            return True
        if gaps.longest * 1000 < lease:
            return False
    raise AssertionError(f"this machine has stood still for longer than {LEASES[-1]} ms")
