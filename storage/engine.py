"""The storage engine: all stores of a broker, written once a turn, committed together, recovered at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from time import time_ns
from typing import Any, Final

from storage.checkpoint import Checkpoint, StoreCheckpoint, pack_checkpoint, read_checkpoints, write_checkpoint
from storage.commit_group import CommitGroup
from storage.committer import Committer
from storage.data_directory import DataDirectory, QueueRecord
from storage.event_log import EventLog, EventPosition, event_files, file_name
from storage.event_replay import replay
from storage.files import DiskFiles, Files
from storage.manifest import Manifest
from storage.recovery import RecoveryReport, recover_store, salt_of_segments
from storage.segment import StorePlace
from storage.segment_store import SegmentStore, StoreState
from storage.trash import Trash

#: After a crash this many sequence numbers are passed over: what was written and not synced may have used them.
_SKIPPED: Final = 1 << 20
#: A checkpoint is due after so many bytes of events, or so many microseconds with changes.
_CHECKPOINT_BYTES: Final = 16 << 20
_CHECKPOINT_US: Final = 60_000_000
_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What can be set.

    Attributes:
        segment_bytes: A segment takes no further record once it is so long.
        event_retention: Microseconds that events are kept, at least until a checkpoint covers them.
        trash_us: Microseconds that segments are kept after they have been dropped, for readers.
        trash_bytes: The oldest of them go earlier while all are longer than this.
    """

    segment_bytes: int = 16 << 20
    event_retention: int = 7 * _DAY
    trash_us: int = 60 * _SECOND
    trash_bytes: int = 64 << 20


@dataclass(slots=True)
class StoredQueue:
    """A queue's part of the engine.

    Attributes:
        qid: Its number.
        durable: Whether it outlives the process.
        attributes: What the broker wants to find again.
        stores: By priority.
    """

    qid: int
    durable: bool
    attributes: Mapping[str, Any]
    stores: dict[int, SegmentStore] = field(default_factory=dict)


