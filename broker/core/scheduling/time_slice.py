"""Time slices, which limit how long work may run before other clients are served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: Length in microseconds: long enough for many messages, too short for clients to notice.
SLICE_MICROSECONDS: Final = 5_000
#: Messages published in one slice: they are written to disk at the end of the turn, which takes time, too.
_SLICE_MESSAGES: Final = 4096


class TimeSlice:
    """A time slice of some milliseconds that begins when it is created.

    Long work checks it after every small step, and continues in a later slice once it is over.

    Args:
        clock: Monotonic time in microseconds, such as Timers.monotonic.
        messages: Number of messages to publish at most; see count_published().
    """

    __slots__ = ("_clock", "_end", "_messages_left")

    def __init__(self, clock: Callable[[], int], messages: int = _SLICE_MESSAGES) -> None:
        self._clock = clock
        self._end = clock() + SLICE_MICROSECONDS
        self._messages_left = messages

    def count_published(self, messages: int) -> None:
        """Note that messages have been published, which may have to be written at the end of the turn."""
        self._messages_left -= messages

    def is_over(self) -> bool:
        """Check whether the remaining work has to wait for a later slice."""
        return self._messages_left <= 0 or self._clock() >= self._end


def _stopped_clock() -> int:
    return 0


#: A time slice that is never over, for work that has to be finished at once.
UNLIMITED: Final = TimeSlice(_stopped_clock, 1 << 62)


class Unfinished(Exception):
    """An event needs work that takes longer than a time slice. No later event of its sender may precede this work.

    Args:
        step: Runs one slice of the work; returns whether the work is finished.
        is_handled: Whether only this work is left; otherwise the event must be handled again after it.
    """

    def __init__(self, step: Callable[[], bool], is_handled: bool = False) -> None:
        super().__init__("handling the event is not finished")
        self.step = step
        self.is_handled = is_handled
