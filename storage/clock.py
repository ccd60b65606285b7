"""Clock for timestamps in the data directory. It never goes back, even if the system clock does."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns


class Clock:
    """Microseconds since 1970, for one thread.

    After the system clock has been set back, this clock runs at half speed until the system clock has caught up.
    It does not stop, so that timeouts still expire.

    Args:
        wall: Wall clock in microseconds since 1970; the system's by default.
        ticks: Monotonic clock in microseconds; the system's by default.
    """

    __slots__ = ("_behind_since", "_last", "_ticks", "_wall")

    def __init__(self, wall: Callable[[], int] | None = None, ticks: Callable[[], int] | None = None) -> None:
        self._wall = wall or _system_time
        self._ticks = ticks or _system_ticks
        self._last = 0
        #: Monotonic time up to which `_last` has advanced while the wall clock was behind; -1 if it is not behind.
        self._behind_since = -1

    def __call__(self) -> int:
        """Return the current time; at least the last returned time."""
        now = self._wall()
        if now >= self._last:
            self._last = now
            self._behind_since = -1
        else:
            self._advance_slowly()
        return self._last

    def _advance_slowly(self) -> None:
        ticks = self._ticks()
        if self._behind_since < 0:
            self._behind_since = ticks
        half = (ticks - self._behind_since) // 2
        self._last += half
        self._behind_since += 2 * half

    def advance_past(self, time: int | None = None) -> None:
        """Advance the clock past a time.

        Args:
            time: Microseconds since 1970; the last returned time by default.
        """
        self._last = max(self._last, (self._last if time is None else time) + 1)


def _system_time() -> int:
    return time_ns() // 1000


def _system_ticks() -> int:
    return monotonic_ns() // 1000
