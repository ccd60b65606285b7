"""Finds the records of a segment file by their checksums only."""

from __future__ import annotations

from typing import NamedTuple

from leveret.storage.format import RECORD_MAGIC, SEGMENT_HEADER_BYTES, RecordHeader, check_record


class Scan(NamedTuple):
    """Records found in a segment file.

    Attributes:
        headers: Headers of the valid records in order.
        offsets: Their offsets.
        damaged: Sequence numbers before and after each damaged span.
        end: End offset of the last valid record; `start` if there is none.
        places: Start and end offset of each damaged span.
    """

    headers: list[RecordHeader]
    offsets: list[int]
    damaged: list[tuple[int, int]]
    end: int
    places: list[tuple[int, int]]


def scan(octets: bytes, salt: int, first_seq: int, start: int = SEGMENT_HEADER_BYTES) -> Scan:
    """Find all valid records of a segment file, or of the rest of one.

    Args:
        octets: Contents of the file.
        salt: Checksum salt of the queue.
        first_seq: The lowest possible sequence number.
        start: Offset at which the first record is expected; what is before it is left out.
    """
    headers: list[RecordHeader] = []
    offsets: list[int] = []
    damaged: list[tuple[int, int]] = []
    places: list[tuple[int, int]] = []
    at = end = start
    last = first_seq - 1
    while at >= 0:
        header = check_record(octets, at, salt)
        if header is None or header.seq <= last:
            at = _resync(octets, at + 1, salt, last)
            continue
        if at > end:
            damaged.append((last, header.seq))
            places.append((end, at))
        headers.append(header)
        offsets.append(at)
        last = header.seq
        at = end = at + header.rec_len
    return Scan(headers, offsets, damaged, end, places)


def _resync(octets: bytes, at: int, salt: int, last: int) -> int:
    """Return the offset of the next valid record with a number above `last`; -1 if there is none."""
    while (at := octets.find(RECORD_MAGIC, at)) >= 0:
        if at % 8 == 0:
            header = check_record(octets, at, salt)
            if header is not None and header.seq > last:
                break
        at += 1
    return at
