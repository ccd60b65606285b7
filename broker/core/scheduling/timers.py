"""The clock and the timers of a broker.

TTLs, expiry of queues, acknowledgement timeouts and statistics follow this clock, which tests can advance. Heartbeats,
handshakes, deadlines of sockets and the upkeep of memory and disks follow real time: they use the event loop's timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import Protocol, TypeAlias

from leveret.storage.clock import Clock

_due = attrgetter("due")


class RealTimer(Protocol):
    """A scheduled callback of the event loop."""

    def cancel(self) -> None:
        """Cancel the callback."""


#: The event loop's call_later, which takes a delay in seconds and a callback.
RealCallLater: TypeAlias = Callable[[float, Callable[[], None]], RealTimer]


class Timer:
    """A scheduled callback that follows the broker's clock.

    Args:
        timers: The timers it belongs to.
        seconds: Delay in seconds.
        callback: Called once, unless cancel() is called before.

    Attributes:
        due: Monotonic time of the clock at which it is due, in microseconds.
    """

    __slots__ = ("_callback", "_real_timer", "_timers", "due")

    def __init__(self, timers: Timers, seconds: float, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback = callback
        self.due = timers.monotonic() + round(seconds * 1_000_000)
        self._real_timer: RealTimer | None = timers.real_call_later(seconds, self._fire)
        timers.pending[self] = None

    def cancel(self) -> None:
        """Cancel the callback."""
        if self._real_timer is not None:
            self._real_timer.cancel()
            self._real_timer = None
            del self._timers.pending[self]

    def fire_now(self) -> None:
        """Call the callback before the event loop does, because the clock has been advanced."""
        self.cancel()
        self._callback()

    def restart(self) -> None:
        """Set the event loop's timer again, because the clock has been advanced."""
        if self._real_timer is not None:
            self._real_timer.cancel()
            left = max(0, self.due - self._timers.monotonic())
            self._real_timer = self._timers.real_call_later(left / 1_000_000, self._fire)

    def _fire(self) -> None:
        # Also breaks the reference cycle with the event loop's timer.
        self._real_timer = None
        del self._timers.pending[self]
        self._callback()


class Timers(Clock):
    """The clock of a broker, and the timers that follow it.

    Args:
        real_call_later: The event loop's call_later.

    Attributes:
        real_call_later: See above; for what has to follow real time.
        pending: Timers that have not fired yet, in the order of their creation.
    """

    __slots__ = ("pending", "real_call_later")

    def __init__(self, real_call_later: RealCallLater) -> None:
        super().__init__()
        self.real_call_later = real_call_later
        self.pending: dict[Timer, None] = {}

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a callback after some seconds of this clock."""
        return Timer(self, seconds, callback)

    async def advance(self, seconds: float) -> None:
        """Advance the clock, for tests. Timers that become due fire in order, each when the clock shows its time.

        The event loop runs once after each of them, so that what it starts can set timers that fire as well.
        """
        end = self.monotonic() + round(seconds * 1_000_000)
        await asyncio.sleep(0)
        while (timer := min(self.pending, key=_due, default=None)) is not None and timer.due <= end:
            self._skip_to(timer.due)
            timer.fire_now()
            await asyncio.sleep(0)
        self._skip_to(end)
        for timer in list(self.pending):
            timer.restart()

    def _skip_to(self, monotonic: int) -> None:
        self._offset += max(0, monotonic - self.monotonic())
