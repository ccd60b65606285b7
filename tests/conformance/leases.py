"""Observes queues with x-expires without renewing their lease."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.wire import Channel

T = TypeVar("T")
#: Values of x-expires to try, in milliseconds; the longer ones are for busy machines.
LEASES = (1500, 4500, 10_000)


def gone(channel: Channel, queue: str, exchange: str = "") -> bool:
    """Return whether a queue was deleted; checks by publishing, which does not renew a lease."""
    channel.returns.clear()
    channel.publish(exchange, queue, mandatory=True)
    channel.sync()
    return bool(channel.returns)


class Gaps:
    """Measures the longest possible interval between requests as seen by the broker."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.longest = 0.0
        self._asked = time.monotonic()

    def ask(self, request: Callable[[], T]) -> T:
        """Make a request that waits for its reply, and return the reply."""
        asked = time.monotonic()
        answer = request()
        self.longest = max(self.longest, time.monotonic() - self._asked)
        self._asked = asked
        return answer


def alive_in_time(attempt: Callable[[int, Gaps], bool]) -> bool:
    """Return whether a queue still existed; repeat with a longer lease if a reply came too late to decide."""
    for lease in LEASES:
        gaps = Gaps()
        if attempt(lease, gaps):
            return True
        if gaps.longest * 1000 < lease:
            return False
    raise AssertionError(f"this machine has stood still for longer than {LEASES[-1]} ms")
