r"""The byte layout of the event log, which records how messages left their queues.

All numbers are little endian; times are microseconds since 1970; `crc` is zlib's CRC-32. The layouts of the other
files are in format.py.

Event log file: a header of 40 bytes, then records of 40 bytes.

     0 8s magic "LVTEVT\1\n" | 8 u16 header_len = 40 | 10 u16 format = 1 | 12 u32 0 | 16 16s store id | 32 u32 0
    36 u32 crc of 0..35

     0 u64 seq | 8 i64 time | 16 u32 qid | 20 u32 count: seqs in a row | 24 u32 wait in ms, the longest of the run
    28 u8 kind | 29 u8 priority | 30 u16 flags, see below, from bit 8 on redeliveries | 32 u32 body bytes
    36 u32 crc of 0..35 XOR crc(store id)

Before the event of a run whose messages did not all wait for the same time is a record of kind WAITS, with the same
queue, priority, time and flags: seq is the sum of the waits in microseconds, wait the shortest one, count and body
bytes are 0. Without it, all have waited as long as the event says.

Before a tick are records of kind LEAVING for messages whose copies in other queues have been written, but whose removal
has not, because the copies are not synced: seq is the first one, wait their number, count 0. Who reads the messages of
this tick leaves them out. Recovery does not: they are gone when an event says so.

The seq of events REFUSED and UNROUTABLE is the place of their details in another file; see EventDetails.

A reader skips kinds of events and flags that it does not know. Kinds above TICK say more about the event that follows.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from enum import IntEnum
from os.path import dirname, join
from typing import Final, NamedTuple, Protocol
from zlib import crc32

from leveret.storage.format import FORMAT_VERSION
from leveret.storage.json_records import read_object, unpack_record

EVENT_MAGIC: Final = b"LVTEVT\x01\n"
EVENT_BYTES: Final = 40

_EVENT_HEADER: Final = struct.Struct("<8sHHI16sI")
_EVENT: Final = struct.Struct("<QqIIIBBHI")
_U32: Final = struct.Struct("<I")


class EventKind(IntEnum):
    """Kind of an event: why messages left a queue, or what else happened to them."""

    ACK = 1
    AUTO_ACK = 2
    REJECT = 3
    EXPIRED = 4
    MAXLEN = 5
    MAXLEN_BYTES = 6
    DELIVERY_LIMIT = 7
    PURGED = 8
    #: The queue and its messages are gone: `seq` is the oldest remaining message, `count` their number. If there are
    #: dead ones between them, the newest has an event of its own.
    QUEUE_DELETED = 9
    LOST = 10
    #: Requeued at the tail, under a new sequence number.
    RETURNED = 12
    #: Moved to another queue on request.
    MOVED = 13
    #: Of a delayed exchange: was due, and is in the queues that it was routed to.
    ROUTED = 14
    #: Of a delayed exchange: was due, and reached no queue.
    NOT_ROUTED = 15
    #: Of a delayed exchange: removed on request before it was due.
    CANCELLED = 16
    #: Of a store of remembered values: a record that is not needed any more. It was no message.
    FORGOTTEN = 17
    #: Of a stream: removed with a whole segment, because of its limits.
    RETENTION = 18
    REQUEUE = 20
    REFUSED = 21
    UNROUTABLE = 22
    #: Dead-lettered messages, recorded as such in their queue, that reached no queue.
    DEAD_LETTER_LOST = 23
    TICK = 30
    #: How long the messages of the following event have waited.
    WAITS = 31
    #: Messages that have copies at the time of the following tick, and are to be removed.
    LEAVING = 32


#: Looked up once: to get a member of an enum takes as long as a few lines on the path of a message.
AUTO_ACK: Final = EventKind.AUTO_ACK
_WAITS: Final = EventKind.WAITS

#: Kinds that are reported as losses: messages that left a queue, or never entered one, without being consumed.
#: Rejected messages are included. Purged and cancelled messages, and those of deleted queues, are not: they were
#: removed on request. Nor is what the retention of a stream removes: it has been there for consumers to read.
#: DEAD_LETTERED messages are lost only if a later DEAD_LETTER_LOST event says so, and those with the flag TOLD are not.
LOSSES: Final = frozenset(
    {
        EventKind.REJECT,
        EventKind.EXPIRED,
        EventKind.MAXLEN,
        EventKind.MAXLEN_BYTES,
        EventKind.DELIVERY_LIMIT,
        EventKind.LOST,
        EventKind.NOT_ROUTED,
        EventKind.REFUSED,
        EventKind.UNROUTABLE,
        EventKind.DEAD_LETTER_LOST,
    }
)

#: Kinds up to this one remove their messages.
LAST_REMOVAL: Final = 19

#: Flags of an event.
DEAD_LETTERED: Final = 1
ARCHIVED: Final = 2
#: The message was settled before it was written to disk.
NEVER_STORED: Final = 4
#: The sender of the messages knows: a publisher that was told that they are refused or unroutable, or a queue whose
#: dead letters they are, which counts those that are lost. Such messages are not lost. Older files do not have it.
TOLD: Final = 8
#: In events DEAD_LETTER_LOST, bits 4 to 6: the reason for dead-lettering, as 1 maxlen, 2 expired, 3 rejected,
#: 4 delivery_limit; 0 in older files.
LETTER_REASON_SHIFT: Final = 4
#: One redelivery; the bits from 8 on count them.
REDELIVERED_ONCE: Final = 1 << 8


class Event(NamedTuple):
    """One record of the event log."""

    seq: int
    time: int
    qid: int
    length: int
    wait_ms: int
    kind: int
    priority: int
    flags: int
    body_bytes: int


class EventRun:
    """An event that is not written yet, which later ones may extend. Its attributes are those of Event, and two more.

    Attributes:
        least_ms: Shortest wait of one of its messages, in milliseconds.
        waits: Sum of their waits, in microseconds.
    """

    __slots__ = (
        "body_bytes", "flags", "kind", "least_ms", "length", "priority", "qid", "seq", "time", "wait_ms", "waits",
    )  # fmt: skip

    def __init__(
        self,
        seq: int,
        time: int,
        qid: int,
        length: int,
        wait_ms: int,
        kind: int,
        priority: int,
        flags: int,
        body_bytes: int,
        least_ms: int,
        waits: int,
    ) -> None:
        self.seq = seq
        self.time = time
        self.qid = qid
        self.length = length
        self.wait_ms = wait_ms
        self.kind = kind
        self.priority = priority
        self.flags = flags
        self.body_bytes = body_bytes
        self.least_ms = least_ms
        self.waits = waits

    def pack(self, salt: int) -> bytes:
        """Return the event's records in the event log; the salt is the checksum of the store id."""
        octets = _EVENT.pack(
            self.seq,
            self.time,
            self.qid,
            self.length,
            self.wait_ms,
            self.kind,
            self.priority,
            self.flags,
            self.body_bytes,
        )
        # As in add_record(), this is faster than a struct.
        octets += (crc32(octets) ^ salt).to_bytes(4, "little")
        if self.least_ms == self.wait_ms:
            return octets
        waits = _EVENT.pack(self.waits, self.time, self.qid, 0, self.least_ms, _WAITS, self.priority, self.flags, 0)
        return waits + (crc32(waits) ^ salt).to_bytes(4, "little") + octets


