"""Files as version 1 of the format has them: what is written today must be these very bytes.

A file in golden/ is never changed. A new version of the format gets files of its own beside them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from leveret.storage.audit_log import AuditLog
from leveret.storage.directory.archive_note import ArchiveNote, pack_note, unpack_note
from leveret.storage.directory.directory_format import pack_format, unpack_format
from leveret.storage.disk.trash import Trash
from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventLog, EventPosition, file_name, read_events
from leveret.storage.format import (
    DEAD,
    EXTENDED,
    FOOTER_BYTES,
    NEVER,
    PERSISTENT,
    EditOp,
    EnvelopeImage,
    Footer,
    SegmentHeader,
    Stream,
    check_record,
    unpack_envelope,
    unpack_footer,
    unpack_segment_header,
)
from leveret.storage.json_records import read_object, unpack_records
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.readers.body_rules import BodyRule, pack_rules, unpack_rules
from leveret.storage.readers.reader_file import ReaderFile, pack_reader, unpack_reader
from leveret.storage.recovery.checkpoint import Checkpoint, StoreCheckpoint, pack_checkpoint, unpack_checkpoint
from leveret.storage.segments.dead_set import BLOCK, DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import Segment, SegmentWriter, StorePlace
from tests.support.messages import ENVELOPE_FIELDS
from tests.support.simulated_files import SimulatedFiles

GOLDEN: Final = Path(__file__).parent / "golden"
RULE = BodyRule("orders", "orders.*", "/", "avro", "", "", "http://registry:8081", "orders-value")
STORE_ID: Final = bytes(range(16))
SALT: Final = 0xDEADBEEF
START: Final = 1_700_000_000_000_000
PLAIN: Final = Envelope(b"\x00\x01q", b"\x00\x3c" + bytes(12), True)
FULL: Final = Envelope(b"\x04news\x03a.b", b"\x00\x3c" + bytes(12) + b"\x01", True, 9, 60_000, True, ("x", "é\udcff"))
AUDITED: Final = [
    {"at": START, "kind": "queue.deleted", "user": "ann", "host": "::1", "vhost": "/", "object": "q", "count": 7},
    {"at": START + 1, "kind": "alarm.set", "user": "rmq-internal", "broker": True, "object": "é\udcff", "details": {}},
]
MESSAGES: Final = [Message(PLAIN, b"first"), TimedMessage(FULL, b"second", START + 60_000_000), Message(PLAIN, b"")]


def clock() -> Iterator[int]:
    at = START
    while True:
        yield at
        at += 1_000_000


def written() -> dict[str, bytes]:
    """Today's files, by name."""
    files = SimulatedFiles()
    files.make_directory("/d/events")
    times = clock()
    place = StorePlace(files, "/d", 7, 9, SALT, STORE_ID, lambda: next(times), Trash(files))
    writer = SegmentWriter(place, Segment(Stream.DURABLE, 41))
    writer.write([(41 + at, message, START + at) for at, message in enumerate(MESSAGES)], 0)
    writer.seal()
    manifest = Manifest(files, "/d")
    manifest.append([Segment(Stream.DURABLE, 41).edit(EditOp.NEW)])
    manifest.append([writer.segment.edit(EditOp.SEAL), Segment(Stream.DURABLE, 1).edit(EditOp.DEL)])
    events = EventLog(files, "/d/events", STORE_ID, lambda: next(times))
    events.add(7, 9, 41, 2, EventKind.EXPIRED, 60_000, 1, 11)
    events.add(7, 0, 1, 1, EventKind.ACK, 5, 0x100, 10)
    events.tick()
    events.flush()
    (log,) = files.list_directory("/d/events")
    snapshot = files.snapshot()
    files.make_directory("/w")
    waits = EventLog(files, "/w", STORE_ID, clock().__next__)
    waits.add(7, 9, 41, 1, EventKind.ACK, 60, 0, 11, 0, 60, 60_300)
    waits.add(7, 9, 42, 2, EventKind.ACK, 90, 0, 22, 0, 30, 120_500)
    waits.flush()
    dead = DeadSet(3)
    dead.add(5, 2)
    dead.add(BLOCK, BLOCK)
    stores = {(7, 9): StoreCheckpoint(7, 9, dead, 2 * BLOCK, 44, 4090, 123)}
    return {
        "FORMAT": pack_format(STORE_ID, START),
        "MANIFEST": snapshot["/d/MANIFEST"],
        "segment.seg": snapshot[f"/d/{writer.segment.name}"],
        "events.log": snapshot[f"/d/events/{log}"],
        "waits.log": files.snapshot()[f"/w/{files.list_directory('/w')[0]}"],
        "reader": pack_reader(ReaderFile("lake", "/", "orders.*", START, START + 5_000_000, {"7/0": 41, "7/9": 44})),
        "archived-to.json": pack_note(ArchiveNote("s3://bucket/archive", "leveret")),
        "audit.log": _audit(),
        "bodies.json": pack_rules([RULE]),
        "checkpoint.bin": pack_checkpoint(Checkpoint(True, STORE_ID, EventPosition(START, 160), START, 8, stores)),
    }


def _audit() -> bytes:
    files = SimulatedFiles()
    log = AuditLog(files, "/d", STORE_ID, lambda: START)
    log.add(AUDITED[0])
    log.write()
    log.add(AUDITED[1])
    log.close()
    return files.snapshot()[f"/d/audit/au-{START:020d}.log"]


@pytest.mark.parametrize("name", written())
def test_todays_code_writes_these_bytes(name: str) -> None:
    assert written()[name].hex(" ", -8) == (GOLDEN / name).read_bytes().hex(" ", -8)


