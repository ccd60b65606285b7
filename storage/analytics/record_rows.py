"""The records of a segment file as numpy arrays: where they are, which of them count, and what their heads say."""

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
#: Head, two empty names, and a content header without properties.
_RECORD_LEAST: Final = RECORD_BYTES + 2 + 14
#: The longest index, and the footer.
_TAIL_BYTES: Final = 4096 + FOOTER_BYTES


class RowLimits(NamedTuple):
    """Which messages are wanted, beside what lived at the cut.

    Attributes:
        first_seq, last_seq: Their numbers, both inside.
        first_time, last_time: When they came, in microseconds, both inside.
    """

    first_seq: int = 0
    last_seq: int = (1 << 63) - 1
    first_time: int = -(1 << 63)
    last_time: int = (1 << 63) - 1


class Gap(NamedTuple):
    """A place in a file that has held records and holds none.

    Attributes:
        before, behind: The numbers of the records at both sides of it.
        start, end: Where it is, in bytes.
    """

    before: int
    behind: int
    start: int
    end: int


class Found(NamedTuple):
    """The records of a file.

    Attributes:
        positions: Where they begin.
        gaps: Places between and behind them that are damaged.
    """

    positions: Positions
    gaps: list[Gap]


class RowDamage(NamedTuple):
    """What could not be read.

    Attributes:
        records: How many were wanted.
        at: Where the first of them was, in bytes.
    """

    records: int = 0
    at: int = 0


@dataclass(slots=True)
class RecordRows:
    """Records of one file that are wanted, in order.

    Attributes:
        octets: The file.
        bytes8: The same as numbers.
        words32, words64: The same, little endian.
        at: Where the records begin.
        seq, arrived: As in their heads.
        records: How many records the file has of until the cut.
        damage: Messages that were wanted and are damaged.
    """

    octets: bytes
    bytes8: npt.NDArray[np.uint8]
    words32: npt.NDArray[np.uint32]
    words64: npt.NDArray[np.uint64]
    at: Positions
    seq: npt.NDArray[np.uint64]
    arrived: npt.NDArray[np.int64]
    records: int
    damage: RowDamage

    @property
    def body_len(self) -> Positions:
        """Lengths of the bodies."""
        return self.words32.take((self.at >> 2) + 3).astype(np.int64)

    @property
    def expires(self) -> npt.NDArray[np.int64]:
        """When they expire; 0 for never."""
        return self.words64.take((self.at >> 3) + 4).astype(np.int64)

    @property
    def props_len(self) -> Positions:
        """Lengths of the content-header payloads."""
        return self.words32.take((self.at >> 2) + 10).astype(np.int64)

    @property
    def flags(self) -> npt.NDArray[np.uint32]:
        """Their flags."""
        return self.words32.take((self.at >> 2) + 11) & np.uint32(0xFF)

    @property
    def route_at(self) -> Positions:
        """Where exchange and routing key begin."""
        return self.at + RECORD_BYTES

    @property
    def props_at(self) -> Positions:
        """Where the content-header payloads begin."""
        return self.route_at + (self.words32.take((self.at >> 2) + 11) >> np.uint32(16)).astype(np.int64)

    @property
    def body_at(self) -> Positions:
        """Where the bodies begin."""
        return self.props_at + self.props_len


def find_records(octets: bytes, view: SegmentView) -> Found:
    """Find all whole records of a segment file.

    A sealed file whose checksum is right is walked along its index, 64 steps for all of it; any other is checked
    record by record.
    """
    tail = unpack_footer(octets[-_TAIL_BYTES:])
    if tail is not None:
        footer, index = tail
        starts = np.frombuffer(index, "<u4").astype(np.int64)
        whole = len(starts) == -(-footer.records // INDEX_STEP)
        if whole and crc32(memoryview(octets)[: footer.data_len]) == footer.data_crc:
            return Found(_walk(octets, starts, footer.records), [])
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
    return Found(np.array(found.offsets, np.int64), gaps)


def select_rows(octets: bytes, view: SegmentView, cut: int, limits: RowLimits, live: array[int] | None) -> RecordRows:
    """Find the records of a segment file that are wanted.

    Args:
        octets: The file.
        view: What the snapshot says of it.
        cut: Only messages that came until then; microseconds.
        limits: Only those inside.
        live: Only those in these ranges, see SegmentView.live; None for dead ones as well.
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
        keep &= inside(seq, live)
    damage = _damage(found, view, limits, live)
    if not keep.all():
        at, seq, arrived = at[keep], seq[keep], arrived[keep]
    return RecordRows(octets, np.frombuffer(octets, np.uint8), words32, words64, at, seq, arrived, records, damage)


def inside(numbers: npt.NDArray[np.uint64], bounds: array[int]) -> npt.NDArray[np.bool_]:
    """Which numbers are in ranges.

    Args:
        numbers: Ascending.
        bounds: Ascending: first, end, first, end, and so on.
    """
    if len(bounds) == 2 and len(numbers) and bounds[0] <= int(numbers[0]) and int(numbers[-1]) < bounds[1]:
        return np.ones(len(numbers), np.bool_)
    if not len(bounds):
        return np.zeros(len(numbers), np.bool_)
    places = np.searchsorted(np.frombuffer(bounds, np.uint64), numbers, side="right")
    return (places & 1).astype(np.bool_)


def _walk(octets: bytes, starts: Positions, records: int) -> Positions:
    """From each indexed record along the lengths of those behind it, all at the same time."""
    words = np.frombuffer(octets, "<u4", len(octets) >> 2)
    steps = np.empty((INDEX_STEP, len(starts)), np.int64)
    at = starts
    # Behind the last record there is something else; where it leads to does not matter.
    last = (len(words) - 3) << 2
    for step in steps:
        step[:] = at
        at = np.minimum(at + words[(at >> 2) + 2], last)
    return steps.T.ravel()[:records]


def _damage(found: Found, view: SegmentView, limits: RowLimits, live: array[int] | None) -> RowDamage:
    """How many wanted messages were in the gaps.

    What has been left out of a file was dead, and so is not among those that are wanted. Where numbers may also be in
    a file of the other stream, there were no more than the file has lost, and than there was room for.
    """
    wanted: list[Gap] = []
    count = 0
    for gap in found.gaps:
        first, end = max(gap.before + 1, limits.first_seq), min(gap.behind, limits.last_seq + 1)
        within = max(0, end - first) if live is None else _overlap(live, first, end)
        if within:
            count += min(within, max(1, (gap.end - gap.start) // _RECORD_LEAST))
            wanted.append(gap)
    if view.sealed:
        count = min(count, view.records - len(found.positions))
    return RowDamage(count, wanted[0].start) if count > 0 else RowDamage()


def _overlap(bounds: array[int], first: int, end: int) -> int:
    """How many numbers of ranges, see inside(), are from `first` to before `end`."""
    return sum(
        max(0, min(stop, end) - max(start, first)) for start, stop in zip(bounds[::2], bounds[1::2], strict=True)
    )
