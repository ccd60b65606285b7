"""Reads messages and events of a snapshot one by one: what the tables of the analytics have to agree with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from leveret.analytics.errors import DamagedRecordError
from leveret.storage.disk.files import DiskFiles, Files
from leveret.storage.event_format import EVENT_BYTES, Event, EventKind, unpack_event
from leveret.storage.format import RECORD_BYTES, SEGMENT_HEADER_BYTES, RecordHeader, scan, unpack_segment_header
from leveret.storage.snapshots.segments import SegmentView, read_open
from leveret.storage.snapshots.snapshot import QueueView, Request, Snapshot, take_snapshot


class MessageRecord(NamedTuple):
    """A message as stored in a file; times in microseconds since 1970, 0 for never."""

    seq: int
    arrived: int
    expires: int
    exchange: bytes
    routing_key: bytes
    header: bytes
    body: bytes
    flags: int
    priority: int
    redelivered: bool


class Reader:
    """Reads a snapshot, and closes it. With `fail_fast`, a damaged record is an error; otherwise it is counted."""

    def __init__(self, snapshot: Snapshot, files: Files | None = None, fail_fast: bool = False) -> None:
        self.snapshot = snapshot
        self.damaged = 0
        self._files = files or DiskFiles()
        self._fail_fast = fail_fast

    @property
    def queues(self) -> list[QueueView]:
        return self.snapshot.queues

    def messages(self, queue: QueueView) -> Iterator[MessageRecord]:
        """The live messages of a queue, lowest priority first, in order of sequence number."""
        for store in queue.stores:
            for segment in store.segments:
                yield from self._segment(segment, store.delivered)

    def events(self) -> Iterator[Event]:
        """The events up to the cut, oldest first. The snapshot must include events."""
        salt = crc32(self.snapshot.store_id)
        for view in self.snapshot.events:
            octets = self._read(view.path, "")
            for at in range(EVENT_BYTES, min(view.end, len(octets)) - EVENT_BYTES + 1, EVENT_BYTES):
                event = unpack_event(octets, at, salt)
                if event is None:
                    self._note_damage(1, view.path)
                elif event.kind <= EventKind.TICK:
                    # Those above say more about the events that follow.
                    yield event

    def close(self) -> None:
        self.snapshot.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _segment(self, view: SegmentView, delivered: Sequence[int]) -> Iterator[MessageRecord]:
        octets = self._read(view.path, view.moved_path)
        header = unpack_segment_header(octets[:SEGMENT_HEADER_BYTES])
        found = scan(octets, header.salt if header is not None else view.salt, view.first_seq)
        cut, live = self.snapshot.cut.time, view.live
        counted = 0
        for record, at in zip(found.headers, found.offsets, strict=True):
            if record.arrived <= cut and bisect_right(live, record.seq) & 1:
                counted += 1
                yield _message(octets, at, record, bool(bisect_right(delivered, record.seq) & 1))
        if view.gapless:
            self._note_damage(view.live_numbers - counted, view.path)
        else:
            self._note_damage(sum(bisect_right(live, before + 1) & 1 for before, _ in found.damaged), view.path)

    def _read(self, path: str, moved_path: str) -> bytes:
        if self.snapshot.lease is not None:
            self.snapshot.lease.renew()
        return read_open(path, moved_path, self._read_all)

    def _read_all(self, path: str) -> bytes:
        octets = self._files.read_all(path)
        if octets is None:
            raise FileNotFoundError(f"{path} no longer exists; take a new snapshot")
        return octets

    def _note_damage(self, count: int, path: str) -> None:
        self.damaged += count
        if count and self._fail_fast:
            raise DamagedRecordError(f"{path}: {count} damaged")


def open_reader(
    path: str, request: Request | None = None, files: Files | None = None, fail_fast: bool = False
) -> Reader:
    """Take a snapshot of a data directory; the messages of all queues by default."""
    return Reader(take_snapshot(path, request, files), files, fail_fast)


def _message(octets: bytes, at: int, record: RecordHeader, redelivered: bool) -> MessageRecord:
    start = at + RECORD_BYTES
    header_at = start + record.route_len
    body_at = header_at + record.props_len
    exchange_end = start + 1 + octets[start]
    return MessageRecord(
        record.seq,
        record.arrived,
        record.expires,
        octets[start + 1 : exchange_end],
        octets[exchange_end + 1 : header_at],
        octets[header_at:body_at],
        octets[body_at : body_at + record.body_len],
        record.flags,
        record.priority,
        redelivered,
    )
