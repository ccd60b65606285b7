"""What a segment file holds, found out without believing anything but checksums."""

from __future__ import annotations

from typing import NamedTuple

from leveret.storage.format import RECORD_MAGIC, SEGMENT_HEADER_BYTES, RecordHeader, check_record


class Scan(NamedTuple):
    """What a segment file holds.

    Attributes:
        headers: Of the whole records, in order.
        offsets: Where they begin.
        damaged: Sequence numbers before and behind each place that holds no whole record.
        end: Where the last whole record ends.
    """

    headers: list[RecordHeader]
    offsets: list[int]
    damaged: list[tuple[int, int]]
    end: int


def scan(octets: bytes, salt: int, first_seq: int) -> Scan:
    """Find all whole records of a segment file.

    Args:
        octets: All of the file.
        salt: The queue's.
        first_seq: The lowest number that may be in it.
    """
    headers: list[RecordHeader] = []
    offsets: list[int] = []
    damaged: list[tuple[int, int]] = []
    at = end = SEGMENT_HEADER_BYTES
    last = first_seq - 1
    while at >= 0:
        header = check_record(octets, at, salt)
        if header is None or header.seq <= last:
            at = _resync(octets, at + 1, salt, last)
            continue
        if at > end:
            damaged.append((last, header.seq))
        headers.append(header)
        offsets.append(at)
        last = header.seq
        at = end = at + header.rec_len
    return Scan(headers, offsets, damaged, end)


def _resync(octets: bytes, at: int, salt: int, last: int) -> int:
    """Return where the next whole record begins whose number is higher than `last`; -1 if there is none."""
    while (at := octets.find(RECORD_MAGIC, at)) >= 0:
        if at % 8 == 0:
            header = check_record(octets, at, salt)
            if header is not None and header.seq > last:
                break
        at += 1
    return at
