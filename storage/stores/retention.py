"""The units in which the retention of a stream removes messages: segments of the size that the stream was given."""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.storage.segments.segment_chain import SegmentChain

#: Higher than all sequence numbers.
_NO_SEQ: Final = 1 << 64


class _Unit:
    """Consecutive complete files that are kept or removed together.

    Attributes:
        first_seq: Number of the first message.
        files: Number of the files.
        size: Their size in bytes.
        latest: Arrival of the last message in microseconds since 1970.
    """

    __slots__ = ("files", "first_seq", "latest", "size")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.files = self.size = self.latest = 0


class RetentionUnits:
    """Groups the files of a stream, from the oldest on, into units of at least the size of its segments.

    The files may be smaller than that. Which files belong together follows from their sizes alone, so it is the same
    after a restart.

    Args:
        unit_bytes: The size in bytes.
    """

    __slots__ = ("_next", "_size", "_unit_bytes", "_units")

    def __init__(self, unit_bytes: int) -> None:
        self._unit_bytes = unit_bytes
        self._units: deque[_Unit] = deque()
        #: Size of all units.
        self._size = 0
        #: All files before this number are in a unit.
        self._next = 0

    def __len__(self) -> int:
        return len(self._units)

    def end_of_excess(
        self, chain: SegmentChain, most_bytes: int | None, oldest: int | None, most_files: int = _NO_SEQ
    ) -> int:
        """Return the number before which messages are to be removed; 0 if none are.

        The newest unit stays, and so does what is being written.

        Args:
            chain: The files.
            most_bytes: Size in bytes that may be kept; None for no limit.
            oldest: Units whose last message arrived before this time, in microseconds since 1970, are removed; None
                for no limit.
            most_files: Stop after about this many files.
        """
        self._update(chain)
        units, active = self._units, chain.active
        size = self._size + (0 if active is None else active.size)
        # The file that is being written continues the last unit, unless that is full.
        is_new = active is not None and (not units or units[-1].size >= self._unit_bytes)
        at = files = 0
        end = len(units) if is_new else len(units) - 1
        for unit in units:
            is_old = oldest is not None and unit.latest < oldest
            if at >= end or files >= most_files or not (is_old or (most_bytes is not None and size > most_bytes)):
                break
            size -= unit.size
            files += unit.files
            at += 1
        if not at:
            return 0
        return units[at].first_seq if at < len(units) else self._next

    def drop_below(self, seq: int) -> None:
        """Forget the units whose messages have been removed."""
        while self._units and self._units[0].first_seq < seq:
            self._size -= self._units.popleft().size

    def _update(self, chain: SegmentChain) -> None:
        """Add the files that are complete."""
        units = self._units
        for segment in chain.overlapping(self._next, _NO_SEQ):
            if segment.first_seq < self._next:
                continue
            if segment is chain.active:
                break
            if not units or units[-1].size >= self._unit_bytes:
                units.append(_Unit(segment.first_seq))
            units[-1].files += 1
            units[-1].size += segment.size
            units[-1].latest = segment.max_arrived
            self._size += segment.size
            self._next = segment.last_seq + 1


def file_bytes(unit_bytes: int, most: int) -> int:
    """Return the size of the files of a stream, so that units consist of files of about the same size.

    Args:
        unit_bytes: Size of a unit.
        most: Maximum size of a file.
    """
    files = -(-unit_bytes // most)
    return -(-unit_bytes // files) if files else 0
