"""A compact set of the dead messages of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.storage.seq_ranges import SeqRanges

#: Sequence numbers that share a bitmap.
BLOCK: Final = 4096
_BITMAP_BYTES: Final = BLOCK // 8
_ALL_DEAD: Final = b"\xff" * _BITMAP_BYTES


class DeadSet:
    """Sequence numbers of dead messages: all below a floor, and some above it.

    Above the floor, a block of 4,096 numbers needs a bitmap of 512 bytes only if some but not all of them are dead.

    Args:
        floor: All numbers below it are dead.
    """

    __slots__ = ("_bitmaps", "_full", "floor")

    def __init__(self, floor: int = 1) -> None:
        self.floor = floor
        self._bitmaps: dict[int, bytearray] = {}
        #: Completely dead blocks.
        self._full = SeqRanges()

    def __contains__(self, seq: int) -> bool:
        if seq < self.floor:
            return True
        bitmap = self._bitmaps.get(seq // BLOCK)
        if bitmap is not None:
            return bool(bitmap[seq % BLOCK >> 3] >> (seq & 7) & 1)
        return bool(self._full) and seq // BLOCK in self._full

    def add(self, first: int, count: int) -> None:
        """Mark a run of numbers dead; some may be dead already.

        Args:
            first: The lowest number.
            count: Length of the run, at least 1.
        """
        end = first + count
        if first <= self.floor:
            if end > self.floor:
                if self._bitmaps or self._full:
                    self._raise_floor(end)
                else:
                    self.floor = end
            return
        at = first
        while at < end:
            block = at // BLOCK
            stop = min(end, (block + 1) * BLOCK)
            if at == block * BLOCK and stop == at + BLOCK:
                last = end // BLOCK
                for emptied in [each for each in self._bitmaps if block <= each < last]:
                    del self._bitmaps[emptied]
                self._full.add(block, last)
                at = last * BLOCK
            else:
                self._mark(block, at, stop)
                at = stop

    def live_runs(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Iterate over the runs of live numbers from `first` to `end` as (first, end), ends excluded."""
        at = max(first, self.floor)
        run_start = -1
        while at < end:
            block = at // BLOCK
            stop = min(end, (block + 1) * BLOCK)
            bitmap = self._bitmaps.get(block)
            if bitmap is not None:
                base = block * BLOCK
                for is_dead, where in _changes(bitmap, at - base, stop - base):
                    if not is_dead:
                        run_start = run_start if run_start >= 0 else base + where
                    elif run_start >= 0:
                        yield run_start, base + where
                        run_start = -1
            elif self._full and block in self._full:
                if run_start >= 0:
                    yield run_start, at
                    run_start = -1
            elif run_start < 0:
                run_start = at
            at = stop
        if run_start >= 0:
            yield run_start, end

    def count_live(self, first: int, end: int) -> int:
        """Count the live numbers from `first` to `end`, excluded."""
        at = max(first, self.floor)
        count = 0
        while at < end:
            block = at // BLOCK
            stop = min(end, (block + 1) * BLOCK)
            bitmap = self._bitmaps.get(block)
            if bitmap is not None:
                part = int.from_bytes(bitmap, "little") >> (at % BLOCK) & ((1 << (stop - at)) - 1)
                count += stop - at - part.bit_count()
            elif not self._full or block not in self._full:
                count += stop - at
            at = stop
        return count

    def last_live(self, end: int) -> int:
        """Return the highest live number below `end`; the one before the floor if there is none."""
        at = end - 1
        while at >= self.floor:
            block = at // BLOCK
            bitmap = self._bitmaps.get(block)
            if bitmap is not None:
                live = ~int.from_bytes(bitmap, "little") & ((1 << (at % BLOCK + 1)) - 1)
                if live:
                    return max(self.floor - 1, block * BLOCK + live.bit_length() - 1)
            elif not self._full or block not in self._full:
                return at
            at = block * BLOCK - 1
        return self.floor - 1

    def part(self, first: int, end: int) -> DeadSet:
        """Return a copy that is valid for the numbers from `first` to `end`, excluded."""
        part = DeadSet(self.floor)
        low, high = first // BLOCK, (end - 1) // BLOCK
        known = self._bitmaps
        blocks = range(low, high + 1) if high - low < len(known) else [each for each in known if low <= each <= high]
        part._bitmaps = {block: known[block][:] for block in blocks if block in known}
        part._full = self._full.between(low, high + 1)
        return part

    def bitmaps(self) -> Iterator[tuple[int, bytes]]:
        """Return the bitmaps in order of block number."""
        return ((block, bytes(bitmap)) for block, bitmap in sorted(self._bitmaps.items()))

    def full_blocks(self) -> SeqRanges:
        """Return the ranges of completely dead blocks."""
        return self._full

    def load_bitmap(self, block: int, bitmap: bytes) -> None:
        """Add a saved bitmap."""
        self._bitmaps[block] = bytearray(bitmap)

    def _mark(self, block: int, first: int, end: int) -> None:
        """Set bits of one block."""
        if block in self._full:
            return
        bitmap = self._bitmaps.get(block)
        if bitmap is None:
            bitmap = self._bitmaps[block] = bytearray(_BITMAP_BYTES)
            if block == self.floor // BLOCK:
                _set(bitmap, block * BLOCK, self.floor)
        _set(bitmap, first, end)
        if bitmap == _ALL_DEAD:
            del self._bitmaps[block]
            self._full.add(block, block + 1)

    def _raise_floor(self, floor: int) -> None:
        """Raise the floor, and further over dead numbers that follow."""
        old = self.floor // BLOCK
        while True:
            block = floor // BLOCK
            bitmap = self._bitmaps.get(block)
            if bitmap is not None:
                # The number of consecutive ones from the floor on.
                whole = int.from_bytes(bitmap, "little") >> (floor % BLOCK)
                run = (~whole & whole + 1).bit_length() - 1
                floor += run
                if not run or floor % BLOCK:
                    break
            else:
                self._full.drop_below(block)
                if not self._full or self._full.first()[0] != block:
                    break
                floor = self._full.first()[1] * BLOCK
        self.floor = floor
        if block != old:
            for gone in [each for each in self._bitmaps if each < block]:
                del self._bitmaps[gone]


def _set(bitmap: bytearray, first: int, end: int) -> None:
    """Set the bits of numbers of one block."""
    if end - first == 1:
        bitmap[first % BLOCK >> 3] |= 1 << (first & 7)
    elif end > first:
        whole = int.from_bytes(bitmap, "little") | ((1 << (end - first)) - 1) << (first % BLOCK)
        bitmap[:] = whole.to_bytes(_BITMAP_BYTES, "little")


def _changes(bitmap: bytearray, at: int, end: int) -> Iterator[tuple[bool, int]]:
    """Iterate over the changes between dead and live in a bitmap as (is_dead, bit), beginning with bit `at`."""
    whole = int.from_bytes(bitmap, "little")
    is_dead = bool(whole >> at & 1)
    yield is_dead, at
    rest = whole >> at
    run = ((~rest & rest + 1) if is_dead else (rest & -rest)).bit_length() - 1
    if run < 0 or at + run >= end:
        return
    at += run
    yield not is_dead, at
    # If there are more changes there are usually many, and searching a string is fast.
    text = f"{whole:0{BLOCK}b}"[::-1]
    sought = "1" if is_dead else "0"
    while (at := text.find(sought, at, end)) >= 0:
        yield sought == "1", at
        sought = "0" if sought == "1" else "1"
