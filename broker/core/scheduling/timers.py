"""Clock and timers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Cancel the callback."""


class Timers:
    """The clock and the timers of one event loop.

    Args:
        call_later: The loop's call_later, which takes a delay in seconds and a callback.
    """

    __slots__ = ("call_later",)

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self.call_later = call_later

    def now(self) -> int:
        """Return the microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        """Return monotonic time in microseconds, for durations."""
        return time.monotonic_ns() // 1000
