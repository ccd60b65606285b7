"""The storage engine: all stores of a broker, flushed once per turn, committed together, recovered at startup."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from leveret.storage.audit_log import AuditLog
from leveret.storage.callbacks import call_each
from leveret.storage.clock import AscendingClock, Clock
from leveret.storage.commit import CommitGroup, Committer, Copies, RedoLog, SyncMode, remove_redo
from leveret.storage.compaction import Compactor
from leveret.storage.directory.data_directory import DataDirectory, QueueRecord
from leveret.storage.disk.files import Descriptors, DiskFiles, DiskSpace, Files, is_shortage, sync_files
from leveret.storage.disk.trash import Trash
from leveret.storage.event_format import Event, EventDetails, EventKind
from leveret.storage.event_log import EventLog, EventPosition, read_events
from leveret.storage.readers.named_readers import NamedReaders
from leveret.storage.recovery.recovery_report import RecoveryReport
from leveret.storage.recovery.restart import SKIPPED, Checkpointer, Restart, commit_recovered
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.snapshots.lease import remove_dead_snapshots
from leveret.storage.stores.segment_store import SegmentStore, StoreState
from leveret.storage.stores.stream_store import file_bytes

_SECOND: Final = 1_000_000


class _Departure:
    """Moved messages whose copies are in one commit group.

    Attributes:
        runs: Number of oldest leaving runs by store.
        callbacks: Called after the originals have been settled.
        conditions: Number of conditions that are not fulfilled yet. These are that the group is synced, and that the
            queues of the copies are defined.
    """

    __slots__ = ("callbacks", "conditions", "runs")

    def __init__(self, runs: dict[SegmentStore, int], callbacks: list[Callable[[], None]]) -> None:
        self.runs: Final = runs
        self.callbacks: Final = callbacks
        self.conditions = 2


class Departures:
    """Dead-lettered, returned and moved messages whose copies are not yet synced.

    The event that removes the original is written only after the copy has been synced. Otherwise the event could be on
    disk before the copy, because all queues share the event log and every group syncs it. Until then the original is
    an ordinary live message of its segment: compaction copies it and checkpoints count it.

    Args:
        commit: Syncs everything written so far, then calls its argument. Groups are committed in order.
        when_defined: See EngineOptions.
    """

    __slots__ = ("_commit", "_under_way", "_waiting", "_when_begun", "_when_defined")

    def __init__(
        self,
        commit: Callable[[Callable[[], None]], None],
        when_defined: Callable[[Callable[[], None]], None],
    ) -> None:
        self._commit = commit
        self._when_defined = when_defined
        #: Stores with leaving messages whose copies may not be written yet.
        self._waiting: dict[SegmentStore, None] = {}
        self._when_begun: list[Callable[[], None]] = []
        self._under_way: deque[_Departure] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def add(self, store: SegmentStore) -> None:
        """Register a store with leaving messages."""
        self._waiting[store] = None

    def forget(self, store: SegmentStore) -> None:
        """Remove a deleted store."""
        self._waiting.pop(store, None)

    def leaving(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the originals as ranges: number of the queue, priority, first number, and the one after the last."""
        stores = dict(self._waiting)
        for departure in self._under_way:
            stores |= dict.fromkeys(departure.runs)
        for store in stores:
            for first, end in store.leaving.numbers():
                yield store.place.qid, store.place.priority, first, end

    def begin(self) -> None:
        """Commit the copies, all of which have been written, and settle the originals after the sync."""
        if self._waiting:
            departure = _Departure({store: store.leaving.cover() for store in self._waiting}, self._when_begun)
            self._waiting.clear()
            self._when_begun = []
            self._under_way.append(departure)
            fulfil = partial(self._fulfil, departure)
            self._commit(fulfil)
            self._when_defined(fulfil)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back after all originals that are leaving now have been settled. There must be at least one."""
        (self._when_begun if self._waiting else self._under_way[-1].callbacks).append(callback)

    def _fulfil(self, departure: _Departure) -> None:
        """Note that a condition is fulfilled; end all departures, in order, that wait for nothing more."""
        departure.conditions -= 1
        under_way = self._under_way
        while under_way and not under_way[0].conditions:
            done = under_way.popleft()
            settling = [partial(store.settle_left, runs) for store, runs in done.runs.items()]
            call_each(settling, "while moved messages were settled")
            call_each(done.callbacks, "after moved messages were settled")


class Commits:
    """What has been written since the last commit group, and the callbacks that wait for the disk.

    Groups are committed at once, in the calling thread, until a committer is given to start().

    Args:
        mode: When written data is synced, once there is a committer.
        when_defined: See EngineOptions.

    Attributes:
        departures: Moved messages whose copies are not yet synced.
        has_unwritten_events: Whether the last attempt to write events failed.
    """

    __slots__ = (
        "_committer", "_directory", "_events", "_files", "_mode", "_queues", "_redo", "_stores", "_waiting",
        "departures", "has_unwritten_events",
    )  # fmt: skip

    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        events: EventLog,
        redo: RedoLog,
        mode: SyncMode,
        when_defined: Callable[[Callable[[], None]], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._events = events
        self._redo = redo
        self._mode = mode
        self._committer: Committer | None = None
        #: New queues whose directories must be synced.
        self._queues: set[int] = set()
        #: Bytes written by store.
        self._stores: dict[SegmentStore, int] = {}
        #: Callbacks that wait until unwritten events are on disk.
        self._waiting: list[Callable[[], None]] = []
        self.departures = Departures(self._commit_copies, when_defined)
        self.has_unwritten_events = False

    def start(self, committer: Committer) -> None:
        """Commit the following groups in a thread."""
        self._committer = committer

    @property
    def is_threaded(self) -> bool:
        """Whether groups are committed in a thread."""
        return self._committer is not None

    @property
    def _waits_for_syncs(self) -> bool:
        """Whether callbacks wait for syncs."""
        return self._committer is None or self._mode is SyncMode.ALWAYS

    def add_queue(self, qid: int) -> None:
        """Register a new queue."""
        self._queues.add(qid)

    def add(self, store: SegmentStore, written: int = 0) -> int:
        """Register a store with data for the next commit group.

        Args:
            written: Bytes that it has written.
        Returns:
            Bytes that it has written since the last group.
        """
        total = self._stores[store] = self._stores.get(store, 0) + written
        return total

    def forget(self, qid: int, stores: Iterable[SegmentStore]) -> None:
        """Remove a deleted queue and its stores."""
        self._queues.discard(qid)
        for store in stores:
            self._stores.pop(store, None)
            self.departures.forget(store)

    def collect(self, events: bool, keep: bool = False) -> CommitGroup:
        """Return a commit group that syncs everything written since the last one.

        Args:
            events: Sync the event log even if no file action depends on it.
            keep: Also collect from the same stores for the next group.
        """
        group = CommitGroup()
        for qid in self._queues:
            self._directory.collect_queue(group, qid)
        self._queues.clear()
        for store in self._stores:
            store.log.collect(group)
        if not keep:
            self._stores.clear()
        if events or group.file_actions:
            self._events.collect(group)
        return group

    def commit(self, callback: Callable[[], None] | None = None, events: bool = False) -> None:
        """Sync everything written; see StorageEngine.commit()."""
        if events and callback is not None and self.departures and self._waits_for_syncs:
            self.departures.when_done(partial(self._await_events, callback))
            callback = None
        self._commit(callback, events)

    def _await_events(self, callback: Callable[[], None]) -> None:
        # Not the list's own append(): the list is another one after each note_events_written().
        self._waiting.append(callback)

    def _commit(self, callback: Callable[[], None] | None, events: bool) -> None:
        group = self.collect(events)
        if callback is None:
            pass
        elif events and self.has_unwritten_events:
            self._waiting.append(callback)
        elif self._committer is None or self._mode is SyncMode.ALWAYS:
            group.callbacks.append(callback)
        else:
            self._committer.deliver(callback)
        if group:
            self.submit(group)

    def _commit_copies(self, callback: Callable[[], None]) -> None:
        """Sync everything written, in any sync mode, then call back."""
        group = self.collect(events=False)
        group.callbacks.append(callback)
        self.submit(group)

    def submit(self, group: CommitGroup) -> None:
        """Commit a group."""
        if self._committer is None:
            group.commit(self._files, self._redo)
            return
        if self._mode is SyncMode.OFF:
            group.clear_syncs()
        self._committer.submit(group)

    @property
    def has_deferred(self) -> bool:
        """Whether moved messages, or events that could not be written, are still to be committed."""
        return bool(self.departures) or self.has_unwritten_events

    def note_events_written(self) -> None:
        """Commit the callbacks that waited for events, all of which have been written."""
        self.has_unwritten_events = False
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            # In one group, as they wait for the same events.
            self._commit(partial(call_each, waiting, "after events were written"), events=True)

    def wait(self) -> None:
        """Wait until everything submitted has been synced, if callbacks wait for that."""
        if self._waits_for_syncs:
            self.barrier()()

    def barrier(self) -> Callable[[], bool]:
        """Return what waits until everything submitted has been synced; see Committer.barrier()."""
        return _nothing_to_sync if self._committer is None else self._committer.barrier()

    def close(self) -> bool:
        """End the thread; following groups are committed at once. Return whether all syncs succeeded."""
        committer, self._committer = self._committer, None
        return committer is None or committer.close()


def _nothing_to_sync() -> bool:
    return True


#: Segments that must fit into the free space.
_SEGMENTS_NEEDED: Final = 3


def _at_once(callback: Callable[[], None]) -> None:
    callback()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of a StorageEngine.

    Attributes:
        segment_bytes: Size in bytes at which a segment is sealed.
        event_retention: Retention of events in microseconds; events that no checkpoint covers are always kept.
        trash_us: Retention of dropped segments in microseconds, for readers.
        trash_bytes: Maximum total size of dropped segments; the oldest are removed earlier above it.
        sync: When written data is synced.
        sync_interval: Minimum microseconds between syncs, for SyncMode.INTERVAL.
        redo_segments: Minimum number of segments in a commit group for which the redo log is used; 0 for never.
        redo_bytes: Size in bytes at which a new redo log is started.
        disk_free_limit: Free disk space in bytes below which the alarm is set; see DiskSpace.
        append_files: Maximum number of segments open for appending; a few more during syncs.
        read_files: Maximum number of segments open for reading.
        ballast_bytes: Disk space reserved for writes that must succeed on a full disk; 0 for none.
        reader_max_age: Microseconds after which a named reader that is not seen is dropped.
        reader_max_bytes: Maximum size of the files that are kept for named readers alone.
        when_defined: Calls back once all queues made so far are certain to exist after a crash. The removal events of
            moved messages wait for that, as their copies are in one of these queues.
        copies: Other machines that must have what is synced before anybody is told; None without.
    """

    segment_bytes: int = 16 << 20
    event_retention: int = 7 * 86_400 * _SECOND
    trash_us: int = 60 * _SECOND
    trash_bytes: int = 64 << 20
    sync: SyncMode = SyncMode.ALWAYS
    sync_interval: int = 200_000
    redo_segments: int = 3
    redo_bytes: int = 32 << 20
    disk_free_limit: int = 50_000_000
    append_files: int = 256
    read_files: int = 128
    ballast_bytes: int = 32 << 20
    reader_max_age: int = 86_400 * _SECOND
    reader_max_bytes: int = 1 << 30
    when_defined: Callable[[Callable[[], None]], None] = _at_once
    copies: Copies | None = None

    @property
    def bytes_needed(self) -> int:
        """Bytes that the stores may write before publishers are blocked."""
        return _SEGMENTS_NEEDED * self.segment_bytes + (self.redo_bytes if self.redo_segments else 0)


