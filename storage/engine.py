"""The storage engine: all stores of a broker, flushed once per turn, committed together, recovered at startup."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from leveret.storage.clock import AscendingClock, Clock
from leveret.storage.commit.committer import Committer, SyncMode
from leveret.storage.commit.group import CommitGroup
from leveret.storage.commit.redo_log import RedoLog, remove_redo
from leveret.storage.compaction.compactor import Compactor
from leveret.storage.departures import Departures
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.disk.descriptors import Descriptors, is_shortage
from leveret.storage.disk.files import DiskFiles, Files, sync_files
from leveret.storage.disk.space import DiskSpace
from leveret.storage.disk.trash import Trash
from leveret.storage.engine_options import EngineOptions
from leveret.storage.event_format import Event, EventKind
from leveret.storage.event_log import EventLog, EventPosition, read_events
from leveret.storage.recovery.checkpointer import Checkpointer
from leveret.storage.recovery.report import RecoveryReport
from leveret.storage.recovery.restart import Restart, commit_recovered
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.snapshots.lease import remove_dead_snapshots
from leveret.storage.store_places import StorePlaces
from leveret.storage.stores.segment_store import SegmentStore, StoreState
from leveret.storage.stores.stored_queue import StoredQueue
from leveret.storage.uncommitted import Uncommitted

__all__ = ["EngineOptions", "StorageEngine", "StoredQueue", "events_since"]

_LOG: Final = logging.getLogger("leveret.storage")
#: Unsynced bytes of a store that start a commit at once: a larger sync would stall later writes for too long.
_DIRTY_BYTES: Final = 4 << 20
_SECOND: Final = 1_000_000
_END_OF_TIME: Final = 1 << 62


class StorageEngine:
    """All stores of a data directory. Used by one thread; only syncs and compaction run in others.

    Opening it recovers the existing data. In each turn: append, take and settle on stores, then flush(), then commit()
    if a callback waits for the disk. About once a second: housekeeping().

    Args:
        path: The data directory.
        deliver: Schedules a function in the thread that owns the engine; None to commit synchronously in that thread.
        on_failure: Called with the error of a failed sync; see Committer.
        files: The file system interface.
        clock: The clock of the broker.
        options: Options of the engine.
        on_disk_alarm: Called with the monitor of the free disk space when its alarm is set or cleared.
    Raises:
        DirectoryInUseError: Another process has it open.
        DataDirectoryError: It cannot be used; the message says why.
        OSError: It cannot be read or written.

    Attributes:
        queues: Recovered durable queues and queues created since, by number.
        report: Report of the recovery.
        disk: Monitor of the free disk space.
        on_work: Called when there is work for flush(), once per flush().
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
    ) -> None:
        self._files = files or DiskFiles()
        self._system_clock = clock or Clock()
        self._clock = AscendingClock(self._system_clock)
        self._options = options or EngineOptions()
        self._directory = DataDirectory(self._files, path, self._clock)
        self._events = EventLog(self._files, self._directory.events, self._directory.store_id, self._clock)
        self._descriptors = Descriptors(self._options.append_files, self._options.read_files)
        self._trash = Trash(self._files, self._options.trash_us, self._options.trash_bytes)
        self._places = StorePlaces(
            self._files, self._directory, self._clock, self._trash, self._options.segment_bytes, self._descriptors
        )
        self.queues: dict[int, StoredQueue] = {}
        self.report = RecoveryReport()
        self.on_work: Callable[[], None] = _ignore
        self._dirty: dict[SegmentStore, None] = {}
        #: Stores whose last flush failed. Retried by the next flush(), about once a second at the latest.
        self._failed_stores: dict[SegmentStore, None] = {}
        self._uncommitted = Uncommitted(self._directory, self._events)
        self._stores_with_dead: dict[SegmentStore, None] = {}
        #: Stores used recently, whose idle() is called by housekeeping().
        self._recently_used: dict[SegmentStore, None] = {}
        self._salts: dict[int, int] = {}
        self._departures = Departures(self._commit_copies)
        #: Whether the last attempt to write events failed.
        self._events_failed = False
        #: Callbacks that wait until unwritten events are on disk.
        self._waiting_callbacks: list[Callable[[], None]] = []
        self._committer: Committer | None = None
        self._threaded = deliver is not None
        #: Whether confirms wait for syncs.
        self._waits_for_syncs = not self._threaded or self._options.sync is SyncMode.ALWAYS
        self._compactor = Compactor(deliver, self._compacted, self._sync)
        self._checkpointer = Checkpointer(
            self._files, self._directory, self._events, self._options.event_retention, self._clock
        )
        self._ticked = 0
        where, what = self._directory, self._options
        self._redo = RedoLog(self._files, where.redo, where.store_id, what.redo_segments, what.redo_bytes)
        room = what.disk_free_limit, what.bytes_needed, what.ballast_bytes
        self.disk = DiskSpace(self._files, where.path, *room, on_disk_alarm or _ignore)
        try:
            self._recover()
        except BaseException:
            self._directory.close()
            raise
        if deliver is not None:
            interval = self._options.sync_interval / _SECOND if self._options.sync is SyncMode.INTERVAL else 0.0
            self._committer = Committer(self._files, deliver, on_failure or _raise, interval, self._redo)

    # --- queues -------------------------------------------------------------------------------------------------------

    def create_queue(self, durable: bool, attributes: Mapping[str, Any]) -> StoredQueue:
        """Create a queue. It survives a crash after the next commit.

        Args:
            durable: Whether it outlives the process.
            attributes: Metadata of the broker that JSON can represent.
        Raises:
            OSError: It could not be created.
        """
        record = self._directory.make_queue(durable, attributes)
        queue = self.queues[record.qid] = StoredQueue(record.qid, durable, record.attributes)
        self._salts[record.qid] = record.salt or 0
        if durable:
            self._uncommitted.add_queue(record.qid)
        return queue

    def store(self, queue: StoredQueue, priority: int = 0, first_seq: int = 1) -> SegmentStore:
        """Return the store of one priority of a queue; create it if missing.

        Args:
            queue: The queue.
            priority: 0..255.
            first_seq: First sequence number of a new store. Above 1 if the store replaces another one whose taken
                messages have lower numbers.
        """
        store = queue.stores.get(priority)
        if store is None:
            place = self._places.of(queue.qid, priority, self._salts[queue.qid])
            state = StoreState(dead=DeadSet(first_seq), next_seq=first_seq)
            store = SegmentStore(
                place, self._events, queue.durable, self._note_dirty, None, state, queue.persists_transient
            )
            queue.stores[priority] = store
        return store

    def delete_queue(self, queue: StoredQueue) -> None:
        """Delete a queue; its directory is removed by the next commit group."""
        stores = queue.stores.values()
        if any(store.leaving for store in stores):
            # Copies of moved messages must be synced before the queue is removed.
            self.flush()
            if self._committer is not None and self._waits_for_syncs:
                self._committer.wait()
            for store in stores:
                store.settle_left(len(store.leaving))
        for store in stores:
            self._compactor.forget(store)
            self._departures.forget(store)
            store.close()
            store.flush()
            for noted in (self._dirty, self._failed_stores, self._stores_with_dead, self._recently_used):
                noted.pop(store, None)
            store.log.drop_dead()
        del self.queues[queue.qid], self._salts[queue.qid]
        self._uncommitted.forget(queue.qid, queue.stores)
        # If there is no space, events are kept in memory, and the queue is deleted nevertheless.
        self._flush_events()
        group = self._uncommitted.collect(events=True)
        for store in stores:
            store.log.collect(group)
        has_events = any(store.noted or store.next_seq > 1 for store in stores)
        deleted = self._clock() if has_events else None
        group.file_actions.append(partial(self._directory.discard_queue, queue.qid, deleted))
        group.file_actions.append(self._directory.empty_trash)
        self._submit(group)

    # --- end of a turn and periodic work ------------------------------------------------------------------------------

    def flush(self) -> dict[SegmentStore, OSError]:
        """Write all changes of stores since the last call, then events.

        A full disk raises no exception: it sets the alarm. Events that cannot be written are kept.

        Returns:
            The stores that could not be written, with errors. The next call retries them. Their publishers must not
            get confirms.
        """
        failures: dict[SegmentStore, OSError] = {}
        dirty, self._dirty, self._failed_stores = self._dirty | self._failed_stores, {}, {}
        files = self._files
        most = 0
        for store in dirty:
            before = files.appended
            try:
                store.flush()
            except OSError as error:
                failures[store] = error
                self._failed_stores[store] = None
            most = max(most, self._uncommitted.add(store, files.appended - before))
            if store.leaving.uncovered:
                self._departures.add(store)
        self._stores_with_dead |= dirty
        self._recently_used |= dirty
        if not failures and not self._options.holds_moved():
            self._departures.begin()
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

    def note_unroutable(self, count: int, body_bytes: int) -> None:
        """Add an event for unroutable messages.

        Args:
            count: Number of messages.
            body_bytes: Sum of their body lengths.
        """
        self._events.add(0, 0, 0, count, EventKind.UNROUTABLE, 0, 0, body_bytes)

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
        if events and callback is not None and self._departures and self._waits_for_syncs:
            self._departures.when_done(partial(self._waiting_callbacks.append, callback))
            callback = None
        self._commit(callback, events)

    def _commit(self, callback: Callable[[], None] | None, events: bool) -> None:
        group = self._uncommitted.collect(events)
        if callback is None:
            pass
        elif events and self._events_failed:
            self._waiting_callbacks.append(callback)
        elif self._committer is None or self._waits_for_syncs:
            group.callbacks.append(callback)
        else:
            self._committer.deliver(callback)
        if group:
            self._submit(group)

    def watch_disk(self) -> float:
        """Check the free disk space; return the seconds until the next call."""
        pause = self.disk.check()
        if self.disk.alarm:
            self._remove_expired(is_short=True)
        return pause

    def housekeeping(self) -> None:
        """Run periodic work: close idle files, sync events, tick, compact, empty old trash, write a checkpoint.

        Called about once a second, after flush().
        """
        self._descriptors.close_idle()
        for store in [*self._recently_used]:
            if store.idle():
                del self._recently_used[store]
        if not self.flush() and self._files.appended != self._ticked and not self._events_failed:
            # Later messages get later times than this tick.
            self._events.tick()
            self._clock.advance_past()
            self._flush_events()
            self._ticked = self._files.appended
        if not self.disk.alarm:
            # Compaction needs space before it frees some.
            self._compactor.run_background(self._clock())
        self.commit(events=True)
        self._remove_expired(is_short=False)
        if self._checkpointer.due and not self._events_failed:
            self.checkpoint()

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint with the next commit group, so that recovery reads only later events.

        Args:
            clean: Whether this is the last write before a clean shutdown.
        """
        self._write_checkpoint(self._uncommitted.collect(events=True), clean)

    def close(self) -> bool:
        """Write and sync everything and close the engine; return whether that succeeded."""
        self._compactor.close()
        succeeded = not self.flush()
        committer, self._committer = self._committer, None
        if committer is not None:
            succeeded = committer.close() and succeeded
        # Settles moved messages now that their copies are synced.
        succeeded = not self.flush() and not self._events.waiting and not self._departures and succeeded
        for queue in self.queues.values():
            for store in queue.stores.values():
                store.log.seal_active()
                self._uncommitted.add(store)
        if succeeded:
            try:
                self._finish()
            except OSError as error:
                _LOG.error("The data directory could not be closed cleanly: %s", error)
                succeeded = False
        for queue in self.queues.values():
            for store in queue.stores.values():
                store.log.close()
        self._redo.close()
        self._events.close()
        self._directory.close()
        return succeeded

    def _finish(self) -> None:
        """Sync everything and write a checkpoint that marks a clean shutdown."""
        stores = [store for queue in self.queues.values() for store in queue.stores.values()]
        if self._options.sync is SyncMode.OFF:
            for qid in self.queues:
                for path in map(partial(self._directory.store_path, qid), self._directory.priorities(qid)):
                    sync_files(self._files, path)
            self._files.sync_directory(f"{self._directory.path}/q")
        # The first commit writes manifest edits, which the second one syncs.
        for _ in range(2):
            self.commit(events=True)
            for store in stores:
                self._uncommitted.add(store)
        self.checkpoint(clean=True)
        self._redo.clear()

    # --- internal -----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Recover all stores, then write events, manifests and a checkpoint."""
        report, files, directory = self.report, self._files, self._directory
        if files.list_directory(directory.redo) and files.free_space(directory.path) < self.disk.limit:
            # Restoring segments from the redo log needs space.
            self.disk.release_ballast()
        restart = Restart(files, directory, self._events, self._places.of, report)
        restored = restart.run()
        self._clock.advance_past(restart.latest)
        for record, stores in restored:
            self._salts[record.qid] = record.salt or 0
            queue = self.queues[record.qid] = StoredQueue(record.qid, True, record.attributes)
            for priority, place, manifest, state in stores:
                store = SegmentStore(
                    place, self._events, True, self._note_dirty, manifest, state, queue.persists_transient
                )
                store.log.drop_dead()
                queue.stores[priority] = store
                self._uncommitted.add(store)
                self._stores_with_dead[store] = None
        try:
            self._flush_events()
            # The callbacks write to the manifests which segments are sealed; the next group syncs that.
            commit_recovered(self._uncommitted.collect(True, keep=True), files, self._redo, self._threaded)
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
        self._submit(group)

    def _note_dirty(self, store: SegmentStore) -> None:
        if not self._dirty:
            self.on_work()
        self._dirty[store] = None

    def _commit_copies(self, callback: Callable[[], None]) -> None:
        """Sync everything written, in any sync mode, then call back."""
        group = self._uncommitted.collect(events=False)
        group.callbacks.append(callback)
        self._submit(group)

    def _flush_events(self) -> bool:
        """Write events, releasing the ballast if necessary; return False if they could not be written."""
        while self._events.waiting:
            try:
                self._events.flush()
            except OSError:
                if not self.disk.release_ballast():
                    self._events_failed = True
                    return False
            else:
                break
        self._events_failed = self._events.waiting
        if self._waiting_callbacks and not self._events_failed:
            waiting, self._waiting_callbacks = self._waiting_callbacks, []
            for callback in waiting:
                self._commit(callback, events=True)
        return True

    def _drop_dead_segments(self) -> None:
        """Drop segments without live messages, after the events that settled these have been written."""
        checked, self._stores_with_dead = self._stores_with_dead, {}
        has_dropped = False
        for store in checked:
            if store.log.has_dead:
                if not store.log.drop_dead() and not (self.disk.release_ballast() and store.log.drop_dead()):
                    self._stores_with_dead[store] = None
                self._uncommitted.add(store)
                has_dropped = has_dropped or store.log.has_dropped
        if has_dropped:
            # Frees the space even if nothing else is committed soon.
            self.commit()
        for store in checked:
            self._compactor.consider(store)

    def _compacted(self, store: SegmentStore) -> None:
        """Commit replaced segments, so that the old files are removed, and check whether more compaction is needed."""
        self._uncommitted.add(store)
        self.commit()
        self._reconsider(store)

    def _reconsider(self, store: SegmentStore) -> None:
        if store.place.qid not in self.queues:
            return
        self._stores_with_dead[store] = None
        if self._committer is not None:
            # Events must be written before messages that died since may be left out by compaction.
            self.flush()
        else:
            self._compactor.consider(store)

    def _sync(self, store: SegmentStore) -> None:
        """Sync a store's segments in any sync mode, then check again whether to compact it."""
        self._uncommitted.add(store)
        group = self._uncommitted.collect(events=True)
        group.callbacks.append(partial(self._reconsider, store))
        self._submit(group)

    def _remove_expired(self, is_short: bool) -> None:
        """Remove expired trash and snapshots; all of them if the disk is short of space."""
        group = CommitGroup()
        group.file_actions.append(partial(self._trash.expire, _END_OF_TIME if is_short else self._clock()))
        if isinstance(self._files, DiskFiles):
            now = self._system_clock.now() / 1_000_000
            group.file_actions.append(partial(remove_dead_snapshots, self._directory.path, now, is_short))
        self._submit(group)

    def _submit(self, group: CommitGroup) -> None:
        if self._options.sync is SyncMode.OFF and self._committer is not None:
            group.clear_syncs()
        if self._committer is not None:
            self._committer.submit(group)
        else:
            group.commit(self._files, self._redo)


def events_since(engine: StorageEngine, position: EventPosition) -> Iterator[Event]:
    """Return the logged events of an engine from a position on."""
    directory = engine._directory
    log = read_events(engine._files, directory.events, directory.store_id, position)
    return (event for event in log if event is not None)


def _ignore(*_: object) -> None:
    pass


def _raise(error: OSError) -> None:
    raise error
