"""Finds the intact records of a segment file, and where damaged ones were."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from leveret.analytics.rows.record_run import intact_run
from leveret.storage.format import (
    FOOTER_BYTES,
    INDEX_STEP,
    SEGMENT_HEADER_BYTES,
    Footer,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.segments.scan import scan
from leveret.storage.snapshots.segments import SegmentView

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
