"""The time that is written into a data directory: it never goes back, also where the machine's clock does."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns


class Clock:
    """Microseconds since 1970.

    Args:
        wall: The machine's clock; the system's by default.
    """

    __slots__ = ("_last", "_wall")

    def __init__(self, wall: Callable[[], int] | None = None) -> None:
        self._wall = wall or _system_time
        self._last = 0

    def __call__(self) -> int:
        """What time it is; at least what it was the last time."""
        now = self._wall()
        if now > self._last:
            self._last = now
        return self._last

    def leave_behind(self, time: int | None = None) -> None:
        """Be later than a time from now on.

        Args:
            time: Microseconds since 1970; by default the last one that was given.
        """
        self._last = max(self._last, (self._last if time is None else time) + 1)


def _system_time() -> int:
    return time_ns() // 1000
