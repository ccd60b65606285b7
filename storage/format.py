r"""The byte layouts of the files in the data directory.

The layout of the event log is in event_format.py.

All numbers are little endian; bytes of AMQP are stored as on the wire. Times are microseconds since 1970.
`crc` is zlib's CRC-32.

Segment file: header, records, and if sealed an index and a footer.

    header, 64 bytes
     0 8s magic "LVTSEG\1\n"  | 8 u16 header_len = 64 | 10 u16 format = 1 | 12 u8 checksum = 1 (CRC-32)
    13 u8 priority | 14 u8 stream (0 durable, 1 spill) | 15 u8 0 | 16 u32 qid | 20 u32 generation
    24 u64 first_seq | 32 i64 created | 40 16s store id | 56 u32 salt of the queue | 60 u32 crc of 0..59

    record, 48 bytes and a payload, padded with zeros to a multiple of 8; starts at a multiple of 8
     0 u32 magic "LVT1" | 4 u32 crc(8..47, crc(payload)) XOR salt | 8 u32 rec_len with padding | 12 u32 body_len
    16 u64 seq | 24 i64 arrived | 32 i64 expires, 0 for never | 40 u32 props_len | 44 u8 flags | 45 u8 priority
    46 u16 route_len | 48 payload: exchange and routing key as short strings, content-header payload, body, extension
    flags: 1 persistent, 2 moved by compaction, 4 was redelivered, 8 dead-lettered into this queue, 16 and 32 reserved,
    64 an extension follows the body

    extension: u32 length of all that follows, then items: u8 tag | u32 length | bytes
    tag 1: expiration property in milliseconds, u64; tag 2: one routing key of the BCC header; tag 3: delivery count,
    u64; tag 4: expiry of a message that waits for its retry until `expires`, i64. Others are skipped.

    index: u32 file offset of every 64th record, the first one included
    footer, 96 bytes
     0 8s magic "LVTFOOT1" | 8 u32 count | 12 u32 entries of the index | 16 u64 first_seq | 24 u64 last_seq
    32 i64 min_arrived | 40 i64 max_arrived | 48 i64 max_expires | 56 u64 data_len (header and records)
    64 u64 body_bytes | 72 u32 crc of 0..data_len-1 of the file | 76 16 zeros | 92 u32 crc(index and 0..91)

MANIFEST of a store: edits of 64 bytes.

     0 u32 crc of 4..63 | 4 u8 op (1 NEW, 2 SEAL, 3 DEL, 4 COMPACTED) | 5 u8 stream | 6 u16 edits left in the group
     8 u64 first_seq | 16 u64 last_seq | 24 i64 min_arrived | 32 i64 max_arrived (DEL: when) | 40 u32 count
    44 u32 file_len | 48 u32 body_bytes | 52 u32 generation | 56 i64 max_expires

`max_expires` is the latest time at which one of a segment's messages expires, 2**63 - 1 if one never does.
A reader skips flags and tags that it does not know; see snapshots/ on versions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeGuard
from zlib import crc32

from leveret.storage.message import Envelope

#: Current format; a directory with a higher `min_reader` cannot be read.
FORMAT_VERSION: Final = 1

SEGMENT_MAGIC: Final = b"LVTSEG\x01\n"
SEGMENT_HEADER_BYTES: Final = 64
RECORD_MAGIC: Final = b"LVT1"
RECORD_BYTES: Final = 48
#: The index of a segment has one entry per this many records.
INDEX_STEP: Final = 64
FOOTER_MAGIC: Final = b"LVTFOOT1"
FOOTER_BYTES: Final = 96
EDIT_BYTES: Final = 64

#: Value of `max_expires` if one of the messages never expires.
NEVER: Final = (1 << 63) - 1

PERSISTENT: Final = 1
DEAD: Final = 8
EXTENDED: Final = 64

_SEGMENT_HEADER: Final = struct.Struct("<8sHHBBBBIIQq16sI")
_RECORD: Final = struct.Struct("<4sIIIQqqIBBH")
#: The part of a record's header that its checksum covers: what each message has of its own, and the envelope's.
_RECORD_OWN: Final = struct.Struct("<IIQqq")
_RECORD_ENVELOPE: Final = struct.Struct("<IBBH")
#: Fields of a record's header: magic, record length, body length, sequence number, arrival, expiry.
RECORD_WALK: Final = struct.Struct("<4s4xIIQqq")
_ITEM: Final = struct.Struct("<BI")
_FOOTER: Final = struct.Struct("<8sIIQQqqqQQI16x")
_EDIT: Final = struct.Struct("<BBHQQqqIIIIq")

_U32: Final = struct.Struct("<I")

_EXPIRATION_TAG: Final = 1
_BLIND_KEY_TAG: Final = 2
_DELIVERY_COUNT_TAG: Final = 3
_DEFERRED_EXPIRY_TAG: Final = 4
_PADDING: Final = tuple(bytes(-length % 8) for length in range(8))


class Stream(IntEnum):
    """Kind of messages in a segment."""

    DURABLE = 0
    #: Transient messages; the file is deleted at the next start.
    SPILL = 1


#: Both, looked up once: to get a member of an enum takes as long as a few lines on the path of a message.
DURABLE: Final = Stream.DURABLE
SPILL: Final = Stream.SPILL


class EditOp(IntEnum):
    """Kind of a manifest edit."""

    NEW = 1
    SEAL = 2
    DEL = 3
    COMPACTED = 4


class SegmentHeader(NamedTuple):
    """The header of a segment file."""

    priority: int
    stream: int
    qid: int
    generation: int
    first_seq: int
    created: int
    store_id: bytes
    salt: int


class RecordHeader(NamedTuple):
    """The header of a record."""

    rec_len: int
    body_len: int
    seq: int
    arrived: int
    expires: int
    props_len: int
    flags: int
    priority: int
    route_len: int


class Footer(NamedTuple):
    """The summary at the end of a sealed segment."""

    records: int
    first_seq: int
    last_seq: int
    min_arrived: int
    max_arrived: int
    max_expires: int
    data_len: int
    body_bytes: int
    data_crc: int


class Edit(NamedTuple):
    """One edit of a manifest."""

    op: int
    stream: int
    left: int
    first_seq: int
    last_seq: int
    min_arrived: int
    max_arrived: int
    records: int
    file_len: int
    body_bytes: int
    generation: int
    max_expires: int


def pack_segment_header(header: SegmentHeader) -> bytes:
    """Encode the header of a segment file."""
    priority, stream, qid, generation, first_seq, created, store_id, salt = header
    octets = _SEGMENT_HEADER.pack(
        SEGMENT_MAGIC,
        SEGMENT_HEADER_BYTES,
        FORMAT_VERSION,
        1,
        priority,
        stream,
        0,
        qid,
        generation,
        first_seq,
        created,
        store_id,
        salt,
    )
    return octets + _U32.pack(crc32(octets))


def unpack_segment_header(octets: bytes) -> SegmentHeader | None:
    """Decode the header of a segment file; return None if it is damaged."""
    if len(octets) < SEGMENT_HEADER_BYTES or crc32(octets[:60]) != _U32.unpack_from(octets, 60)[0]:
        return None
    magic, _, _, _, priority, stream, _, *rest = _SEGMENT_HEADER.unpack_from(octets)
    return SegmentHeader(priority, stream, *rest) if magic == SEGMENT_MAGIC else None


class EnvelopeImage:
    """An encoded envelope, shared by the records of all messages with that envelope.

    Args:
        envelope: The envelope; its route is at most 65,535 bytes long.

    Attributes:
        envelope: The envelope.
        prefix: Route and content header.
        prefix_crc: Checksum of the prefix.
        extension: The extension, which follows the body.
        header_end: The end of a record's header.
        bodiless_len: Length of a record without body and padding.
    """

    __slots__ = ("bodiless_len", "envelope", "extension", "header_end", "prefix", "prefix_crc")

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.prefix = envelope.route + envelope.header
        self.prefix_crc = crc32(self.prefix)
        self.extension = _pack_extension(envelope)
        self.bodiless_len = RECORD_BYTES + len(self.prefix) + len(self.extension)
        flags = (
            (PERSISTENT if envelope.persistent else 0)
            | (DEAD if envelope.dead else 0)
            | (EXTENDED if self.extension else 0)
        )
        self.header_end = _RECORD_ENVELOPE.pack(len(envelope.header), flags, envelope.priority, len(envelope.route))


def add_record(
    parts: list[bytes], image: EnvelopeImage, seq: int, arrived: int, expires: int, body: bytes, salt: int
) -> int:
    """Append a record to a list of byte strings.

    Args:
        parts: List of byte strings that will be joined and written.
        image: The encoded envelope.
        seq: The sequence number.
        arrived: Arrival in microseconds since 1970.
        expires: Expiry in microseconds since 1970, 0 for never.
        body: The message body.
        salt: Checksum salt of the queue.
    Returns:
        The length of the record in bytes.
    """
    body_len = len(body)
    used = image.bodiless_len + body_len
    rec_len = (used + 7) & ~7
    tail = _RECORD_OWN.pack(rec_len, body_len, seq, arrived, expires) + image.header_end
    crc = crc32(body, image.prefix_crc)
    if image.extension:
        crc = crc32(image.extension, crc)
        body += image.extension
    # Compiled, to_bytes() takes less than half of the time of a struct.
    checksum = (crc32(tail, crc) ^ salt).to_bytes(4, "little")
    parts += (RECORD_MAGIC, checksum, tail, image.prefix, body, _PADDING[used % 8])
    return rec_len


def check_record(octets: bytes, at: int, salt: int) -> RecordHeader | None:
    """Verify a record's checksum and return its header.

    Args:
        octets: Bytes that contain the complete record.
        at: Offset of the record.
        salt: Checksum salt of the queue.
    Returns:
        The header; None if the record is damaged or incomplete.
    """
    if len(octets) - at < RECORD_BYTES:
        return None
    magic, found, rec_len, body_len, seq, arrived, expires, props_len, flags, priority, route_len = _RECORD.unpack_from(
        octets, at
    )
    end = at + RECORD_BYTES + route_len + props_len + body_len
    stop = at + rec_len
    if magic != RECORD_MAGIC or rec_len % 8 or stop > len(octets):
        return None
    if flags & EXTENDED and end + 4 <= stop:
        end += 4 + int(_U32.unpack_from(octets, end)[0])
    if end > stop or crc32(octets[at + 8 : at + RECORD_BYTES], crc32(octets[at + RECORD_BYTES : end])) ^ salt != found:
        return None
    return RecordHeader(rec_len, body_len, seq, arrived, expires, props_len, flags, priority, route_len)


def read_same_envelope(
    octets: bytes, at: int, prefix: bytes, prefix_crc: int, salt: int
) -> tuple[int, int, int, int, bytes] | None:
    """Verify and read a record with a known envelope: cheaper than check_record() for runs of equal envelopes.

    Args:
        octets: Bytes that contain the complete record.
        at: Offset of the record.
        prefix: The last four bytes of the header of a record that is not EXTENDED, its route and content header.
        prefix_crc: Checksum of route and content header.
        salt: Checksum salt of the queue.
    Returns:
        Record length, sequence number, arrival, expiry and body; None if it has another envelope, is damaged or
        incomplete.
    """
    if len(octets) - at < RECORD_BYTES or not octets.startswith(prefix, at + RECORD_BYTES - 4):
        return None
    magic, found, rec_len, body_len, seq, arrived, expires, props_len, _, _, route_len = _RECORD.unpack_from(octets, at)
    start = at + RECORD_BYTES + route_len + props_len
    end, stop = start + body_len, at + rec_len
    if magic != RECORD_MAGIC or rec_len % 8 or not end <= stop <= len(octets) or start - at - 44 != len(prefix):
        return None
    body = octets[start:end]
    if crc32(octets[at + 8 : at + RECORD_BYTES], crc32(body, prefix_crc)) ^ salt != found:
        return None
    return rec_len, seq, arrived, expires, body


def peek_record(octets: bytes, at: int) -> RecordHeader | None:
    """Read the header of a record without verifying its checksum; return None if there cannot be a record."""
    if len(octets) - at < RECORD_BYTES:
        return None
    magic, _, rec_len, body_len, seq, arrived, expires, props_len, flags, priority, route_len = _RECORD.unpack_from(
        octets, at
    )
    if magic != RECORD_MAGIC or rec_len % 8 or rec_len < RECORD_BYTES + route_len + props_len + body_len:
        return None
    return RecordHeader(rec_len, body_len, seq, arrived, expires, props_len, flags, priority, route_len)


def unpack_envelope(octets: bytes, at: int, header: RecordHeader) -> Envelope:
    """Decode the envelope of a verified record at offset `at`."""
    route_end = at + RECORD_BYTES + header.route_len
    header_end = route_end + header.props_len
    expiration_ms: int | None = None
    delivery_count: int | None = None
    deferred_expiry = 0
    blind_keys: list[str] = []
    if header.flags & EXTENDED:
        for tag, value in _items(octets, header_end + header.body_len):
            if tag == _EXPIRATION_TAG:
                expiration_ms = int.from_bytes(value, "little")
            elif tag == _BLIND_KEY_TAG:
                blind_keys.append(value.decode("utf-8", "surrogateescape"))
            elif tag == _DELIVERY_COUNT_TAG:
                delivery_count = int.from_bytes(value, "little")
            elif tag == _DEFERRED_EXPIRY_TAG:
                deferred_expiry = int.from_bytes(value, "little")
    return Envelope(
        octets[at + RECORD_BYTES : route_end],
        octets[route_end:header_end],
        bool(header.flags & PERSISTENT),
        header.priority,
        expiration_ms,
        bool(header.flags & DEAD),
        tuple(blind_keys),
        delivery_count,
        deferred_expiry,
    )


def pack_footer(footer: Footer, index: bytes) -> bytes:
    """Encode the index and footer of a sealed segment.

    Args:
        footer: The footer.
        index: File offsets of every 64th record, as u32.
    """
    records, *rest = footer
    octets = index + _FOOTER.pack(FOOTER_MAGIC, records, len(index) // 4, *rest)
    return octets + _U32.pack(crc32(octets))


def unpack_footer(octets: bytes) -> tuple[Footer, bytes] | None:
    """Decode footer and index from the end of a sealed segment.

    Args:
        octets: The end of the file, including the complete index.
    Returns:
        Footer and index; None if they are damaged or `octets` is too short.
    """
    start = len(octets) - FOOTER_BYTES
    if start < 0 or octets[start : start + 8] != FOOTER_MAGIC:
        return None
    _, records, entries, *rest = _FOOTER.unpack_from(octets, start)
    index_start = start - 4 * entries
    if index_start < 0 or crc32(octets[index_start:-4]) != _U32.unpack_from(octets, len(octets) - 4)[0]:
        return None
    return Footer(records, *rest), octets[index_start:start]


def pack_edit(edit: Edit) -> bytes:
    """Encode an edit of a manifest."""
    octets = _EDIT.pack(*edit)
    return _U32.pack(crc32(octets)) + octets


def unpack_edit(octets: bytes, at: int) -> Edit | None:
    """Decode an edit; return None if it is damaged."""
    if crc32(octets[at + 4 : at + EDIT_BYTES]) != _U32.unpack_from(octets, at)[0]:
        return None
    return Edit(*_EDIT.unpack_from(octets, at + 4))


def _pack_extension(envelope: Envelope) -> bytes:
    if (
        envelope.expiration_ms is None
        and not envelope.blind_keys
        and envelope.delivery_count is None
        and not envelope.deferred_expiry
    ):
        return b""
    items: list[bytes] = []
    if envelope.expiration_ms is not None:
        items += (_ITEM.pack(_EXPIRATION_TAG, 8), envelope.expiration_ms.to_bytes(8, "little"))
    for key in envelope.blind_keys:
        octets = key.encode("utf-8", "surrogateescape")
        items += (_ITEM.pack(_BLIND_KEY_TAG, len(octets)), octets)
    if envelope.delivery_count is not None:
        items += (_ITEM.pack(_DELIVERY_COUNT_TAG, 8), envelope.delivery_count.to_bytes(8, "little"))
    if envelope.deferred_expiry:
        items += (_ITEM.pack(_DEFERRED_EXPIRY_TAG, 8), envelope.deferred_expiry.to_bytes(8, "little"))
    joined = b"".join(items)
    return _U32.pack(len(joined)) + joined


def _items(octets: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    end = at + 4 + _U32.unpack_from(octets, at)[0]
    at += 4
    while at + _ITEM.size <= end:
        tag, length = _ITEM.unpack_from(octets, at)
        at += _ITEM.size
        yield tag, octets[at : at + length]
        at += length


def pack_checked(fields: Mapping[str, object]) -> bytes:
    """Return the contents of a file: a JSON object with a checksum of its other fields in the field `crc`."""
    return json.dumps({**fields, "crc": crc_of(fields)}).encode() + b"\n"


def unpack_checked(octets: bytes) -> dict[str, Any]:
    """Return the fields that pack_checked() was called with.

    Raises:
        ValueError: The contents are damaged.
    """
    try:
        fields = json.loads(octets)
        if isinstance(fields, dict) and fields.pop("crc", None) == crc_of(fields):
            return fields
    except RecursionError:
        # As a wrong checksum.
        pass
    raise ValueError("its checksum is wrong")


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value from JSON is a string that can be written as UTF-8: JSON can have lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_count(value: object, end: int) -> TypeGuard[int]:
    """Return whether a value from JSON is a whole number from 0 on and below an end."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def crc_of(fields: Mapping[str, object]) -> int:
    """Return the checksum of fields, without `crc`."""
    return crc32(json.dumps(fields, sort_keys=True).encode())


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
