"""Recovers a data directory at startup: checkpoint, events and the stores of all queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from leveret.storage.commit import SYNC_THREADS, CommitGroup, RedoLog, RedoParts, read_redo, records_of
from leveret.storage.directory.data_directory import DataDirectory, QueueRecord
from leveret.storage.directory.directory_format import DataDirectoryError
from leveret.storage.directory.queue_names import QUEUE_FILE, name_of, read_deleted
from leveret.storage.disk.files import Files
from leveret.storage.event_format import LAST_REMOVAL, EventKind
from leveret.storage.event_log import EventLog, EventPosition, event_files, file_name, read_events
from leveret.storage.recovery.checkpoint import Checkpoint, read_checkpoints
from leveret.storage.recovery.recovery_report import RecoveryReport
from leveret.storage.recovery.store import recover_store, salt_of_segments
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import StorePlace
from leveret.storage.stores.segment_store import StoreState


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
