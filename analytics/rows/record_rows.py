"""Records of a segment file as numpy arrays: locates them, selects the live ones and reads their headers."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from leveret.analytics.selection import RowLimits
from leveret.storage.format import (
    EXTENDED,
    FOOTER_BYTES,
    INDEX_STEP,
    RECORD_BYTES,
    RECORD_MAGIC,
    SEGMENT_HEADER_BYTES,
    Footer,
    scan,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.snapshots.segments import SegmentView

try:
    # It takes a quarter of the time of zlib's; Spark's workers may lack it.
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

_MAGIC: Final = np.frombuffer(RECORD_MAGIC, "<u4")[0]
#: Fewer records are checked one by one in less time: what checks them at once takes long to load.
LEAST: Final = 1000
_ONES: Final = 0xFFFFFFFF
#: Bytes that bring CRC-32 from the value 0xFFFFFFFF to 0, as a little-endian number.
_TO_ZERO: Final = 0x9226F562


class RecordRun(NamedTuple):
    """Intact records at the beginning of a file, without anything between them.

    Attributes:
        positions: Their offsets in bytes.
        last_seq: Sequence number of the last one; the number before the first possible one if there are none.
        end: Offset of what follows the last one.
    """

    positions: npt.NDArray[np.int64]
    last_seq: int
    end: int


def intact_run(octets: bytes, salt: int, first_seq: int) -> RecordRun:
    """Find intact records at the beginning of a segment file, as segments.scan.scan() would.

    Where one is damaged, or a body looks like a record, there may be more of them: then those at the end or all of them
    are left to scan().
    """
    none = RecordRun(np.empty(0, np.int64), first_seq - 1, SEGMENT_HEADER_BYTES)
    words32 = np.frombuffer(octets, "<u4", len(octets) >> 2)
    at = SEGMENT_HEADER_BYTES + (np.flatnonzero(words32[SEGMENT_HEADER_BYTES >> 2 :: 2] == _MAGIC) << 3)
    at = at[at <= len(octets) - RECORD_BYTES]
    if len(at) < LEAST:
        return none
    seq = np.frombuffer(octets, "<u8", len(octets) >> 3)[(at >> 3) + 2]
    stops = at + words32[(at >> 2) + 2]
    ends = _ends(octets, words32, at, stops)
    whole = (stops & 7 == 0) & (stops <= len(octets)) & (ends <= stops)
    whole[0] &= at[0] == SEGMENT_HEADER_BYTES and int(seq[0]) >= first_seq
    whole[1:] &= (at[1:] == stops[:-1]) & (seq[1:] > seq[:-1])
    count = len(at) if whole.all() else int(np.argmin(whole))
    if count < LEAST or not _sums_are_right(octets, at[:count], ends[:count], salt):
        return none
    return RecordRun(at[:count], int(seq[count - 1]), int(stops[count - 1]))


def _ends(
    octets: bytes, words32: npt.NDArray[np.uint32], at: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return where the payloads of records end, which padding follows; of a record that is none, anything."""
    words = at >> 2
    flags_and_route = words32[words + 11]
    ends: npt.NDArray[np.int64] = at + RECORD_BYTES + words32[words + 3] + words32[words + 10] + (flags_and_route >> 16)
    extended = np.flatnonzero((flags_and_route & EXTENDED != 0) & (ends + 4 <= stops) & (stops <= len(octets)))
    ends[extended] += 4 + numbers_at(octets, ends[extended], "<u4").astype(np.int64)
    return ends


def numbers_at(octets: bytes | npt.NDArray[np.uint8], places: Positions, form: str) -> npt.NDArray[Any]:
    """Return what begins at some places, which need not be multiples of its size.

    Args:
        form: How numpy calls its type.
    """
    kind = np.dtype(form)
    everywhere: npt.NDArray[Any] = np.ndarray((len(octets) - kind.itemsize + 1,), kind, octets, 0, (1,))
    return everywhere[places]


