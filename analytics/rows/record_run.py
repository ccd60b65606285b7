"""Checks the records at the beginning of a file without an index, all at once.

A record's checksum is of its payload, then its header. So the stream of payload, header and checksum of one record
brings CRC-32 from its initial value to a value that depends on the salt only, and four constant bytes from there to the
initial value. The stream of many records, with these bytes behind each, has the checksum 0 if all of them are right.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from leveret.storage.format import EXTENDED, RECORD_BYTES, RECORD_MAGIC, SEGMENT_HEADER_BYTES

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

    Args:
        octets: The file.
        salt: Checksum salt of the queue.
        first_seq: The lowest possible sequence number.
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
    start = ends[extended]
    bytes8 = np.frombuffer(octets, np.uint8)
    for byte in range(4):
        ends[extended] += bytes8[start + byte].astype(np.int64) << 8 * byte
    ends[extended] += 4
    return ends


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
