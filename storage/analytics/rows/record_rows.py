"""Records of a segment file as numpy arrays: locates them, selects the live ones and reads their headers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from leveret.storage.format import (
    FOOTER_BYTES,
    INDEX_STEP,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.segments.scan import scan
from leveret.storage.snapshots.segments import SegmentView

Positions: TypeAlias = npt.NDArray[np.int64]
#: Minimum size of a record in bytes: header, two empty names, and a content header without properties.
_RECORD_LEAST: Final = RECORD_BYTES + 2 + 14
#: Size of the longest index and the footer.
_TAIL_BYTES: Final = 4096 + FOOTER_BYTES


class RowLimits(NamedTuple):
    """Limits on the selected messages.

    Attributes:
        first_seq, last_seq: Range of sequence numbers, inclusive.
        first_time, last_time: Range of times in microseconds since 1970, inclusive.
    """

    first_seq: int = 0
    last_seq: int = (1 << 63) - 1
    first_time: int = -(1 << 63)
    last_time: int = (1 << 63) - 1


class Gap(NamedTuple):
    """A range of a file whose records are damaged.

    Attributes:
        before, after: Sequence numbers of the records before and after the gap.
        start, end: Offsets in bytes.
    """

    before: int
    after: int
    start: int
    end: int


class FoundRecords(NamedTuple):
    """The intact records of a file.

    Attributes:
        positions: Offsets of the records in bytes.
        gaps: Damaged ranges between and after them.
    """

    positions: Positions
    gaps: list[Gap]


class RowDamage(NamedTuple):
    """Selected records that could not be read.

    Attributes:
        records: Number of records.
        at: Offset of the first one in bytes.
    """

    records: int = 0
    at: int = 0


@dataclass(slots=True)
class RecordRows:
    """Selected records of one file, in order.

    Attributes:
        octets: The file.
        bytes8: The file as an array of bytes.
        words32, words64: The file as arrays of little-endian 32-bit and 64-bit integers.
        at: Offsets of the records in bytes.
        seq: Sequence numbers.
        arrived: Times of publishing, in microseconds since 1970.
        records: Number of records in the file up to the cut, selected or not.
        later: Number of records after the cut.
        damage: Selected messages that are damaged.
    """

    octets: bytes
    bytes8: npt.NDArray[np.uint8]
    words32: npt.NDArray[np.uint32]
    words64: npt.NDArray[np.uint64]
    at: Positions
    seq: npt.NDArray[np.uint64]
    arrived: npt.NDArray[np.int64]
    records: int
    later: int
    damage: RowDamage

    @property
    def body_len(self) -> Positions:
        """Lengths of the bodies."""
        return self.words32.take((self.at >> 2) + 3).astype(np.int64)

    @property
    def expires(self) -> npt.NDArray[np.int64]:
        """Expiry times in microseconds since 1970; 0 for never."""
        return self.words64.take((self.at >> 3) + 4).astype(np.int64)

    @property
    def props_len(self) -> Positions:
        """Lengths of the content-header payloads."""
        return self.words32.take((self.at >> 2) + 10).astype(np.int64)

    @property
    def flags(self) -> npt.NDArray[np.uint32]:
        """Flags of the records."""
        return self.words32.take((self.at >> 2) + 11) & np.uint32(0xFF)

    @property
    def route_at(self) -> Positions:
        """Offsets of exchange and routing key."""
        return self.at + RECORD_BYTES

    @property
    def props_at(self) -> Positions:
        """Offsets of the content-header payloads."""
        return self.route_at + (self.words32.take((self.at >> 2) + 11) >> np.uint32(16)).astype(np.int64)

    @property
    def body_at(self) -> Positions:
        """Offsets of the bodies."""
        return self.props_at + self.props_len


def find_records(octets: bytes, view: SegmentView) -> FoundRecords:
    """Find all intact records of a segment file.

    In a sealed file with a correct checksum they are found from the index, in 64 vectorized steps. Otherwise each
    record is checked.
    """
    tail = unpack_footer(octets[-_TAIL_BYTES:])
    if tail is not None:
        footer, index = tail
        starts = np.frombuffer(index, "<u4").astype(np.int64)
        whole = len(starts) == -(-footer.records // INDEX_STEP)
        if whole and crc32(memoryview(octets)[: footer.data_len]) == footer.data_crc:
            return FoundRecords(_follow_index(octets, starts, footer.records), [])
    header = unpack_segment_header(octets[:SEGMENT_HEADER_BYTES])
    found = scan(octets, header.salt if header is not None else view.salt, view.first_seq)
    places = [(each.seq, at, at + each.rec_len) for each, at in zip(found.headers, found.offsets, strict=True)]
    if tail is not None:
        places.append((tail[0].last_seq + 1, tail[0].data_len, 0))
    elif view.sealed:
        places.append((view.last_seq + 1, view.data_len, 0))
    gaps: list[Gap] = []
    before, end = view.first_seq - 1, SEGMENT_HEADER_BYTES
    for seq, at, following in places:
        if at > end and seq > before + 1:
            gaps.append(Gap(before, seq, end, at))
        before, end = seq, following
    return FoundRecords(np.array(found.offsets, np.int64), gaps)


def select_rows(octets: bytes, view: SegmentView, cut: int, limits: RowLimits, live: array[int] | None) -> RecordRows:
    """Select records of a segment file.

    Args:
        octets: The file.
        view: The segment in the snapshot.
        cut: Time at which the snapshot ends, in microseconds since 1970; later messages are omitted.
        limits: Limits on sequence numbers and times.
        live: Ranges of sequence numbers that are not settled, see SegmentView.live; None to include settled messages.
    """
    found = find_records(octets, view)
    words32 = np.frombuffer(octets, "<u4", len(octets) >> 2)
    words64 = np.frombuffer(octets, "<u8", len(octets) >> 3)
    at = found.positions
    seq = words64[(at >> 3) + 2]
    arrived = words64[(at >> 3) + 3].view(np.int64)
    records = int((arrived <= cut).sum())
    keep = arrived <= min(cut, limits.last_time)
    if limits.first_time > 0:
        keep &= arrived >= limits.first_time
    if limits.first_seq > view.first_seq:
        keep &= seq >= limits.first_seq
    if limits.last_seq < view.last_seq:
        keep &= seq <= limits.last_seq
    if live is not None:
        keep &= in_ranges(seq, live)
    damage = _damage(found, view, limits, live)
    if not keep.all():
        at, seq, arrived = at[keep], seq[keep], arrived[keep]
    later = len(found.positions) - records
    return RecordRows(
        octets, np.frombuffer(octets, np.uint8), words32, words64, at, seq, arrived, records, later, damage
    )


def in_ranges(numbers: npt.NDArray[np.uint64], bounds: array[int]) -> npt.NDArray[np.bool_]:
    """Return for each number whether it is in one of the ranges.

    Args:
        numbers: Ascending numbers.
        bounds: Ascending bounds of the ranges: first, end (exclusive), first, end, and so on.
    """
    if len(bounds) == 2 and len(numbers) and bounds[0] <= int(numbers[0]) and int(numbers[-1]) < bounds[1]:
        return np.ones(len(numbers), np.bool_)
    if not len(bounds):
        return np.zeros(len(numbers), np.bool_)
    places = np.searchsorted(np.frombuffer(bounds, np.uint64), numbers, side="right")
    return (places & 1).astype(np.bool_)


def _follow_index(octets: bytes, starts: Positions, records: int) -> Positions:
    """Return the offsets of all records: follow the record lengths from all indexed records in parallel."""
    words = np.frombuffer(octets, "<u4", len(octets) >> 2)
    steps = np.empty((INDEX_STEP, len(starts)), np.int64)
    at = starts
    # Positions after the last record are arbitrary; they are kept in bounds here and cut off below.
    last = (len(words) - 3) << 2
    for step in steps:
        step[:] = at
        at = np.minimum(at + words[(at >> 2) + 2], last)
    return steps.T.ravel()[:records]


def _damage(found: FoundRecords, view: SegmentView, limits: RowLimits, live: array[int] | None) -> RowDamage:
    """Count the selected messages that were in the gaps.

    Records that compaction removed were settled, so they are not selected. Some numbers in a gap may be in a file of
    the other stream, so the count is limited by the size of the gap and by the number of records that the file lost.
    """
    wanted: list[Gap] = []
    count = 0
    for gap in found.gaps:
        first, end = max(gap.before + 1, limits.first_seq), min(gap.after, limits.last_seq + 1)
        within = max(0, end - first) if live is None else _overlap(live, first, end)
        if within:
            count += min(within, max(1, (gap.end - gap.start) // _RECORD_LEAST))
            wanted.append(gap)
    if view.sealed:
        count = min(count, view.records - len(found.positions))
    return RowDamage(count, wanted[0].start) if count > 0 else RowDamage()


def _overlap(bounds: array[int], first: int, end: int) -> int:
    """Count the numbers of ranges, see in_ranges(), that are at least `first` and below `end`."""
    return sum(
        max(0, min(stop, end) - max(start, first)) for start, stop in zip(bounds[::2], bounds[1::2], strict=True)
    )
