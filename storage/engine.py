"""The storage engine: all stores of a broker, flushed once per turn, committed together, recovered at startup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from leveret.storage.audit_log import AuditLog
from leveret.storage.clock import AscendingClock, Clock
from leveret.storage.commit.committer import CommitGroup, Committer, SyncMode
from leveret.storage.commit.redo_log import RedoLog, remove_redo
from leveret.storage.commits import Commits
from leveret.storage.compaction.compactor import Compactor
from leveret.storage.directory.data_directory import DataDirectory, QueueRecord
from leveret.storage.disk.descriptors import Descriptors, is_shortage
from leveret.storage.disk.files import DiskFiles, Files, sync_files
from leveret.storage.disk.space import DiskSpace
from leveret.storage.disk.trash import Trash
from leveret.storage.engine_options import EngineOptions
from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import Event, EventKind
from leveret.storage.event_log import EventLog, EventPosition, read_events
from leveret.storage.readers.named_readers import NamedReaders
from leveret.storage.recovery.checkpointer import Checkpointer
from leveret.storage.recovery.recovery_report import RecoveryReport
from leveret.storage.recovery.restart import SKIPPED, Restart, commit_recovered
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.snapshots.lease import remove_dead_snapshots
from leveret.storage.stores.retention import file_bytes
from leveret.storage.stores.segment_store import SegmentStore, StoreState

__all__ = ["EngineOptions", "StorageEngine", "StoredQueue"]

_LOG: Final = logging.getLogger("leveret.storage")
#: Unsynced bytes of a store that start a commit at once: a larger sync would stall later writes for too long.
_DIRTY_BYTES: Final = 4 << 20
#: Bytes that a write may add to a segment of a stream that is not full.
_STREAM_WRITE_BYTES: Final = 64 << 10
#: Work of one call of refresh_readers(), in bytes: some milliseconds.
_REFRESH_WORK: Final = 32 << 10
_SECOND: Final = 1_000_000
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
        self._clock = AscendingClock(self._system_clock)
        self._options = options or EngineOptions()
        self._directory = DataDirectory(self._files, path, self._clock)
        self._events = EventLog(self._files, self._directory.events, self._directory.store_id, self._clock)
        self._descriptors = Descriptors(self._options.append_files, self._options.read_files)
        self._trash = Trash(self._files, self._options.trash_us, self._options.trash_bytes)
        self.readers = NamedReaders(self._files, path, self._trash, self._options, self._system_clock)
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
            self._files, self._directory, self._events, self._options.event_retention, self._clock
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
        return SegmentStore(self._clock)

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
        deleted = self._clock() if has_events else None
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
        self._audit = AuditLog(self._files, where.path, where.store_id, self._clock, keep_seconds, keep_bytes)
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
            self._compactor.run_background(self._clock())
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
        self._clock.advance_past()
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
            self._clock,
            self._trash,
            self._options.segment_bytes,
            self._descriptors,
        )

    def _open_store(
        self, queue: StoredQueue, place: StorePlace, manifest: Manifest | None, state: StoreState
    ) -> SegmentStore:
        store = SegmentStore(self._clock, queue.durable, state, queue.persists_transient)
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
        self._clock.advance_past(restart.latest)
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
        self._clock.advance_past()
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
        group.file_actions.append(partial(self._trash.expire, _END_OF_TIME if is_short else self._clock()))
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
