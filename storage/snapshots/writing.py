"""Writes a data directory with what a snapshot has: a broker starts on it as after a crash at the snapshot's cut.

Segments are copied as they are, up to the last message that had arrived. What is not live at the cut is dead in a new
checkpoint, which stands at the position of the cut in the event log, so recovery has no events to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.storage.definitions_database import DefinitionsDatabase
from leveret.storage.directory.directory_format import FORMAT_FILE, pack_format
from leveret.storage.directory.queue_names import QUEUE_FILE
from leveret.storage.disk.files import Files, write_draft
from leveret.storage.event_format import pack_event_header
from leveret.storage.event_log import file_name
from leveret.storage.format import (
    NEVER,
    SEGMENT_HEADER_BYTES,
    Edit,
    EditOp,
    RecordHeader,
    Scan,
    Stream,
    pack_edit,
    scan,
)
from leveret.storage.recovery.checkpoint import Checkpoint, StoreCheckpoint, pack_checkpoint
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import NAME as MANIFEST
from leveret.storage.snapshots.segments import SegmentView
from leveret.storage.snapshots.snapshot import QueueView, Snapshot, StoreView

#: Number of the checkpoint.
_CHECKPOINT: Final = "ckpt-0000000001.bin"


@dataclass(slots=True)
class Written:
    """What was written.

    Attributes:
        messages: Number of live messages.
        body_bytes: Bytes of their bodies.
        queues: Number of queues and exchanges with files.
        damaged: What could not be written, a line each.
    """

    messages: int = 0
    body_bytes: int = 0
    queues: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that must not be given again, because readers of the lost part of the history have seen them.

    Attributes:
        next_seqs: Next number of each store by qid and priority.
        next_qid: The next queue number.
    """

    next_seqs: Mapping[tuple[int, int], int]
    next_qid: int


def live_records(view: SegmentView, found: Scan, cut: int) -> Iterator[tuple[int, RecordHeader]]:
    """Iterate over the live records of a segment as offset and header.

    Args:
        view: The segment.
        found: The records of its file.
        cut: Microseconds since 1970; what has arrived later is left out.
    """
    spans = list(zip(view.live[::2], view.live[1::2], strict=True))
    at = 0
    for header, offset in zip(found.headers, found.offsets, strict=True):
        while at < len(spans) and spans[at][1] <= header.seq:
            at += 1
        if at < len(spans) and spans[at][0] <= header.seq and header.arrived <= cut:
            yield offset, header


def merge_definitions(path: Path, later: Path, is_needed: Callable[[int], bool]) -> None:
    """Add the queues and exchanges that were declared between two copies of the definitions to the first one.

    One that was deleted and declared again in between has another number, and replaces the one of the first copy.

    Args:
        path: The first copy.
        later: The second copy.
        is_needed: Whether one with this number has messages, so that it was there already.
    """
    database, other = DefinitionsDatabase(path, is_temporary=True), DefinitionsDatabase(later, is_temporary=True)
    try:
        for kind in ("exchange", "queue"):
            known = {row.key: row.read()[1] for row in database.rows(kind)}
            for row in other.rows(kind):
                key, value = row.read()
                before = known.get(row.key, {})
                if any(
                    value.get(name) != before.get(name) and is_needed(int(value.get(name) or 0))
                    for name in ("qid", "values_qid")
                ):
                    database.put(kind, key, value)
    finally:
        database.close()
        other.close()


def write_data_directory(
    files: Files,
    target: str,
    snapshot: Snapshot,
    read: Callable[[str], bytes],
    numbers: Numbers,
    with_messages: Callable[[QueueView], bool],
) -> Written:
    """Write a data directory without definitions. Nothing is synced.

    Args:
        files: The file system interface of the target.
        target: An empty directory.
        snapshot: A snapshot with messages and events.
        read: Returns the contents of a file of the snapshot. An OSError leaves that file out.
        numbers: Numbers that must not be given again.
        with_messages: Whether a queue gets its messages; otherwise it is written as an empty one.
    Raises:
        OSError: The target cannot be written.
    """
    return _Writing(files, target, snapshot, read, numbers).run(with_messages)


