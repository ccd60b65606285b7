"""Recovers a data directory at startup from checkpoint, events and the stores of all queues; writes checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from leveret.storage.commit import SYNC_THREADS, CommitGroup, RedoLog, RedoParts, read_redo, records_of
from leveret.storage.directory.data_directory import DataDirectory, QueueRecord
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.directory.queue_names import QUEUE_FILE, forget_deleted, name_of, read_deleted
from leveret.storage.disk.files import Files
from leveret.storage.event_format import LAST_REMOVAL, EventKind, details_name
from leveret.storage.event_log import EventLog, EventPosition, details_files, event_files, file_name, read_events
from leveret.storage.recovery.checkpoint import (
    Checkpoint,
    StoreCheckpoint,
    pack_checkpoint,
    read_checkpoints,
    write_checkpoint,
)
from leveret.storage.recovery.recovery_report import RecoveryReport
from leveret.storage.recovery.store import recover_store, salt_of_segments
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import StorePlace
from leveret.storage.stores.segment_store import SegmentStore, StoreState


@dataclass(slots=True)
class Replayed:
    """State from the checkpoint and the event log.

    Attributes:
        states: States of stores by qid and priority, as far as known.
        deleted: Numbers of deleted queues.
        last_qid: The highest queue number found.
        events: Number of events after the checkpoint.
        latest: Time of the last one.
        damage: Number of unreadable records and description of the damage, by path.
        lacks_events: Whether some events cannot be read, or their file is missing.
        priorities: Priorities found for each queue, by qid.
    """

    states: dict[tuple[int, int], StoreState] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    last_qid: int = 0
    events: int = 0
    latest: int = 0
    damage: dict[str, tuple[int, str]] = field(default_factory=dict)
    priorities: dict[int, set[int]] = field(default_factory=dict)
    lacks_events: bool = False


def replay(
    files: Files, directory: str, store_id: bytes, start: EventPosition, checkpoint: Checkpoint | None
) -> Replayed:
    """Apply the events after a checkpoint to its state.

    Args:
        directory: Path of the event log.
        store_id: Names the data directory.
        start: Position of the checkpoint.
        checkpoint: The checkpoint; None if there is none.
    """
    found = Replayed()
    if checkpoint is not None:
        found.last_qid = checkpoint.next_qid - 1
        for key, store in checkpoint.stores.items():
            found.states[key] = StoreState(
                dead=store.dead, next_seq=store.next_seq, redelivered_below=store.redelivered_below
            )
    damaged: dict[str, int] = {}
    for event in read_events(files, directory, store_id, start, damaged):
        if event is None:
            continue
        found.events += 1
        found.latest = max(found.latest, event.time)
        found.last_qid = max(found.last_qid, event.qid)
        if event.kind == EventKind.QUEUE_DELETED:
            found.deleted.add(event.qid)
        elif 0 < event.kind <= LAST_REMOVAL and event.length:
            state = found.states.get((event.qid, event.priority))
            if state is None:
                state = found.states[event.qid, event.priority] = StoreState()
            state.dead.add(event.seq, event.length)
            state.next_seq = max(state.next_seq, event.seq + event.length)
    for path, count in damaged.items():
        what = f"{count} of its records cannot be read; messages that they removed come back"
        found.lacks_events = found.lacks_events or count > 0
        found.damage[path] = count, what if count else "is damaged, but not in a place that is needed"
    first = f"{directory}/{file_name(start.file)}"
    if start.file and start.file not in event_files(files, directory):
        found.lacks_events = True
        found.damage[first] = 0, "is missing; messages that it removed after the last checkpoint come back"
    if checkpoint is not None and checkpoint.clean and not found.events and not found.damage:
        for key, store in checkpoint.stores.items():
            found.states[key].told = store.messages, store.body_bytes
    for qid, priority in found.states:
        found.priorities.setdefault(qid, set()).add(priority)
    return found


#: Sequence numbers skipped after a crash, because unsynced messages may have used them. Streams skip none if no
#: message is lost: what is not synced has not been delivered.
SKIPPED: Final = 1 << 20


class RestoredStore(NamedTuple):
    """A recovered store.

    Attributes:
        state: Recovered state.
    """

    place: StorePlace
    manifest: Manifest
    state: StoreState


class RestoredQueue(NamedTuple):
    """A recovered durable queue.

    Attributes:
        record: Metadata of the queue, with a salt.
        stores: Stores of the queue.
    """

    record: QueueRecord
    stores: list[RestoredStore]


class Restart:
    """Recovers a data directory.

    Args:
        events: Receives events of lost messages.
        make_place: Returns the place of a store, given queue number, priority and salt.
        report: Receives what was found and repaired.
        keeps_numbers: Whether nobody has seen the numbers of messages of streams that were not synced.

    Attributes:
        latest: The latest time found, in microseconds since 1970.
        missing: What is known of stores without a directory of their queue, by number and priority.
    """

    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        events: EventLog,
        make_place: Callable[[int, int, int], StorePlace],
        report: RecoveryReport,
        keeps_numbers: bool = False,
    ) -> None:
        self._files = files
        self._keeps_numbers = keeps_numbers
        self._directory = directory
        self._events = events
        self._make_place = make_place
        self._report = report
        self._redo: RedoParts = {}
        self.latest = 0
        self.missing: dict[int, dict[int, StoreState]] = {}

    def run(self) -> list[RestoredQueue]:
        """Recover all durable queues and their stores; discard all other queues."""
        directory, report = self._directory, self._report
        directory.empty_trash()
        damaged: dict[str, str] = {}
        self._redo = read_redo(self._files, directory.redo, directory.store_id, damaged)
        for path, what in damaged.items():
            report.note(path, what)
        checkpoint = self._checkpoint()
        position = checkpoint.position if checkpoint is not None else EventPosition(0, 0)
        replayed = replay(self._files, directory.events, directory.store_id, position, checkpoint)
        for path, (count, what) in replayed.damage.items():
            report.damaged_events += count
            report.note(path, what)
        # Events that a checkpoint had made superfluous may have been removed since.
        report.lacks_events = replayed.lacks_events or (checkpoint is None and bool(report.damage))
        self.latest = max(replayed.latest, checkpoint.created if checkpoint is not None else 0)
        clean = checkpoint is not None and checkpoint.clean and not replayed.events and not replayed.damage
        found: list[RestoredQueue] = []
        records = directory.queues()
        self._find_missing(replayed, records)
        for record in records:
            path = directory.queue_path(record.qid)
            if record.durable and record.qid not in replayed.deleted and not self._is_unborn(record):
                found.append(self._queue(record, replayed, clean))
            else:
                self._attempt(path, partial(directory.discard_queue, record.qid, directory.clock()))
        directory.reserve_qids(replayed.last_qid)
        directory.empty_trash()
        return found

    def _find_missing(self, replayed: Replayed, records: list[QueueRecord]) -> None:
        """Find the stores whose queue has no directory, and was not deleted."""
        there = {record.qid for record in records} | replayed.deleted
        states = [(qid, priority, state) for (qid, priority), state in replayed.states.items() if qid not in there]
        if states:
            there.update(each.qid for each in read_deleted(self._files, self._directory.events))
        for qid, priority, state in states:
            if qid not in there:
                self.missing.setdefault(qid, {})[priority] = state

    def _checkpoint(self) -> Checkpoint | None:
        """Return the newest readable checkpoint."""
        directory, report = self._directory, self._report
        damaged: list[str] = []
        found = [
            each
            for each in read_checkpoints(self._files, directory.checkpoints, damaged)
            if each.store_id == directory.store_id
        ]
        for path in damaged:
            report.note(path, "is damaged; " + ("another one is used" if found else "all of the event log is read"))
        if not found and not damaged and directory.queues():
            report.note(directory.checkpoints, "there is no checkpoint; all of the event log is read")
        return found[0] if found else None

    def _is_unborn(self, record: QueueRecord) -> bool:
        """Return whether the creation of a queue was interrupted, so that its directory contains nothing useful."""
        names = self._files.list_directory(self._directory.queue_path(record.qid))
        return record.salt is None and all(name.startswith(QUEUE_FILE) for name in names)

    def _queue(self, record: QueueRecord, replayed: Replayed, clean: bool) -> RestoredQueue:
        directory, path = self._directory, self._directory.queue_path(record.qid)
        there = directory.priorities(record.qid)
        if record.salt is None:
            stores_at = [directory.store_path(record.qid, priority) for priority in there]
            record = record._replace(salt=salt_of_segments(self._files, stores_at))
            self._report.note(f"{path}/QUEUE.json", "is damaged or missing; written again, without the queue's name")
            if record.salt:
                self._attempt(path, partial(directory.mend_queue, record))
        before = self._report.messages, self._report.body_bytes
        # A priority without a directory may have had messages that were never written but have used numbers.
        priorities = {*there, *replayed.priorities.get(record.qid, ())}
        stores = [self._store(record, priority, replayed.states, clean) for priority in sorted(priorities)]
        self._report.count(name_of(record.attributes, record.qid)[0], *before)
        return RestoredQueue(record, stores)

    def _store(
        self, record: QueueRecord, priority: int, states: Mapping[tuple[int, int], StoreState], clean: bool
    ) -> RestoredStore:
        state = states.get((record.qid, priority)) or StoreState()
        place = self._make_place(record.qid, priority, record.salt or 0)
        manifest = Manifest(self._files, place.directory)
        redo = records_of(self._redo.pop((record.qid, priority), ()), place.salt)
        lost_before = self._report.lost_messages
        is_whole = bool(record.attributes.get("persists_transient"))
        recover_store(place, manifest, state, self._events, self._report, redo, is_whole)
        keeps_numbers = (
            self._keeps_numbers
            and "stream_segment_bytes" in record.attributes
            and not state.lacks_files
            and self._report.lost_messages == lost_before
        )
        self.latest = max([self.latest, *(segment.max_arrived for segment in state.segments)])
        if not clean:
            state.redelivered_below = state.next_seq
            if not keeps_numbers:
                state.dead.add(state.next_seq, SKIPPED)
                state.next_seq += SKIPPED
        return RestoredStore(place, manifest, state)

    def _attempt(self, path: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._report.failures.append(f"{path}: {error}")


def commit_recovered(group: CommitGroup, files: Files, redo: RedoLog, threaded: bool) -> None:
    """Commit everything that recovery has written.

    Args:
        group: The files to sync.
        redo: The redo log.
        threaded: Whether to sync in several threads.
    Raises:
        DataDirectoryError: A sync failed. Nothing is lost: the next start writes again what the redo log has.
    """
    try:
        if threaded:
            with ThreadPoolExecutor(SYNC_THREADS, "recovery") as pool:
                group.commit(files, redo, pool)
        else:
            group.commit(files, redo)
    except OSError as error:
        what_to_do = "nothing is lost; repair the disk and start again"
        raise DataDirectoryError(f"what was recovered cannot be synced: {error}; {what_to_do}") from error


#: A checkpoint is due after this many bytes of events, this many microseconds with changes, or a new file of events.
_BYTES: Final = 16 << 20
_PAUSE_US: Final = 60_000_000


class Checkpointer:
    """Writes the checkpoints of a data directory.

    Args:
        retention: Minimum retention of events in microseconds.
        clock: Microseconds since 1970.
    """

    def __init__(
        self, files: Files, directory: DataDirectory, events: EventLog, retention: int, clock: Callable[[], int]
    ) -> None:
        self._files = files
        self._directory = directory
        self._events = events
        self._retention = retention
        #: Events are kept at least as long for named readers, in microseconds.
        self.reader_retention = 0
        self._clock = clock
        self._appended = 0
        self._when = clock()
        #: Bytes of checkpoints written since the start.
        self.written = 0
        #: The newest file of the event log that a checkpoint names, or that was there at the start.
        self._file = events.position.file
        #: Events in files before this one are covered by both existing checkpoints.
        self._covered = 0

    @property
    def due(self) -> bool:
        """Whether the next checkpoint is due."""
        if self._events.position.file != self._file:
            # Recovery can say that a file is missing if a checkpoint names it.
            return True
        more = self._events.appended - self._appended
        return more >= _BYTES or (more > 0 and self._clock() - self._when >= _PAUSE_US)

    def add(self, group: CommitGroup, stores: Iterable[tuple[int, int, SegmentStore]], clean: bool) -> None:
        """Add a checkpoint to a commit group.

        Args:
            group: The group.
            stores: All stores as (queue number, priority, store).
            clean: Whether this is the last write before a clean shutdown.
        """
        directory, events, now = self._directory, self._events, self._clock()
        found = {
            (qid, priority): StoreCheckpoint(
                qid,
                priority,
                store.log.dead,
                store.next_seq,
                store.cursor.redelivered_below,
                _known_count(store),
                store.ready_bytes + store.taken_bytes + store.leaving.body_bytes,
            )
            for qid, priority, store in stores
        }
        position = events.position
        octets = pack_checkpoint(Checkpoint(clean, directory.store_id, position, now, directory.next_qid, found))
        events.collect(group)
        group.file_actions.append(partial(self._write, octets, position, now))
        self._appended, self._when, self._file = events.appended, now, position.file

    def _write(self, octets: bytes, position: EventPosition, now: int) -> None:
        """Write a checkpoint and remove event log files that are no longer needed."""
        write_checkpoint(self._files, self._directory.checkpoints, octets)
        self.written += len(octets)
        covered, self._covered = self._covered, position.file
        oldest = 0
        for file, following in pairwise(event_files(self._files, self._directory.events)):
            # Its events are older than the start of the following file.
            if file < covered and following < now - max(self._retention, self.reader_retention):
                self._files.unlink(f"{self._directory.events}/{file_name(file)}")
                oldest = following
        if oldest:
            for file in details_files(self._files, self._directory.events):
                if file < oldest:
                    self._files.unlink(f"{self._directory.events}/{details_name(file)}")
            forget_deleted(self._files, self._directory.events, oldest)


def _known_count(store: SegmentStore) -> int:
    """Return the number of messages; 0 if some could not be read: the next start measures their lengths."""
    if store.lost_count or store.aside_count:
        return 0
    return store.ready_count + store.taken_count + store.leaving.count