_LOG: Final = logging.getLogger("leveret.storage")
#: Unsynced bytes of a store that start a commit at once: a larger sync would stall later writes for too long.
_DIRTY_BYTES: Final = 4 << 20
#: Bytes that a write may add to a segment of a stream that is not full.
_STREAM_WRITE_BYTES: Final = 64 << 10
#: Work of one call of refresh_readers(), in bytes: some milliseconds.
_REFRESH_WORK: Final = 32 << 10
_END_OF_TIME: Final = 1 << 62


@dataclass(slots=True)
class StoredQueue:
    """A queue of the storage engine.

    Attributes:
        qid: Number of the queue.
        durable: Whether it survives a restart.
        attributes: Metadata of the broker.
        salt: Checksum salt of its files.
        stores: Stores by priority.
    """

    qid: int
    durable: bool
    attributes: Mapping[str, object]
    salt: int
    stores: dict[int, SegmentStore] = field(default_factory=dict)

    @property
    def persists_transient(self) -> bool:
        """Whether transient messages survive a restart too; stored as an attribute."""
        return bool(self.attributes.get("persists_transient"))

    @property
    def stream_segment_bytes(self) -> int | None:
        """Size of the segments of a stream in bytes, stored as an attribute; None for a queue."""
        size = self.attributes.get("stream_segment_bytes")
        return size if isinstance(size, int) else None