def pack_event_header(store_id: bytes) -> bytes:
    """Return the header of a file of the event log."""
    octets = _EVENT_HEADER.pack(EVENT_MAGIC, EVENT_BYTES, FORMAT_VERSION, 0, store_id, 0)
    return octets + _U32.pack(crc32(octets))


def unpack_event(octets: bytes, at: int, salt: int) -> Event | None:
    """Decode a record of the event log; return None if it is damaged."""
    if crc32(octets[at : at + 36]) ^ salt != _U32.unpack_from(octets, at + 36)[0]:
        return None
    return Event(*_EVENT.unpack_from(octets, at))


#: What details may have.
DETAIL_NAMES: Final = ("vhost", "exchange", "routing_key", "message_id", "user_name", "connection_name")
#: An upper bound of the length of a record: each text has 255 bytes at most, and six characters for each in JSON.
DETAILS_MAX: Final = 16 << 10

DETAILS_PREFIX: Final = "de-"


class EventDetails(Protocol):
    """Details of an event, which are made when they are needed."""

    def texts(self, with_id: bool) -> dict[str, str]:
        """Return texts by their DETAIL_NAMES; without the message's id if it is not asked for."""


def pack_details(texts: Mapping[str, str]) -> bytes:
    """Return the JSON of details."""
    return json.dumps(texts, separators=(",", ":")).encode()


def read_details(octets: bytes, at: int, salt: int) -> dict[str, str]:
    """Return the details at an offset; empty if they are damaged or missing.

    Args:
        octets: A part of a file.
        at: Offset in it.
        salt: The checksum of the store id.
    """
    texts = read_object(unpack_record(octets, at, salt))
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def details_name(time: int) -> str:
    """Return the name of the file that belongs to the file of the event log with a start time."""
    return f"{DETAILS_PREFIX}{time:020d}.log"


def details_beside(path: str, time: int) -> str:
    """Return the path of the details that belong to a file of the event log with a start time."""
    return join(dirname(path), details_name(time))