def test_no_golden_file_is_forgotten() -> None:
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(written())


def test_the_note_of_an_archive_can_be_read() -> None:
    assert unpack_rules((GOLDEN / "bodies.json").read_bytes()) == [RULE]
    assert unpack_note((GOLDEN / "archived-to.json").read_bytes()) == ArchiveNote("s3://bucket/archive", "leveret")


def test_an_audit_log_can_be_read() -> None:
    records = unpack_records((GOLDEN / "audit.log").read_bytes(), crc32(STORE_ID))
    assert [read_object(each) for each in records] == AUDITED


def test_a_reader_can_be_read() -> None:
    reader = unpack_reader((GOLDEN / "reader").read_bytes(), "readers/lake")
    assert reader == ReaderFile("lake", "/", "orders.*", START, START + 5_000_000, {"7/0": 41, "7/9": 44})


def test_a_segment_can_be_read() -> None:
    octets = (GOLDEN / "segment.seg").read_bytes()
    assert unpack_segment_header(octets) == SegmentHeader(9, 0, 7, 0, 41, START, STORE_ID, SALT)
    found = unpack_footer(octets)
    assert found is not None
    footer, index = found
    data_len = len(octets) - FOOTER_BYTES - 4
    data_crc = crc32(octets[:data_len])
    assert footer == Footer(3, 41, 43, START, START + 2, NEVER, data_len, 11, data_crc)
    offsets = array("I")
    offsets.frombytes(index)
    assert list(offsets) == [64]
    at = 64
    for number, message in enumerate(MESSAGES):
        header = check_record(octets, at, SALT)
        assert header is not None
        assert (header.seq, header.arrived, header.expires) == (41 + number, START + number, message.expires_at)
        assert header.flags == PERSISTENT | ((DEAD | EXTENDED) if message.envelope is FULL else 0)
        envelope = unpack_envelope(octets, at, header)
        for field in ENVELOPE_FIELDS:
            assert getattr(envelope, field) == getattr(message.envelope, field)
        start = at + 48 + header.route_len + header.props_len
        assert octets[start : start + header.body_len] == message.body
        assert check_record(octets, at, SALT + 1) is None, "a record of another queue is none"
        at += header.rec_len
    assert at == data_len


def test_a_manifest_can_be_read() -> None:
    files = SimulatedFiles()
    files.restore({"/d/MANIFEST": (GOLDEN / "MANIFEST").read_bytes()})
    contents = Manifest(files, "/d").read()
    assert list(contents.segments) == [(0, 41, 0)]
    assert (contents.deleted, contents.damaged) == ({(0, 1, 0)}, 0)
    edit = contents.segments[0, 41, 0]
    assert (edit.op, edit.last_seq, edit.records, edit.body_bytes, edit.max_expires) == (EditOp.SEAL, 43, 3, 11, NEVER)


def test_events_can_be_read() -> None:
    files = SimulatedFiles()
    files.restore({f"/e/{file_name(START)}": (GOLDEN / "events.log").read_bytes()})
    events = list(read_events(files, "/e", STORE_ID, EventPosition(0, 0)))
    assert [event and event._replace(time=0) for event in events] == [
        (41, 0, 7, 2, 60_000, EventKind.EXPIRED, 9, 1, 11),
        (1, 0, 7, 1, 5, EventKind.ACK, 0, 0x100, 10),
        (0, 0, 0, 0, 0, EventKind.TICK, 0, 0, 0),
    ]


def test_how_long_the_messages_of_an_event_waited_is_before_it() -> None:
    files = SimulatedFiles()
    files.restore({f"/e/{file_name(START)}": (GOLDEN / "waits.log").read_bytes()})
    waits, event = read_events(files, "/e", STORE_ID, EventPosition(0, 0))
    assert waits is not None
    assert event is not None
    assert (waits.kind, waits.seq, waits.wait_ms, waits.length) == (EventKind.WAITS, 180_800, 30, 0)
    assert event[:1] + event[2:] == (41, 7, 3, 90, EventKind.ACK, 9, 0, 33)
    assert (waits.qid, waits.priority, waits.time) == (event.qid, event.priority, event.time)


def test_a_checkpoint_can_be_read() -> None:
    checkpoint = unpack_checkpoint((GOLDEN / "checkpoint.bin").read_bytes())
    assert checkpoint is not None
    store = checkpoint.stores[7, 9]
    assert list(store.dead.live_runs(0, 3 * BLOCK)) == [(3, 5), (7, BLOCK), (2 * BLOCK, 3 * BLOCK)]
    assert checkpoint.clean
    assert (checkpoint.position, checkpoint.next_qid) == (EventPosition(START, 160), 8)
    assert (store.next_seq, store.redelivered_below, store.messages, store.body_bytes) == (2 * BLOCK, 44, 4090, 123)


def test_a_format_file_can_be_read() -> None:
    found = unpack_format((GOLDEN / "FORMAT").read_bytes())
    assert found is not None
    assert (found.format, found.min_reader, found.store_id, found.created) == (1, 1, STORE_ID, START)


def test_what_waits_has_its_expiry_in_the_extension() -> None:
    envelope = Envelope(PLAIN.route, PLAIN.header, True, delivery_count=2, deferred_expiry=START)
    count, expiry = (b"\x03\x08\0\0\0" + (2).to_bytes(8, "little")), b"\x04\x08\0\0\0" + START.to_bytes(8, "little")
    assert EnvelopeImage(envelope).extension == (26).to_bytes(4, "little") + count + expiry
