"""A set of sequence numbers, stored as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

#: The lists of an empty set, which most sets are: they share it, and none adds to it.
_NONE: Final[list[int]] = []


class SeqRanges:
    """Sorted ranges that neither touch nor overlap.

    The lowest range is at the end of the lists, so that removing from it, as a queue does, moves no other range.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        # Negated, so that the ascending lists have the lowest range last.
        self._starts = _NONE
        self._ends = _NONE

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges in ascending order as (first, end), `end` excluded."""
        return ((-start, -end) for start, end in zip(reversed(self._starts), reversed(self._ends), strict=True))

    def __contains__(self, seq: int) -> bool:
        # The only candidate is the last range with start <= seq, the first with -start >= -seq.
        at = bisect_left(self._starts, -seq)
        return at < len(self._starts) and seq < -self._ends[at]

    def add(self, first: int, end: int) -> None:
        """Add the numbers from `first` to `end`, excluded; some may be present already."""
        if not self._starts:
            self._starts, self._ends = [-first], [-end]
            return
        # Ranges that touch or overlap: those with start <= end and end >= first.
        low = bisect_left(self._starts, -end)
        high = bisect_right(self._ends, -first)
        if low < high:
            first = min(first, -self._starts[high - 1])
            end = max(end, -self._ends[low])
        self._starts[low:high] = [-first]
        self._ends[low:high] = [-end]

    def add_above(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Add ascending ranges above all numbers of the set, as (first, end)."""
        if ranges and self._ends and -self._ends[0] == ranges[0][0]:
            # It continues the highest range.
            self._ends[0] = -ranges[0][1]
            ranges = ranges[1:]
        self._starts = [-first for first, _ in reversed(ranges)] + self._starts
        self._ends = [-end for _, end in reversed(ranges)] + self._ends

    def remove(self, first: int, end: int) -> None:
        """Remove the numbers from `first` to `end`, excluded; some may be missing."""
        low, high = bisect_right(self._starts, -end), bisect_left(self._ends, -first)
        if low >= high:
            return
        highest_end, lowest_start = -self._ends[low], -self._starts[high - 1]
        left = [(end, highest_end)] if highest_end > end else []
        left += [(lowest_start, first)] if lowest_start < first else []
        self._starts[low:high] = [-start for start, _ in left]
        self._ends[low:high] = [-stop for _, stop in left]

    def end_at(self, seq: int) -> int:
        """Return the end of the range with a number; the number itself if it is in none."""
        at = bisect_left(self._starts, -seq)
        return max(seq, -self._ends[at]) if at < len(self._starts) else seq

    def start_after(self, seq: int, end: int) -> int:
        """Return the start of the first range above a number; `end` if there is none below it."""
        at = bisect_left(self._starts, -seq) - 1
        return min(end, -self._starts[at]) if at >= 0 else end

    def first(self) -> tuple[int, int]:
        """Return the lowest range as (first, end). The set must not be empty."""
        return -self._starts[-1], -self._ends[-1]

    def gaps(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Return the ranges between `first` and `end`, excluded, that are not in the set, as (first, end)."""
        for start, stop in [*self]:
            if first < start < end:
                yield first, start
            first = max(first, stop)
        if first < end:
            yield first, end

    def between(self, first: int, end: int) -> SeqRanges:
        """Return a copy of the ranges that overlap the numbers from `first` to `end`, excluded."""
        found = SeqRanges()
        low, high = bisect_right(self._starts, -end), bisect_left(self._ends, -first)
        found._starts, found._ends = self._starts[low:high], self._ends[low:high]
        return found

    def drop_below(self, seq: int) -> None:
        """Remove all numbers below `seq`."""
        while self._starts and -self._ends[-1] <= seq:
            self._starts.pop()
            self._ends.pop()
        if self._starts and -self._starts[-1] < seq:
            self._starts[-1] = -seq

    def clear(self) -> None:
        """Remove all numbers."""
        self._starts.clear()
        self._ends.clear()


def runs_of(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Group ascending numbers into runs, as (first, end), ends excluded."""
    if numbers and numbers[-1] - numbers[0] + 1 == len(numbers):
        yield numbers[0], numbers[-1] + 1
        return
    first = end = 0
    for seq in numbers:
        if seq == end:
            end = seq + 1
        else:
            if end:
                yield first, end
            first, end = seq, seq + 1
    if end:
        yield first, end
