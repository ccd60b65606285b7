"""The time, and calls at a later one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that has not been made yet."""

    def cancel(self) -> None:
        """Do not make it."""


class Timers:
    """The clock and the timers of one event loop.

    Args:
        call_later: The loop's call_later: takes seconds and a callback.
    """

    __slots__ = ("call_later",)

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self.call_later = call_later

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic(self) -> int:
        """Microseconds since some moment: measures for how long, also while the machine's clock is set."""
        return time.monotonic_ns() // 1000
