"""A slice of time: how long one piece of work may take before others have their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Microseconds: many messages, and nothing that a client would notice.
SLICE_MICROSECONDS: Final = 5_000


class TimeSlice:
    """Begins when it is made, and is over some milliseconds later.

    Long work does a small step, asks, and leaves the rest to the next slice once this one is over.

    Args:
        clock: Microseconds that only ever grow, as Timers.monotonic.
    """

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._end = clock() + SLICE_MICROSECONDS

    def is_over(self) -> bool:
        """Whether the rest of the work has to wait."""
        return self._clock() >= self._end