class StorageEngine:
    """All stores of a data directory. Used by one thread; only syncs and compaction run in others.

    Opening it recovers the existing data. In each turn: append, take and settle on stores, then flush(), then commit()
    if a callback waits for the disk. About once a second: housekeeping().

    Args:
        deliver: Schedules a function in the thread that owns the engine; None to commit synchronously in that thread.
        on_failure: Called with the error of a failed sync; see Committer.
        on_disk_alarm: Called with the monitor of the free disk space when its alarm is set or cleared.
        on_work: Called when there is work for flush(), once per flush().
    Raises:
        DirectoryInUseError: Another process has it open.
        DataDirectoryError: It cannot be used; the message says why.
        UnreadableFileError: A file in it that is needed cannot be read.
        OSError: It cannot be read or written.

    Attributes:
        queues: Recovered durable queues and queues created since, by number.
        report: Report of the recovery.
        readers: Named readers, and what is kept for them.
        disk: Monitor of the free disk space.
        clock: Times of messages and events.
    """

    def __init__(
        self,
        path: str,
        deliver: Callable[[Callable[[], None]], object] | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        options: EngineOptions | None = None,
        on_disk_alarm: Callable[[DiskSpace], None] | None = None,
        on_work: Callable[[], None] | None = None,
    ) -> None:
        self._files = files or DiskFiles()
        self._system_clock = clock or Clock()
        self.clock = AscendingClock(self._system_clock)
        self._options = options or EngineOptions()
        self._directory = DataDirectory(self._files, path, self.clock)
        self._events = EventLog(self._files, self._directory.events, self._directory.store_id, self.clock)
        self._descriptors = Descriptors(self._options.append_files, self._options.read_files)
        self._trash = Trash(self._files, self._options.trash_us, self._options.trash_bytes)
        ages = self._options.reader_max_age, self._options.reader_max_bytes
        self.readers = NamedReaders(self._files, path, self._trash, *ages, self._system_clock)
        self.queues: dict[int, StoredQueue] = {}
        self.report = RecoveryReport()
        #: What is known of stores whose queue has lost its directory, by number and priority.
        self._missing: dict[int, dict[int, StoreState]] = {}
        #: First numbers of the stores of queues that were made again, by number and priority.
        self._first_seqs: dict[tuple[int, int], int] = {}
        self._on_work = on_work or _ignore
        self._dirty: dict[SegmentStore, None] = {}
        #: Stores whose last flush failed. Retried by the next flush(), about once a second at the latest.
        self._failed_stores: dict[SegmentStore, None] = {}
        self._stores_with_dead: dict[SegmentStore, None] = {}
        #: Stores used recently, whose idle() is called by housekeeping().
        self._recently_used: dict[SegmentStore, None] = {}
        self._compactor = Compactor(deliver, self._compacted, self._sync)
        self._checkpointer = Checkpointer(
            self._files, self._directory, self._events, self._options.event_retention, self.clock
        )
        self._ticked = 0
        #: Reads the files of named readers in steps; None when all have been read.
        self._refreshing: Iterator[int] | None = None
        where, what = self._directory, self._options
        self._redo = RedoLog(self._files, where.redo, where.store_id, what.redo_segments, what.redo_bytes)
        self._audit: AuditLog | None = None
        self._commits = Commits(self._files, where, self._events, self._redo, what.sync, what.when_defined)
        room = what.disk_free_limit, what.bytes_needed, what.ballast_bytes
        self.disk = DiskSpace(self._files, where.path, *room, on_disk_alarm or _ignore)
        try:
            self._recover(threaded=deliver is not None)
        except BaseException:
            self._directory.close()
            raise
        if deliver is not None:
            interval = self._options.sync_interval / _SECOND if self._options.sync is SyncMode.INTERVAL else 0.0
            self._commits.start(
                Committer(self._files, deliver, on_failure or _raise, interval, self._redo, self._options.copies)
            )

    # --- queues -------------------------------------------------------------------------------------------------------

    def create_queue(self, durable: bool, attributes: Mapping[str, object]) -> StoredQueue:
        """Create a queue. It survives a crash after the next commit.

        Args:
            durable: Whether it outlives the process.
            attributes: Metadata of the broker that JSON can represent.
        Raises:
            OSError: It could not be created.
        """
        return self._add_queue(self._directory.make_queue(durable, attributes))

    def new_store(self) -> SegmentStore:
        """Return a new store in memory, of a queue that is not durable; see add_files()."""
        return SegmentStore(self.clock)

    def add_files(self, queue: StoredQueue, priority: int, store: SegmentStore) -> None:
        """Give a store that was in memory to a queue, so that it is written from now on when it is paged out.

        Args:
            priority: 0..255; the queue has no store of it.
        """
        self._open_files(queue, store, self._place(queue.qid, priority, queue.salt))
        store.set_lazy(False)
        store.paging.adopt_window()

    def store(self, queue: StoredQueue, priority: int = 0) -> SegmentStore:
        """Return the store of one priority, 0..255, of a queue; create it if missing."""
        store = queue.stores.get(priority)
        if store is None:
            first_seq = self._first_seqs.pop((queue.qid, priority), 1)
            place = self._place(queue.qid, priority, queue.salt)
            state = StoreState(dead=DeadSet(first_seq), next_seq=first_seq)
            store = self._open_store(queue, place, None, state)
        return store

    def replace_missing(self, qid: int, name: str) -> StoredQueue | None:
        """Make a durable queue again whose directory is gone, under its number, and report what is lost.

        Args:
            qid: Its number in the definitions.
            name: What it is, for the report.
        Returns:
            The queue, without attributes. Its messages have higher numbers than those that are lost. None if another
            queue has that number.
        Raises:
            OSError: It could not be created.
        """
        if qid in self.queues:
            return None
        states = self._missing.pop(qid, {})
        queue = self._add_queue(self._directory.make_queue(True, {}, qid))
        self._note_missing(qid, f"of {name} is missing; it is made again", states)
        for priority, state in states.items():
            skipped = 0 if state.told is not None else SKIPPED
            self._first_seqs[qid, priority] = state.next_seq + skipped
        return queue

    def note_missing(self) -> None:
        """Report lost directories of which the definitions say nothing, after replace_missing() for all others."""
        missing, self._missing = self._missing, {}
        for qid, states in missing.items():
            if any(state.dead.count_live(1, state.next_seq) for state in states.values()):
                what = "is missing; it had a queue that was not durable, or how far a stream's named consumers had read"
                self._note_missing(qid, what, states)

    def _note_missing(self, qid: int, what: str, states: Mapping[int, StoreState]) -> None:
        lost = 0
        for priority, state in states.items():
            for start, stop in state.dead.live_runs(1, state.next_seq):
                self._events.add(qid, priority, start, stop - start, EventKind.LOST, 0, 0, 0)
                lost += stop - start
        if not lost:
            what += ", and what messages it had is not known"
        uncertain = "as the last checkpoint and the events know them, and some may have been transient"
        self.report.note(self._directory.queue_path(qid), what, lost, uncertain if lost else "")
        _LOG.warning("recovery: %s", self.report.damage[-1])

    def delete_queue(self, queue: StoredQueue) -> None:
        """Delete a queue; its directory is removed by the next commit group."""
        stores = queue.stores.values()
        if any(store.leaving for store in stores):
            # Copies of moved messages must be synced before the queue is removed.
            self.flush()
            self._commits.wait()
            for store in stores:
                store.settle_left(len(store.leaving))
        for store in stores:
            self._compactor.forget(store)
            store.close()
            store.flush()
            for noted in (self._dirty, self._failed_stores, self._stores_with_dead, self._recently_used):
                noted.pop(store, None)
            store.log.drop_dead()
        del self.queues[queue.qid]
        self.readers.remove_queue(queue.qid)
        self._commits.forget(queue.qid, stores)
        # If there is no space, events are kept in memory, and the queue is deleted nevertheless.
        self._flush_events()
        group = self._commits.collect(events=True)
        for store in stores:
            store.log.collect(group)
        has_events = any(store.noted or store.next_seq > 1 for store in stores)
        deleted = self.clock() if has_events else None
        group.file_actions.append(partial(self._directory.discard_queue, queue.qid, deleted))
        group.file_actions.append(self._directory.empty_trash)
        self._commits.submit(group)

    # --- end of a turn and periodic work ------------------------------------------------------------------------------

    def flush(self) -> dict[SegmentStore, OSError]:
        """Write all changes of stores since the last call, then events.

        A full disk raises no exception: it sets the alarm. Events that cannot be written are kept.

        Returns:
            The stores that could not be written, with errors. The next call retries them. Their publishers must not
            get confirms.
        """
        changed = self._dirty or self._failed_stores or self._stores_with_dead or self._events.waiting
        if not (changed or self._commits.has_deferred or self.disk.needs_check):
            # As in most turns without messages for the disk.
            return {}
        failures: dict[SegmentStore, OSError] = {}
        dirty, self._dirty, self._failed_stores = self._dirty | self._failed_stores, {}, {}
        files = self._files
        most = 0
        before = files.appended
        for store in dirty:
            try:
                store.flush()
            except OSError as error:
                failures[store] = error
                self._failed_stores[store] = None
            appended = files.appended
            most = max(most, self._commits.add(store, appended - before))
            before = appended
            if store.leaving.uncovered:
                self._commits.departures.add(store)
        self._stores_with_dead |= dirty
        self._recently_used |= dirty
        if not failures:
            self._commits.departures.begin()
        settled = self._flush_events()
        if settled:
            self._drop_dead_segments()
        lacks_descriptors = any(map(is_shortage, failures.values()))
        if lacks_descriptors:
            self._descriptors.close_all()
        self.disk.note_write(bool(failures) or not settled, lacks_descriptors)
        if self.disk.check_due:
            self.disk.check()
        if most > _DIRTY_BYTES:
            self.commit()
        return failures

    def note_unroutable(self, count: int, body_bytes: int, flags: int, details: EventDetails) -> None:
        """Add an event for unroutable messages.

        Args:
            body_bytes: Sum of their body lengths.
            flags: TOLD, or 0.
            details: Where they were published to, and by whom.
        """
        self._events.add_described(0, 0, count, EventKind.UNROUTABLE, flags, body_bytes, details)

    @property
    def events_end(self) -> EventPosition | None:
        """Position of the next event; None while there is work for flush()."""
        return None if self._dirty or self._failed_stores or self._events.waiting else self._events.position

    def commit(self, callback: Callable[[], None] | None = None, events: bool = False) -> None:
        """Sync everything that flush() wrote, according to the sync mode.

        Args:
            callback: Called after the sync, or at once if the sync mode does not wait, in the thread that owns the
                engine.
            events: Sync the event log too, because a settlement must be durable. The callback then also waits for
                events that could not be written yet and for the copies of moved messages.
        """
        self._commits.commit(callback, events)

    def open_audit_log(self, keep_seconds: int, keep_bytes: int) -> AuditLog:
        """Open the audit log of the data directory; see AuditLog.

        Raises:
            OSError: It cannot be used.
        """
        where = self._directory
        self._audit = AuditLog(self._files, where.path, where.store_id, self.clock, keep_seconds, keep_bytes)
        return self._audit

    def _sync_audit_log(self) -> None:
        """Sync what has been written to the audit log, as the stores are synced."""
        if self._audit is not None:
            group = CommitGroup()
            paths, has_new = self._audit.take_unsynced()
            group.journal_paths |= dict.fromkeys(paths)
            if has_new:
                group.directories[self._audit.directory] = None
            if group:
                self._commits.submit(group)

    def watch_disk(self) -> float:
        """Check the free disk space; return the seconds until the next call."""
        pause = self.disk.check()
        if self.disk.alarm:
            self._remove_expired(is_short=True)
        return pause

    def housekeeping(self) -> set[int]:
        """Run periodic work: close idle files, sync events, tick, compact, empty old trash, write a checkpoint.

        Called about once a second, after flush().

        Returns:
            Numbers of the queues that have ready messages again which the system could not read before.
        """
        readable: set[int] = set()
        self._descriptors.close_idle()
        self.refresh_readers()
        for store in [*self._recently_used]:
            if store.bring_back():
                readable.add(store.place.qid)
            if store.idle():
                del self._recently_used[store]
        is_written = not self.flush() and not self._commits.has_unwritten_events
        if is_written and self._files.appended - self._checkpointer.written != self._ticked:
            self._tick()
            self._ticked = self._files.appended - self._checkpointer.written
        if not self.disk.alarm:
            # Compaction needs space before it frees some.
            self._compactor.run_background(self.clock())
        self._sync_audit_log()
        self.commit(events=True)
        self._remove_expired(is_short=False)
        if self._checkpointer.due and not self._commits.has_unwritten_events:
            if is_written and self._commits.departures:
                # Readers of the checkpoint look there for what has copies.
                self._tick()
            self.checkpoint()
        return readable

    def _tick(self) -> None:
        """Write a tick; everything else must have been written."""
        self._events.tick(self._commits.departures.leaving())
        # Later messages get later times than this tick.
        self.clock.advance_past()
        self._flush_events()

    def refresh_readers(self) -> bool:
        """Go on reading what named readers have read, and who reads which queue; housekeeping() begins.

        Returns:
            Whether something is left to read.
        """
        readers, work = self.readers, 0
        if self._refreshing is None:
            self._refreshing = readers.refresh_for(self.queues)
        for step in self._refreshing:
            work += step
            if work >= _REFRESH_WORK:
                return True
        self._refreshing = None
        if readers.take_changes():
            for queue in self.queues.values():
                for store in queue.stores.values():
                    store.paging.keeps_dead = readers.reads(queue.qid)
            self._checkpointer.reader_retention = readers.retention
        action = readers.next_action()
        if action is not None:
            group = CommitGroup()
            group.file_actions.append(action)
            group.file_actions.append(self._keep_directories())
            self._commits.submit(group)
        return False

    def _keep_directories(self) -> Callable[[], None]:
        """Return what tells the directory which deleted queues a backup needs."""
        holds = self.readers.holds
        return partial(self._directory.keep_trash, holds.since, holds.max_bytes)

    @property
    def is_refreshing(self) -> bool:
        """Whether refresh_readers() has something left to read."""
        return self._refreshing is not None

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint with the next commit group, so that recovery reads only later events.

        Args:
            clean: Whether this is the last write before a clean shutdown.
        """
        self._write_checkpoint(self._commits.collect(events=True), clean)

    def close(self) -> bool:
        """Write and sync everything and close the engine; return whether that succeeded."""
        self._compactor.close()
        succeeded = not self.flush()
        succeeded = self._commits.close() and succeeded
        # Settles moved messages now that their copies are synced.
        succeeded = not self.flush() and not self._events.waiting and not self._commits.departures and succeeded
        stores = self._stores()
        for store in stores:
            store.log.seal_active()
            self._commits.add(store)
        if succeeded:
            try:
                self._finish(stores)
            except OSError as error:
                _LOG.error("The data directory could not be closed cleanly: %s", error)
                succeeded = False
        self._close_files()
        return succeeded

    def _finish(self, stores: Sequence[SegmentStore]) -> None:
        """Sync everything and write a checkpoint that marks a clean shutdown."""
        if self._options.sync is SyncMode.OFF:
            for qid in self.queues:
                for path in map(partial(self._directory.store_path, qid), self._directory.priorities(qid)):
                    sync_files(self._files, path)
            self._files.sync_directory(f"{self._directory.path}/q")
        # The first commit writes manifest edits, which the second one syncs.
        for _ in range(2):
            self.commit(events=True)
            for store in stores:
                self._commits.add(store)
        self.checkpoint(clean=True)
        self._redo.clear()

    def _add_queue(self, record: QueueRecord) -> StoredQueue:
        """Add a queue whose directory has just been made."""
        queue = self.queues[record.qid] = StoredQueue(record.qid, record.durable, record.attributes, record.salt or 0)
        self.readers.add(record.qid, record.attributes)
        if record.durable:
            self._commits.add_queue(record.qid)
        return queue

    # --- internal -----------------------------------------------------------------------------------------------------

    def _stores(self) -> list[SegmentStore]:
        return [store for queue in self.queues.values() for store in queue.stores.values()]

    def _place(self, qid: int, priority: int, salt: int) -> StorePlace:
        """Return the place of a store."""
        return StorePlace(
            self._files,
            self._directory.store_path(qid, priority),
            qid,
            priority,
            salt,
            self._directory.store_id,
            self.clock,
            self._trash,
            self._options.segment_bytes,
            self._descriptors,
        )

    def _open_store(
        self, queue: StoredQueue, place: StorePlace, manifest: Manifest | None, state: StoreState
    ) -> SegmentStore:
        store = SegmentStore(self.clock, queue.durable, state, queue.persists_transient)
        self._open_files(queue, store, place, manifest, state.segments)
        return store

    def _open_files(
        self,
        queue: StoredQueue,
        store: SegmentStore,
        place: StorePlace,
        manifest: Manifest | None = None,
        segments: Sequence[Segment] = (),
    ) -> None:
        unit_bytes = queue.stream_segment_bytes
        if unit_bytes is not None:
            size = file_bytes(unit_bytes, self._options.segment_bytes)
            place = replace(place, segment_bytes=size, write_bytes=_STREAM_WRITE_BYTES)
        store.add_files(place, self._events, self._note_dirty, manifest, segments)
        queue.stores[place.priority] = store
        store.paging.keeps_dead = self.readers.reads(queue.qid)

    def _recover(self, threaded: bool) -> None:
        """Recover all stores, then write events, manifests and a checkpoint."""
        report, files, directory = self.report, self._files, self._directory
        if files.list_directory(directory.redo) and files.free_space(directory.path) < self.disk.limit:
            # Restoring segments from the redo log needs space.
            self.disk.release_ballast()
        keeps_numbers = self._options.sync is SyncMode.ALWAYS
        self.readers.begin_with_trash()
        self._keep_directories()()
        restart = Restart(files, directory, self._events, self._place, report, keeps_numbers)
        restored = restart.run()
        self._missing = restart.missing
        self.clock.advance_past(restart.latest)
        for record, stores in restored:
            queue = StoredQueue(record.qid, True, record.attributes, record.salt or 0)
            self.queues[record.qid] = queue
            for place, manifest, state in stores:
                store = self._open_store(queue, place, manifest, state)
                store.log.drop_dead()
                self._commits.add(store)
                self._stores_with_dead[store] = None
        while self.refresh_readers():
            pass
        self._flush_events()
        # The callbacks write to the manifests which segments are sealed; the next group syncs that.
        commit_recovered(self._commits.collect(True, keep=True), files, self._redo, threaded)
        try:
            self._write_checkpoint(CommitGroup(), clean=False)
            if not report.failures:
                remove_redo(files, directory.redo)
        except OSError as error:
            report.failures.append(f"{directory.path}: {error}")
        for line in report.lines():
            _LOG.warning("recovery: %s", line)

    def _write_checkpoint(self, group: CommitGroup, clean: bool) -> None:
        # Includes non-durable queues: recovery does not need them, but readers do.
        stores = (
            (queue.qid, priority, store) for queue in self.queues.values() for priority, store in queue.stores.items()
        )
        self._checkpointer.add(group, stores, clean)
        self.clock.advance_past()
        self._commits.submit(group)

    def _note_dirty(self, store: SegmentStore) -> None:
        if not self._dirty:
            self._on_work()
        self._dirty[store] = None

    def _flush_events(self) -> bool:
        """Write events, releasing the ballast if necessary; return False if they could not be written."""
        while self._events.waiting:
            try:
                self._events.flush()
            except OSError:
                if not self.disk.release_ballast():
                    self._commits.has_unwritten_events = True
                    return False
            else:
                break
        if self._events.waiting:
            self._commits.has_unwritten_events = True
        else:
            self._commits.note_events_written()
        return True

    def _drop_dead_segments(self) -> None:
        """Drop segments without live messages, after the events that settled these have been written."""
        checked, self._stores_with_dead = self._stores_with_dead, {}
        has_dropped = False
        for store in checked:
            if store.log.has_dead:
                if not store.log.drop_dead() and not (self.disk.release_ballast() and store.log.drop_dead()):
                    self._stores_with_dead[store] = None
                self._commits.add(store)
                has_dropped = has_dropped or store.log.has_dropped
        if has_dropped:
            # Frees the space even if nothing else is committed soon.
            self.commit()
        for store in checked:
            self._consider(store)

    def _compacted(self, store: SegmentStore) -> None:
        """Commit replaced segments, so that the old files are removed, and check whether more compaction is needed."""
        self._commits.add(store)
        self.commit()
        self._reconsider(store)

    def _reconsider(self, store: SegmentStore) -> None:
        if store.place.qid not in self.queues:
            return
        self._stores_with_dead[store] = None
        if self._commits.is_threaded:
            # Events must be written before messages that died since may be left out by compaction.
            self.flush()
        else:
            self._consider(store)

    def _sync(self, store: SegmentStore) -> None:
        """Sync a store's segments in any sync mode, then check again whether to compact it."""
        self._commits.add(store)
        group = self._commits.collect(events=True)
        group.callbacks.append(partial(self._reconsider, store))
        self._commits.submit(group)

    def _remove_expired(self, is_short: bool) -> None:
        """Remove expired trash and snapshots; all of them if the disk is short of space."""
        group = CommitGroup()
        group.file_actions.append(partial(self._trash.expire, _END_OF_TIME if is_short else self.clock()))
        if is_short:
            group.file_actions.append(self._trash.give_up)
            group.file_actions.append(partial(self._directory.keep_trash, None, 0))
        if isinstance(self._files, DiskFiles):
            now = self._system_clock.now() / 1_000_000
            group.file_actions.append(partial(remove_dead_snapshots, self._directory.path, now, is_short))
        self._commits.submit(group)

    def _consider(self, store: SegmentStore) -> None:
        """Let the compactor check a store if enough of it has died."""
        log = store.log
        if log.dead_bytes >= log.next_check:
            self._compactor.consider(store)
        elif log.dead_bytes:
            self._compactor.candidates[store] = None

    def abandon(self) -> None:
        """Close all files as the death of the process does. Nothing may be called after it."""
        self._compactor.abandon()
        self._commits.close()
        self._close_files()

    def _close_files(self) -> None:
        for store in self._stores():
            store.log.close()
        self._redo.close()
        self._events.close()
        self._directory.close()

    def is_moving(self) -> bool:
        """Return whether messages are being moved whose copies may not be on disk yet."""
        return bool(self._commits.departures)

    def sync_copies(self) -> Callable[[], bool] | None:
        """Write the copies of moved messages, without which their queue must not be deleted for good.

        Returns:
            What waits, in any thread, until they are synced; it returns False if a sync failed. None if no messages
            are being moved.
        """
        self.flush()
        return self._commits.barrier() if self.is_moving() else None

    def describe_queue(self, queue: StoredQueue, attributes: Mapping[str, object]) -> None:
        """Set the attributes of a queue again, which damage has destroyed.

        Args:
            queue: The queue; its directory was recovered without attributes.
            attributes: See StorageEngine.create_queue(). The size of the segments of a stream takes effect at the next
                start.
        Raises:
            OSError: They could not be written.
        """
        queue.attributes = attributes
        self.readers.add(queue.qid, attributes)
        for store in queue.stores.values():
            if queue.persists_transient:
                store.persist_transient()
        self._directory.write_queue(QueueRecord(queue.qid, queue.salt, queue.durable, attributes))

    def events_since(self, position: EventPosition) -> Iterator[Event]:
        """Return the logged events of an engine from a position on."""
        directory = self._directory
        log = read_events(self._files, directory.events, directory.store_id, position)
        # Kinds above TICK say more about the events that follow.
        return (event for event in log if event is not None and event.kind <= EventKind.TICK)


def _ignore(*_: object) -> None:
    pass


def _raise(error: OSError) -> None:
    raise error