def _sums_are_right(octets: bytes, at: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], salt: int) -> bool:
    """Return whether the checksums of all records are right: with a probability of 2**-32 if one is not."""
    # Imported late, since it takes long to load.
    import pyarrow as pa

    # What checksum and salt lead to, and from there to zero.
    behind = crc32(bytes(4), salt) ^ _ONES ^ _TO_ZERO
    source = octets + behind.to_bytes(4, "little")
    count = len(at)
    bounds = np.empty(4 * count + 2, np.int32)
    of_record = bounds[:-2].reshape(count, 4)
    of_record[:, 0] = at + 4
    of_record[:, 1] = at + 8
    of_record[:, 2] = at + RECORD_BYTES
    of_record[:, 3] = ends
    bounds[-2:] = len(octets), len(source)
    pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(source)])
    first = np.arange(0, 4 * count, 4, dtype=np.int32)
    order = np.column_stack((first + 2, first + 1, first, np.full(count, 4 * count, np.int32)))
    stream: Any = pieces.take(pa.array(order.ravel()))
    size = int((ends - at).sum())
    return crc32(memoryview(stream.buffers()[2])[:size]) == 0


#: Size of the longest index and the footer.
_TAIL_BYTES: Final = 4096 + FOOTER_BYTES


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
        footer: Summary of the file if it is sealed and all of it is intact, else None.
    """

    positions: npt.NDArray[np.int64]
    gaps: list[Gap]
    footer: Footer | None


def find_records(octets: bytes, view: SegmentView) -> FoundRecords:
    """Find all intact records of a segment file.

    In a sealed file with a correct checksum they are found from the index, in 64 vectorized steps. Otherwise each
    record is checked, those ahead of any damage all at once.
    """
    tail = unpack_footer(octets[-_TAIL_BYTES:])
    if tail is not None:
        footer, index = tail
        starts = np.frombuffer(index, "<u4").astype(np.int64)
        whole = len(starts) == -(-footer.records // INDEX_STEP)
        if whole and crc32(memoryview(octets)[: footer.data_len]) == footer.data_crc:
            return FoundRecords(_follow_index(octets, starts, footer.records), [], footer)
    header = unpack_segment_header(octets[:SEGMENT_HEADER_BYTES])
    salt = header.salt if header is not None else view.salt
    run = intact_run(octets, salt, view.first_seq)
    found = scan(octets, salt, run.last_seq + 1, run.end)
    places = [(each.seq, at, at + each.rec_len) for each, at in zip(found.headers, found.offsets, strict=True)]
    if tail is not None:
        places.append((tail[0].last_seq + 1, tail[0].data_len, 0))
    elif view.sealed:
        places.append((view.last_seq + 1, view.data_len, 0))
    gaps: list[Gap] = []
    before, end = run.last_seq, run.end
    for seq, at, following in places:
        if at > end and seq > before + 1:
            gaps.append(Gap(before, seq, end, at))
        before, end = seq, following
    return FoundRecords(np.concatenate((run.positions, np.array(found.offsets, np.int64))), gaps, None)


def _follow_index(octets: bytes, starts: npt.NDArray[np.int64], records: int) -> npt.NDArray[np.int64]:
    """Return the offsets of all records: follow the record lengths from all indexed records in parallel."""
    lengths = np.frombuffer(octets, "<u4", len(octets) >> 2)[2:]
    steps = np.empty((INDEX_STEP, len(starts)), np.int64)
    steps[0] = starts
    for at, following in pairwise(steps):
        # Positions after the last record are arbitrary; they are kept in bounds here and cut off below.
        np.add(at, lengths.take(at >> 2, mode="clip"), out=following)
    return steps.T.ravel()[:records]


Positions: TypeAlias = npt.NDArray[np.int64]
#: Minimum size of a record in bytes: header, two empty names, and a content header without properties.
_RECORD_LEAST: Final = RECORD_BYTES + 2 + 14


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

    def pieces(self, most: int) -> Iterator[RecordRows]:
        """Yield the same records, `most` at once."""
        for start in range(0, len(self.at), most):
            yield replace(self, at=self.at[start : start + most])

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
        cut: Time at which the snapshot ends, in microseconds since 1970; later messages are omitted.
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
