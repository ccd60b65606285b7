"""Which message is due when: a sorted index in a few bytes for each message."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

#: Entries of a block that is full; a block is divided at twice as many.
_BLOCK: Final = 1024


class _Block:
    """Consecutive entries of the index.

    Attributes:
        times: When the messages are due, ascending.
        numbers: Their numbers; ascending where times are equal.
    """

    __slots__ = ("numbers", "times")

    def __init__(self, times: array[int], numbers: array[int]) -> None:
        self.times = times
        self.numbers = numbers


class DueIndex:
    """Times and numbers of messages, sorted by time, then by number.

    There are blocks of arrays: 16 bytes for each message, up to 32 if they are added in random order. Adding, and
    removing at the front, take about a microsecond, with a million messages too.
    """

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        #: Each has at least one entry.
        self._blocks: list[_Block] = []
        #: The last time of each block.
        self._lasts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, first: int, count: int = 1) -> None:
        """Add messages with consecutive numbers that are due at one time.

        Args:
            due: The time.
            first: Number of the first message; of several messages with higher numbers than all that are due then.
            count: Number of messages, at least 1.
        """
        self._count += count
        times, numbers = array("q", [due]) * count, array("Q", range(first, first + count))
        # Messages that were added before with this time come first, unless their number is higher (at a start).
        at = bisect_left(self._lasts, due)
        while at < len(self._lasts) - 1 and self._lasts[at] == due and self._blocks[at].numbers[-1] < first:
            at += 1
        if at == len(self._lasts):
            at -= 1
        if at < 0:
            self._blocks.append(_Block(times, numbers))
            self._lasts.append(due)
            at = 0
        else:
            block = self._blocks[at]
            place = _place(block, due, first)
            block.times[place:place] = times
            block.numbers[place:place] = numbers
            self._lasts[at] = block.times[-1]
        if len(self._blocks[at].times) > 2 * _BLOCK:
            self._divide(at)

    def first_due(self) -> int:
        """Return the earliest time. There must be a message."""
        return self._blocks[0].times[0]

    def last_due(self) -> int:
        """Return the latest time. There must be a message."""
        return self._lasts[-1]

    def clear(self) -> None:
        """Remove all messages."""
        self._blocks.clear()
        self._lasts.clear()
        self._count = 0

    def head(self, until: int, count: int) -> list[tuple[int, int]]:
        """Return time and number of the first messages.

        Args:
            until: Only messages that are due at this time or before.
            count: Maximum number of messages.
        """
        found: list[tuple[int, int]] = []
        for block in self._blocks:
            end = min(bisect_right(block.times, until), count - len(found))
            found += zip(block.times[:end], block.numbers[:end], strict=True)
            if end < len(block.times):
                break
        return found

    def drop(self, count: int) -> None:
        """Remove the first messages, as many as given."""
        self._count -= count
        emptied = 0
        for block in self._blocks:
            if count < len(block.times):
                del block.times[:count], block.numbers[:count]
                break
            count -= len(block.times)
            emptied += 1
        del self._blocks[:emptied], self._lasts[:emptied]

    def find(self, number: int) -> int | None:
        """Return the place of a message in the index, from 0; None if it is not there. It searches all of it."""
        start = 0
        for block in self._blocks:
            try:
                return start + block.numbers.index(number)
            except ValueError:
                start += len(block.numbers)
        return None

    def remove(self, place: int) -> None:
        """Remove the message at a place that find() has returned."""
        at, place = self._locate(place)
        block = self._blocks[at]
        del block.times[place], block.numbers[place]
        self._count -= 1
        if block.times:
            self._lasts[at] = block.times[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def entries(self, place: int, count: int) -> Iterator[tuple[int, int]]:
        """Return time and number of some messages, in order.

        Args:
            place: Place of the first one, from 0.
            count: Maximum number of messages.
        """
        if place >= self._count:
            return
        at, place = self._locate(place)
        while count > 0 and at < len(self._blocks):
            block = self._blocks[at]
            times, numbers = block.times[place : place + count], block.numbers[place : place + count]
            yield from zip(times, numbers, strict=True)
            count -= len(times)
            at, place = at + 1, 0

    def _locate(self, place: int) -> tuple[int, int]:
        """Return the block of a place, and the place in it."""
        for at, block in enumerate(self._blocks):
            if place < len(block.times):
                return at, place
            place -= len(block.times)
        raise IndexError(place)

    def _divide(self, at: int) -> None:
        """Divide a block into several ones."""
        block = self._blocks[at]
        starts = range(0, len(block.times), _BLOCK)
        parts = [_Block(block.times[start : start + _BLOCK], block.numbers[start : start + _BLOCK]) for start in starts]
        self._blocks[at : at + 1] = parts
        self._lasts[at : at + 1] = [part.times[-1] for part in parts]


def _place(block: _Block, due: int, number: int) -> int:
    """Return where a message belongs in a block."""
    low, high = bisect_left(block.times, due), bisect_right(block.times, due)
    return bisect_left(block.numbers, number, low, high)
