"""The clock and the timers of a broker.

TTLs, expiry of queues, acknowledgement timeouts and statistics follow this clock, which tests can advance. Heartbeats,
handshakes, deadlines of sockets and the upkeep of memory and disks follow real time: they use the event loop's timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from heapq import heappop, heappush
from typing import Final, Protocol, TypeAlias

from leveret.storage.clock import Clock

#: If the clock is advanced by more seconds than this, upkeep is called this number of times.
_LONG_SECONDS: Final = 1000.0
_UPKEEPS: Final = 100


class RealTimer(Protocol):
    """A scheduled callback of the event loop."""

    def cancel(self) -> None:
        """Cancel the callback."""


class _Never:
    """A callback that is not scheduled."""

    def cancel(self) -> None:
        """Do nothing."""


_NEVER: Final = _Never()
#: The event loop's call_later, which takes a delay in seconds and a callback.
RealCallLater: TypeAlias = Callable[[float, Callable[[], None]], RealTimer]


class Timer:
    """A scheduled callback that follows the broker's clock.

    Args:
        timers: The timers it belongs to.
        seconds: Delay in seconds.
        callback: Called once, unless cancel() is called before.
        is_upkeep: See Timers.call_periodically().

    Attributes:
        due: Monotonic time of the clock at which it is due, in microseconds.
    """

    __slots__ = ("_callback", "_real_timer", "_timers", "due", "is_upkeep")

    def __init__(self, timers: Timers, seconds: float, callback: Callable[[], None], is_upkeep: bool = False) -> None:
        self._timers = timers
        self.is_upkeep = is_upkeep
        self._callback = callback
        self.due = timers.monotonic() + round(seconds * 1_000_000)
        self._real_timer: RealTimer | None = timers.real_call_later(seconds, self._fire)
        timers.add(self)

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
        offset: Microseconds by which the clock is ahead of the system's.

    Attributes:
        real_call_later: See above; for what has to follow real time.
        pending: Timers that have not fired yet, in the order of their creation.
    """

    __slots__ = ("_advance", "pending", "real_call_later")

    def __init__(self, real_call_later: RealCallLater, offset: int = 0) -> None:
        super().__init__(offset)
        self.real_call_later = real_call_later
        self.pending: dict[Timer, None] = {}
        self._advance: _Advance | None = None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule a callback after some seconds of this clock."""
        return Timer(self, seconds, callback)

    def call_periodically(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Schedule upkeep that looks at all that has happened since the last time, such as statistics.

        While the clock is advanced by hours it is called a hundred times, rather than whenever it is due.
        """
        return Timer(self, seconds, callback, is_upkeep=True)

    async def advance(self, seconds: float, settle: Callable[[], Awaitable[None]] | None = None) -> None:
        """Advance the clock, for tests. Timers that become due fire in order, each when the clock shows its time.

        What they start can set timers that fire as well.

        Args:
            seconds: Seconds, at least 0.
            settle: Waits until what a timer has started is done; by default the event loop runs once.
        Raises:
            RuntimeError: It is being advanced already.
        """
        if self._advance is not None:
            raise RuntimeError("the clock is being advanced already")
        settle = settle or _run_loop_once
        await settle()
        length = round(seconds * 1_000_000)
        advance = self._advance = _Advance(
            self.monotonic(), length, length // _UPKEEPS if seconds > _LONG_SECONDS else 0
        )
        try:
            for timer in self.pending:
                advance.add(timer)
            while (firing := advance.next(self.pending)) is not None:
                self._skip_to(firing[0])
                for timer in firing[1]:
                    # What fires first may cancel the others.
                    if timer in self.pending:
                        timer.fire_now()
                        await settle()
            self._skip_to(advance.end)
        finally:
            self._advance = None
            for timer in list(self.pending):
                timer.restart()

    def add(self, timer: Timer) -> None:
        """Add a new timer."""
        self.pending[timer] = None
        if self._advance is not None:
            self._advance.add(timer)

    def cancel_all(self) -> None:
        """Cancel all callbacks."""
        for timer in list(self.pending):
            timer.cancel()

    def stop(self) -> None:
        """Cancel all callbacks, and call none that is scheduled later: the process may go on without the broker."""
        self.cancel_all()
        self.real_call_later = lambda _seconds, _callback: _NEVER

    def _skip_to(self, monotonic: int) -> None:
        self._offset += max(0, monotonic - self.monotonic())


class _Advance:
    """The timers that fire while the clock is advanced.

    Attributes:
        end: Monotonic time of the end.
    """

    def __init__(self, start: int, length: int, upkeep_pause: int) -> None:
        self.end = start + length
        self._pause = upkeep_pause
        self._next_upkeep = start + upkeep_pause if upkeep_pause else self.end + 1
        self._due: list[tuple[int, int, Timer]] = []
        #: Upkeep, if it has a pause.
        self._upkeep: list[Timer] = []
        self._count = 0

    def add(self, timer: Timer) -> None:
        """Add a timer."""
        if self._pause and timer.is_upkeep:
            self._upkeep.append(timer)
        elif timer.due <= self.end:
            # Timers of the same time fire in the order in which they were made.
            self._count += 1
            heappush(self._due, (timer.due, self._count, timer))

    def next(self, pending: Container[Timer]) -> tuple[int, list[Timer]] | None:
        """Return the next time and the timers that fire then; None at the end.

        Args:
            pending: All timers that have not been cancelled.
        """
        while self._due and self._due[0][2] not in pending:
            heappop(self._due)
        if self._due and self._due[0][0] <= self._next_upkeep:
            due, _, timer = heappop(self._due)
            return due, [timer]
        if self._next_upkeep > self.end:
            return None
        now = self._next_upkeep
        self._next_upkeep += self._pause
        due_now = [timer for timer in self._upkeep if timer.due <= now]
        self._upkeep = [timer for timer in self._upkeep if timer.due > now and timer in pending]
        return now, due_now


async def _run_loop_once() -> None:
    await asyncio.sleep(0)
