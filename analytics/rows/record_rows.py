"""Records of a segment file as numpy arrays: locates them, selects the live ones and reads their headers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from leveret.analytics.rows.found_records import FoundRecords, Gap, find_records
from leveret.storage.format import RECORD_BYTES
from leveret.storage.snapshots.segments import SegmentView

Positions: TypeAlias = npt.NDArray[np.int64]
#: Minimum size of a record in bytes: header, two empty names, and a content header without properties.
_RECORD_LEAST: Final = RECORD_BYTES + 2 + 14


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
        found: Number of records in the file, selected or not.
        records: Number of those up to the cut.
        damage: Selected messages that are damaged.
    """

    octets: bytes
    bytes8: npt.NDArray[np.uint8]
    words32: npt.NDArray[np.uint32]
    words64: npt.NDArray[np.uint64]
    at: Positions
    found: int
    records: int
    damage: RowDamage

    @property
    def later(self) -> int:
        """Number of records after the cut."""
        return self.found - self.records

    @property
    def seq(self) -> npt.NDArray[np.uint64]:
        """Sequence numbers."""
        return self.words64.take((self.at >> 3) + 2)

    @property
    def arrived(self) -> npt.NDArray[np.int64]:
        """Times of publishing, in microseconds since 1970."""
        return self.words64.take((self.at >> 3) + 3).view(np.int64)

    @property
    def body_len(self) -> Positions:
        """Lengths of the bodies."""
        return self.words32.take((self.at >> 2) + 3).astype(np.int64)

    @property
    def expires(self) -> npt.NDArray[np.int64]:
        """Expiry times in microseconds since 1970; 0 for never."""
        return self.words64.take((self.at >> 3) + 4).view(np.int64)

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
    at = found.positions
    rows = RecordRows(
        octets,
        np.frombuffer(octets, np.uint8),
        np.frombuffer(octets, "<u4", len(octets) >> 2),
        np.frombuffer(octets, "<u8", len(octets) >> 3),
        at,
        len(at),
        len(at),
        _damage(found, view, limits, live),
    )
    if len(at):
        there = _range_of(rows, found)
        if there.last_time > cut:
            rows.records = int((rows.arrived <= cut).sum())
        limits = limits._replace(last_time=min(cut, limits.last_time))
        masks = list(_exclusions(rows, there, limits, live))
        if masks:
            rows.at = at[np.logical_and.reduce(masks)]
    return rows


def _range_of(rows: RecordRows, found: FoundRecords) -> RowLimits:
    """Return the range of all records of a file: of a sealed one without reading them."""
    footer = found.footer
    if footer is not None:
        return RowLimits(footer.first_seq, footer.last_seq, footer.min_arrived, footer.max_arrived)
    arrived = rows.arrived
    first, last = rows.seq[[0, -1]].tolist()
    return RowLimits(first, last, int(arrived.min()), int(arrived.max()))


def _exclusions(
    rows: RecordRows, there: RowLimits, limits: RowLimits, live: array[int] | None
) -> Iterator[npt.NDArray[np.bool_]]:
    """Yield for each condition that excludes some records which ones it leaves."""
    if there.last_time > limits.last_time:
        yield rows.arrived <= limits.last_time
    if there.first_time < limits.first_time:
        yield rows.arrived >= limits.first_time
    if there.first_seq < limits.first_seq:
        yield rows.seq >= limits.first_seq
    if there.last_seq > limits.last_seq:
        yield rows.seq <= limits.last_seq
    if live is not None and not (len(live) == 2 and live[0] <= there.first_seq and there.last_seq < live[1]):
        yield in_ranges(rows.seq, live)


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
