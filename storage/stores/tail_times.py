"""When messages in memory have arrived: noted once per sample, so that a publish costs nothing."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

#: Maximum number of notes; beyond that older ones become coarser.
_NOTES_MAX: Final = 512


class TailTimes:
    """Notes of the number that the next message gets, each with the time at which it was the next one.

    A message has arrived after the last note whose number is not above its own, and before the following note.

    Attributes:
        numbers: The noted numbers, ascending.
        times: When they were noted, in microseconds since 1970.
    """

    __slots__ = ("numbers", "times")

    def __init__(self) -> None:
        self.numbers = array("Q")
        self.times = array("q")

    def note(self, next_seq: int, now: int, last: int, is_empty: bool) -> None:
        """Add a note.

        Args:
            next_seq: The number of the next message.
            now: Microseconds since 1970.
            last: When a note was added before, or would have been: what is here without a note is not older.
            is_empty: Whether no message is left, so that earlier notes are useless.
        """
        if is_empty:
            del self.numbers[:], self.times[:]
        elif not self.numbers:
            self.numbers.append(0)
            self.times.append(last)
        if self.numbers and self.numbers[-1] == next_seq:
            # Nothing has arrived in between.
            self.times[-1] = now
            return
        self.numbers.append(next_seq)
        self.times.append(now)
        if len(self.numbers) > _NOTES_MAX:
            # Remove every second note of the older half, so that long waits are less exact.
            del self.numbers[1 : _NOTES_MAX // 2 : 2], self.times[1 : _NOTES_MAX // 2 : 2]

    def arrival(self, seq: int) -> int:
        """Return the time after which a message has arrived, in microseconds since 1970; 0 if it is unknown."""
        at = bisect_right(self.numbers, seq)
        return self.times[at - 1] if at else 0