class _Writing:
    """The steps of write_data_directory()."""

    def __init__(
        self, files: Files, target: str, snapshot: Snapshot, read: Callable[[str], bytes], numbers: Numbers
    ) -> None:
        self._files = files
        self._target = target
        self._snapshot = snapshot
        self._read = read
        self._numbers = numbers
        self._written = Written()

    def run(self, with_messages: Callable[[QueueView], bool]) -> Written:
        for name in ("events", "ckpt", "q", "redo", "trash"):
            self._files.make_directory(f"{self._target}/{name}")
        self._write_events()
        states: dict[tuple[int, int], StoreCheckpoint] = {}
        for queue in self._snapshot.queues:
            if queue.durable:
                for state in self._write_queue(queue, with_messages(queue)):
                    states[state.qid, state.priority] = state
        snapshot = self._snapshot
        checkpoint = Checkpoint(
            False, snapshot.store_id, snapshot.cut.position, snapshot.cut.time, self._numbers.next_qid, states
        )
        self._write(f"ckpt/{_CHECKPOINT}", pack_checkpoint(checkpoint))
        # Last: without this file the directory is not one that a broker starts on.
        self._write(FORMAT_FILE, pack_format(snapshot.store_id, snapshot.cut.time))
        return self._written

    def _write_events(self) -> None:
        there = set()
        for view in self._snapshot.events:
            octets = self._try(view.path)
            if octets is not None:
                there.add(view.file)
                self._write(f"events/{file_name(view.file)}", octets[: view.end])
        last = self._snapshot.cut.position.file
        if last and last not in there:
            self._write(f"events/{file_name(last)}", pack_event_header(self._snapshot.store_id))

    def _write_queue(self, queue: QueueView, with_messages: bool) -> Iterator[StoreCheckpoint]:
        directory = f"q/{queue.qid:08x}"
        octets = self._try(f"{directory}/{QUEUE_FILE}")
        if octets is None:
            return
        self._files.make_directory(f"{self._target}/{directory}")
        self._write(f"{directory}/{QUEUE_FILE}", octets)
        self._written.queues += 1
        for store in queue.stores:
            yield self._write_store(queue, store, with_messages)

    def _write_store(self, queue: QueueView, store: StoreView, with_messages: bool) -> StoreCheckpoint:
        directory = f"q/{queue.qid:08x}" + (f"/p{store.priority:03d}" if store.priority else "")
        edits: list[Edit] = []
        live: list[tuple[int, int]] = []
        end = 1
        messages, body_bytes = self._written.messages, self._written.body_bytes
        views = [view for view in store.segments if view.stream == Stream.DURABLE] if with_messages else []
        # Of two files with the same messages one is enough: that of the later compaction has what is left of several.
        for view in sorted(views, key=lambda each: (each.first_seq, -each.generation)):
            octets = self._try(view.path) if view.last_seq >= end else None
            if octets is None:
                continue
            found = scan(octets, view.salt, view.first_seq)
            edit, runs = self._part(view, found)
            if not found.headers and len(octets) > SEGMENT_HEADER_BYTES:
                self._written.damaged.append(f"{view.path} has no whole record")
            elif runs and runs[0][0] >= end:
                self._files.make_directory(f"{self._target}/{directory}")
                size = len(octets) if edit.op == EditOp.SEAL else edit.file_len
                self._write(f"{directory}/{view.file_name}", octets[:size])
                edits.append(edit)
                live += runs
                end = edit.last_seq + 1
        if edits:
            self._write(f"{directory}/{MANIFEST}", b"".join(map(pack_edit, edits)))
        keeps = queue.is_stream and with_messages
        following = end if keeps else max(end, self._numbers.next_seqs.get((queue.qid, store.priority), 1))
        return StoreCheckpoint(
            queue.qid,
            store.priority,
            _dead_between(live, following),
            following,
            following,
            self._written.messages - messages,
            self._written.body_bytes - body_bytes,
        )

    def _part(self, view: SegmentView, found: Scan) -> tuple[Edit, list[tuple[int, int]]]:
        """Return the manifest's edit for what had arrived in a segment, and the live runs of it."""
        cut = self._snapshot.cut.time
        runs: list[tuple[int, int]] = []
        for _, header in live_records(view, found, cut):
            if runs and runs[-1][1] == header.seq:
                runs[-1] = runs[-1][0], header.seq + 1
            else:
                runs.append((header.seq, header.seq + 1))
            self._written.messages += 1
            self._written.body_bytes += header.body_len
        if view.sealed and view.max_arrived <= cut:
            return _edit(view, EditOp.SEAL, view.last_seq, view.data_len), runs
        there = [at for at, header in enumerate(found.headers) if header.arrived <= cut]
        last = found.headers[there[-1]] if there else None
        size = found.offsets[there[-1]] + last.rec_len if last else SEGMENT_HEADER_BYTES
        return _edit(view, EditOp.NEW, last.seq if last else view.first_seq - 1, size), runs

    def _try(self, path: str) -> bytes | None:
        try:
            return self._read(path)
        except OSError as error:
            self._written.damaged.append(str(error))
            return None

    def _write(self, path: str, octets: bytes) -> None:
        write_draft(self._files, f"{self._target}/{path}", octets)


def _edit(view: SegmentView, op: EditOp, last_seq: int, size: int) -> Edit:
    is_whole = op == EditOp.SEAL
    return Edit(
        op,
        view.stream,
        0,
        view.first_seq,
        last_seq,
        view.min_arrived,
        view.max_arrived,
        view.records if is_whole else 0,
        size,
        view.body_bytes if is_whole else 0,
        view.generation,
        view.max_expires if is_whole else NEVER,
    )


def _dead_between(live: Iterable[tuple[int, int]], end: int) -> DeadSet:
    """Return a set in which everything up to an end is dead but some runs."""
    dead, at = DeadSet(), 1
    for first, stop in live:
        if first > at:
            dead.add(at, first - at)
        at = stop
    if end > at:
        dead.add(at, end - at)
    return dead
