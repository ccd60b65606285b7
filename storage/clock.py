"""The time that is written into a data directory: it never goes back, also where the machine's clock does."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, time_ns


class Clock:
    """Microseconds since 1970, for one thread.

    Where the machine's clock has been set back, it goes on at half its pace until that has caught up: what waits for
    some time to pass must not wait for days.

    Args:
        wall: The machine's clock, in microseconds; the system's by default.
        ticks: Microseconds since some moment, which nobody sets; the system's by default.
    """

    __slots__ = ("_behind_since", "_last", "_ticks", "_wall")

    def __init__(self, wall: Callable[[], int] | None = None, ticks: Callable[[], int] | None = None) -> None:
        self._wall = wall or _system_time
        self._ticks = ticks or _system_ticks
        self._last = 0
        #: In ticks, until when `_last` has gone on while the machine's clock was behind; -1 if it is not.
        self._behind_since = -1

    def __call__(self) -> int:
        """What time it is; at least what it was the last time."""
        now = self._wall()
        if now >= self._last:
            self._last = now
            self._behind_since = -1
        else:
            self._go_on()
        return self._last

    def _go_on(self) -> None:
        ticks = self._ticks()
        if self._behind_since < 0:
            self._behind_since = ticks
        half = (ticks - self._behind_since) // 2
        self._last += half
        self._behind_since += 2 * half

    def leave_behind(self, time: int | None = None) -> None:
        """Be later than a time from now on.

        Args:
            time: Microseconds since 1970; by default the last one that was given.
        """
        self._last = max(self._last, (self._last if time is None else time) + 1)


def _system_time() -> int:
    return time_ns() // 1000


def _system_ticks() -> int:
    return monotonic_ns() // 1000