class StorageEngine:
    """All stores of a data directory. It belongs to one thread; only the committer's syncs run in another.

    Opening it recovers what is there. In each turn: append, take and settle on stores, then flush(), then commit()
    if somebody waits for the disk. About once a second: housekeeping().

    Args:
        path: The data directory.
        deliver: Hands a function to the thread that owns the engine; None to commit at once, in that thread.
        on_failure: Called with the error of a sync that failed; see Committer.
        files: The seam to the operating system.
        clock: Microseconds since 1970.
        options: What can be set.
    Raises:
        DirectoryInUseError: Another process has it open.
        DataDirectoryError: It cannot be used; the text says why.
        OSError: It cannot be read or written.

    Attributes:
        queues: All durable queues that were found and those made since, by number.
        report: What recovery found and did.
    """

    def __init__(
        self,
        path: str,
        deliver: Callable[[Callable[[], None]], object] | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        files: Files | None = None,
        clock: Callable[[], int] | None = None,
        options: EngineOptions | None = None,
    ) -> None:
        self._files = files or DiskFiles()
        self._wall_clock = clock or _now
        self._last_time = 0
        self._options = options or EngineOptions()
        self._directory = DataDirectory(self._files, path, self._clock)
        self._events = EventLog(self._files, self._directory.events, self._directory.store_id, self._clock)
        self._trash = Trash(self._files, self._options.trash_us, self._options.trash_bytes)
        self.queues: dict[int, StoredQueue] = {}
        self.report = RecoveryReport()
        self._dirty: dict[SegmentStore, None] = {}
        self._uncommitted: dict[SegmentStore, None] = {}
        self._untidy: dict[SegmentStore, None] = {}
        self._salts: dict[int, int] = {}
        self._committer: Committer | None = None
        self._checkpointed = 0, self._clock()
        self._ticked = 0
        #: Events in files before this one are in both checkpoints that are kept.
        self._covered = 0
        try:
            self._recover()
        except BaseException:
            self._directory.close()
            raise
        if deliver is not None:
            self._committer = Committer(self._files, deliver, on_failure or _raise)

    # --- queues -------------------------------------------------------------------------------------------------------

    def create_queue(self, durable: bool, attributes: Mapping[str, Any]) -> StoredQueue:
        """Make a queue, which is there after a crash.

        Args:
            durable: Whether it outlives the process.
            attributes: What the broker wants to find again; anything that JSON can hold.
        Raises:
            OSError: It could not be made.
        """
        record = self._directory.make_queue(durable, attributes)
        queue = self.queues[record.qid] = StoredQueue(record.qid, durable, record.attributes)
        self._salts[record.qid] = record.salt or 0
        return queue

    def store(self, queue: StoredQueue, priority: int = 0) -> SegmentStore:
        """The store of one priority of a queue; made if there is none.

        Raises:
            OSError: It could not be made.
        """
        store = queue.stores.get(priority)
        if store is None:
            place = self._place(queue.qid, priority)
            self._files.make_directory(place.directory)
            if priority:
                self._files.sync_directory(self._directory.queue_path(queue.qid))
            store = queue.stores[priority] = SegmentStore(place, self._events, queue.durable, self._note_dirty)
        return store

    def delete_queue(self, queue: StoredQueue) -> None:
        """Remove a queue; its directory goes with the next commit group."""
        group = CommitGroup()
        for store in queue.stores.values():
            store.close()
            store.flush()
            self._dirty.pop(store, None)
            self._uncommitted.pop(store, None)
            self._untidy.pop(store, None)
            store.tidy()
            store.collect(group)
        del self.queues[queue.qid], self._salts[queue.qid]
        try:
            self._events.flush()
        except OSError:
            # No room: they are kept, and the queue goes all the same.
            pass
        self._events.collect(group)
        group.file_actions.append(partial(self._directory.discard_queue, queue.qid))
        group.file_actions.append(self._directory.empty_trash)
        self._submit(group)

    # --- the end of a turn, and longer spans --------------------------------------------------------------------------

    def flush(self) -> dict[SegmentStore, OSError]:
        """Write what all stores have been given since the last time, and then what became of messages.

        Returns:
            The stores of which not all could be written, which is tried again next time. Their publishers must not
            be told that their messages are safe.
        Raises:
            OSError: Events could not be written; they are kept.
        """
        failures: dict[SegmentStore, OSError] = {}
        dirty, self._dirty = self._dirty, {}
        for store in dirty:
            try:
                store.flush()
            except OSError as error:
                failures[store] = error
        self._uncommitted |= dirty
        self._untidy |= dirty
        self._events.flush()
        tidied, self._untidy = self._untidy, {}
        for store in tidied:
            if not store.tidy():
                self._untidy[store] = None
            self._uncommitted[store] = None
        return failures

    def commit(self, callback: Callable[[], None] | None = None, events: bool = False) -> None:
        """Have all that flush() wrote synced.

        Args:
            callback: Called once that has been done; in the thread that owns the engine.
            events: Sync the event log too: a settlement has been promised.
        """
        group = CommitGroup()
        for store in self._uncommitted:
            store.collect(group)
        self._uncommitted.clear()
        if events or group.file_actions:
            self._events.collect(group)
        if callback is not None:
            group.callbacks.append(callback)
        if group:
            self._submit(group)

    def housekeeping(self) -> None:
        """Do what is due: close idle files, sync events, tick, remove old trash, write a checkpoint.

        To be called about once a second, after flush().

        Raises:
            OSError: Events could not be written; they are kept.
        """
        for queue in self.queues.values():
            for store in queue.stores.values():
                store.idle()
        if self._events.appended != self._ticked:
            self._events.tick()
            self._events.flush()
            self._ticked = self._events.appended
        self.flush()
        self.commit(events=True)
        group = CommitGroup()
        group.file_actions.append(partial(self._trash.expire, self._clock()))
        self._submit(group)
        appended, when = self._checkpointed
        if self._events.appended - appended >= _CHECKPOINT_BYTES or (
            self._events.appended != appended and self._clock() - when >= _CHECKPOINT_US
        ):
            self.checkpoint()

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint with the next commit group, so that recovery need not read older events.

        Args:
            clean: Nothing is done after it.
        """
        stores = {
            (queue.qid, priority): StoreCheckpoint(
                queue.qid,
                priority,
                store.log.dead,
                store.next_seq,
                store.redelivered_below,
                store.ready_count + store.taken_count,
                store.ready_bytes + store.taken_bytes,
            )
            for queue in self.queues.values()
            if queue.durable
            for priority, store in queue.stores.items()
        }
        directory = self._directory
        next_qid = directory.next_qid
        position, now = self._events.position, self._clock()
        octets = pack_checkpoint(Checkpoint(clean, directory.store_id, position, now, next_qid, stores))
        group = CommitGroup()
        self._events.collect(group)
        group.file_actions.append(partial(self._write_checkpoint, octets, position, now))
        self._submit(group)
        self._checkpointed = self._events.appended, now

    def close(self) -> bool:
        """Stop: all is written and synced, nothing is forgotten. Tell whether that succeeded."""
        try:
            succeeded = not self.flush()
        except OSError:
            succeeded = False
        for queue in self.queues.values():
            for store in queue.stores.values():
                store.log.seal_active()
                self._uncommitted[store] = None
        committer, self._committer = self._committer, None
        if committer is not None:
            succeeded = committer.close() and succeeded
        if succeeded:
            # The second time for what the first one has to say to the manifests.
            for _ in range(2):
                self.commit(events=True)
                self._uncommitted = {store: None for queue in self.queues.values() for store in queue.stores.values()}
            self.checkpoint(clean=True)
        for queue in self.queues.values():
            for store in queue.stores.values():
                store.shut()
        self._events.close()
        self._directory.close()
        return succeeded

    # --- inside -------------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Put all stores together again, and write down what came of it."""
        directory, report = self._directory, self.report
        directory.empty_trash()
        checkpoint = next(
            (
                each
                for each in read_checkpoints(self._files, directory.checkpoints)
                if each.store_id == directory.store_id
            ),
            None,
        )
        position = checkpoint.position if checkpoint is not None else EventPosition(0, 0)
        replayed = replay(self._files, directory.events, directory.store_id, position, checkpoint)
        report.damaged_events = replayed.damaged
        clean = checkpoint is not None and checkpoint.clean and not replayed.events and not replayed.damaged
        for record in directory.queues():
            if record.durable and record.qid not in replayed.deleted:
                self._recover_queue(record, replayed.states, clean)
            else:
                self._attempt(directory.queue_path(record.qid), partial(directory.discard_queue, record.qid))
        directory.reserve_qids(replayed.last_qid)
        directory.empty_trash()
        self._attempt(directory.path, self._settle_recovery)

    def _recover_queue(self, record: QueueRecord, states: Mapping[tuple[int, int], StoreState], clean: bool) -> None:
        salt = record.salt
        if salt is None:
            salt = salt_of_segments(self._files, self._directory.queue_path(record.qid))
            self.report.failures.append(f"{self._directory.queue_path(record.qid)}/QUEUE.json is damaged")
        self._salts[record.qid] = salt
        queue = self.queues[record.qid] = StoredQueue(record.qid, True, record.attributes)
        self.report.queues += 1
        for priority in self._directory.priorities(record.qid):
            state = states.get((record.qid, priority)) or StoreState()
            place = self._place(record.qid, priority)
            manifest = Manifest(self._files, place.directory)
            recover_store(place, manifest, state, self._events, self.report)
            if not clean:
                state.redelivered_below = state.next_seq
                state.dead.add(state.next_seq, _SKIPPED)
                state.next_seq += _SKIPPED
            store = SegmentStore(place, self._events, True, self._note_dirty, manifest, state)
            store.tidy()
            queue.stores[priority] = store
            self._uncommitted[store] = None

    def _settle_recovery(self) -> None:
        self._events.flush()
        self.commit(events=True)
        self.checkpoint()

    def _place(self, qid: int, priority: int) -> StorePlace:
        return StorePlace(
            self._files,
            self._directory.store_path(qid, priority),
            qid,
            priority,
            self._salts[qid],
            self._directory.store_id,
            self._clock,
            self._trash,
            self._options.segment_bytes,
        )

    def _note_dirty(self, store: SegmentStore) -> None:
        self._dirty[store] = None

    def _submit(self, group: CommitGroup) -> None:
        if self._committer is not None:
            self._committer.submit(group)
        else:
            group.commit(self._files)

    def _write_checkpoint(self, octets: bytes, position: EventPosition, now: int) -> None:
        """Write a checkpoint, and remove the files of the event log that nobody needs any more."""
        write_checkpoint(self._files, self._directory.checkpoints, octets)
        covered, self._covered = self._covered, position.file
        names = event_files(self._files, self._directory.events)
        for file, following in pairwise(names):
            # Its events are older than the first one of the file behind it.
            if file < covered and following < now - self._options.event_retention:
                self._files.unlink(f"{self._directory.events}/{file_name(file)}")

    def _clock(self) -> int:
        self._last_time = max(self._last_time, self._wall_clock())
        return self._last_time

    def _attempt(self, path: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self.report.failures.append(f"{path}: {error}")


def _now() -> int:
    return time_ns() // 1000


def _raise(error: OSError) -> None:
    raise error
