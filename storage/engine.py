"""The storage engine: all stores of a broker, written once a turn, committed together, recovered at the start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from leveret.storage.clock import Clock
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
#: More than this of a store is not left for the next commit: the disk would stall the write after it for long.
_DIRTY_BYTES: Final = 4 << 20
_SECOND: Final = 1_000_000
_END_OF_TIME: Final = 1 << 62


class StorageEngine:
    """All stores of a data directory. It belongs to one thread; only the committer's syncs run in another.

    Opening it recovers what is there. In each turn: append, take and settle on stores, then flush(), then commit()
    if somebody waits for the disk. About once a second: housekeeping().

    Args:
        path: The data directory.
        deliver: Hands a function to the thread that owns the engine; None to commit at once, in that thread.
        on_failure: Called with the error of a sync that failed; see Committer.
        files: The file system interface.
        clock: Microseconds since 1970.
        options: What can be set.
        on_disk_alarm: Called with True when the disk gets full and with False when there is room again.
    Raises:
        DirectoryInUseError: Another process has it open.
        DataDirectoryError: It cannot be used; the text says why.
        OSError: It cannot be read or written.

    Attributes:
        queues: All durable queues that were found and those made since, by number.
        report: What recovery found and did.
        disk: How much room there is.
        on_work: Called when there is something for flush(), once until it is called.
    """

    def __init__(
        self,
        path: str,
        deliver: Callable[[Callable[[], None]], object] | None = None,
        on_failure: Callable[[OSError], None] | None = None,
        files: Files | None = None,
        clock: Callable[[], int] | None = None,
        options: EngineOptions | None = None,
        on_disk_alarm: Callable[[bool], None] | None = None,
    ) -> None:
        self._files = files or DiskFiles()
        self._clock = Clock(clock)
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
        #: Not all of these could be written. It is tried again with whatever comes next, and about once a second.
        self._refused: dict[SegmentStore, None] = {}
        self._uncommitted = Uncommitted(self._directory, self._events)
        self._untidy: dict[SegmentStore, None] = {}
        #: Stores of which something was written, settled or recovered not long ago.
        self._awake: dict[SegmentStore, None] = {}
        self._salts: dict[int, int] = {}
        self._departures = Departures(self._commit_copies)
        #: Not all events could be written.
        self._events_refused = False
        #: To be told once the events that could not be written are on the disk.
        self._held_up: list[Callable[[], None]] = []
        self._committer: Committer | None = None
        self._threaded = deliver is not None
        #: Promises wait for syncs.
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
        """Make a queue, which is there after a crash once the next commit is done.

        Args:
            durable: Whether it outlives the process.
            attributes: What the broker wants to find again; anything that JSON can hold.
        Raises:
            OSError: It could not be made.
        """
        record = self._directory.make_queue(durable, attributes)
        queue = self.queues[record.qid] = StoredQueue(record.qid, durable, record.attributes)
        self._salts[record.qid] = record.salt or 0
        if durable:
            self._uncommitted.add_queue(record.qid)
        return queue

    def store(self, queue: StoredQueue, priority: int = 0, first_seq: int = 1) -> SegmentStore:
        """Return the store of one priority of a queue; made if there is none.

        Args:
            queue: The queue.
            priority: 0..255.
            first_seq: Number of the first message of a new store: it takes the place of another, whose messages that
                have been taken have lower ones.
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
        """Remove a queue; its directory goes with the next commit group."""
        stores = queue.stores.values()
        if any(store.leaving for store in stores):
            # What moves out of it has to be safe elsewhere before it goes.
            self.flush()
            if self._committer is not None and self._waits_for_syncs:
                self._committer.wait()
            for store in stores:
                store.forget_left(len(store.leaving))
        for store in stores:
            self._compactor.forget(store)
            self._departures.forget(store)
            store.close()
            store.flush()
            for noted in (self._dirty, self._refused, self._untidy, self._awake):
                noted.pop(store, None)
            store.tidy()
        del self.queues[queue.qid], self._salts[queue.qid]
        self._uncommitted.forget(queue.qid, queue.stores)
        # If there is no room for them they are kept, and the queue goes all the same.
        self._flush_events()
        group = self._uncommitted.collect(events=True)
        for store in stores:
            store.collect(group)
        is_spoken_of = any(store.noted or store.next_seq > 1 for store in stores)
        deleted = self._clock() if is_spoken_of else None
        group.file_actions.append(partial(self._directory.discard_queue, queue.qid, deleted))
        group.file_actions.append(self._directory.empty_trash)
        self._submit(group)

    # --- the end of a turn, and longer spans --------------------------------------------------------------------------

    def flush(self) -> dict[SegmentStore, OSError]:
        """Write what all stores have been given since the last time, and then what became of messages.

        A disk that is full is not raised: it sets the alarm. Events that cannot be written are kept.

        Returns:
            The stores of which not all could be written, which is tried again next time. Their publishers must not
            be told that their messages are safe.
        """
        failures: dict[SegmentStore, OSError] = {}
        dirty, self._dirty, self._refused = self._dirty | self._refused, {}, {}
        files = self._files
        most = 0
        for store in dirty:
            before = files.appended
            try:
                store.flush()
            except OSError as error:
                failures[store] = error
                self._refused[store] = None
            most = max(most, self._uncommitted.add(store, files.appended - before))
            if store.leaving.uncovered:
                self._departures.add(store)
        self._untidy |= dirty
        self._awake |= dirty
        if not failures and not self._options.holds_moved():
            self._departures.begin()
        settled = self._flush_events()
        if settled:
            self._tidy()
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
        """Note messages that no queue was there for; they go with the next flush().

        Args:
            count: How many.
            body_bytes: Sum of their body lengths.
        """
        self._events.add(0, 0, 0, count, EventKind.UNROUTABLE, 0, 0, body_bytes)

    @property
    def events_end(self) -> EventPosition | None:
        """Where the next event will stand; None while there is something for flush()."""
        return None if self._dirty or self._refused or self._events.waiting else self._events.position

    def commit(self, callback: Callable[[], None] | None = None, events: bool = False) -> None:
        """Have all that flush() wrote synced, as the sync mode will have it.

        Args:
            callback: Called once that has been done, or at once if the sync mode says not to wait; in the thread that
                owns the engine.
            events: Sync the event log too: a settlement has been promised. If it could not be written the callback
                waits until it can, and for the copies of messages that have moved.
        """
        if events and callback is not None and self._departures and self._waits_for_syncs:
            self._departures.when_done(partial(self._held_up.append, callback))
            callback = None
        self._commit(callback, events)

    def _commit(self, callback: Callable[[], None] | None, events: bool) -> None:
        group = self._uncommitted.collect(events)
        if callback is None:
            pass
        elif events and self._events_refused:
            self._held_up.append(callback)
        elif self._committer is None or self._waits_for_syncs:
            group.callbacks.append(callback)
        else:
            self._committer.deliver(callback)
        if group:
            self._submit(group)

    def watch_disk(self) -> float:
        """Look how much room there is; return in how many seconds to call this again."""
        pause = self.disk.check()
        if self.disk.alarm:
            self._clear_away(is_short=True)
        return pause

    def housekeeping(self) -> None:
        """Do what is due: close idle files, sync events, tick, remove old trash, write a checkpoint.

        To be called about once a second, after flush().
        """
        self._descriptors.close_idle()
        for store in [*self._awake]:
            if store.idle():
                del self._awake[store]
        if not self.flush() and self._files.appended != self._ticked and not self._events_refused:
            # What comes from now on is later than this tick, to the microsecond.
            self._events.tick()
            self._clock.advance_past()
            self._flush_events()
            self._ticked = self._files.appended
        if not self.disk.alarm:
            # Before it gives back space it takes some.
            self._compactor.rest(self._clock())
        self.commit(events=True)
        self._clear_away(is_short=False)
        if self._checkpointer.due and not self._events_refused:
            self.checkpoint()

    def checkpoint(self, clean: bool = False) -> None:
        """Write a checkpoint with the next commit group, so that recovery need not read older events.

        Args:
            clean: Nothing is done after it.
        """
        self._write_checkpoint(self._uncommitted.collect(events=True), clean)

    def close(self) -> bool:
        """Stop: all is written and synced, nothing is forgotten. Return whether that succeeded."""
        self._compactor.close()
        succeeded = not self.flush()
        committer, self._committer = self._committer, None
        if committer is not None:
            succeeded = committer.close() and succeeded
        # What has left is forgotten now that its copies are safe.
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
                store.shut()
        self._redo.close()
        self._events.close()
        self._directory.close()
        return succeeded

    def _finish(self) -> None:
        """Sync all, and say that nothing follows."""
        stores = [store for queue in self.queues.values() for store in queue.stores.values()]
        if self._options.sync is SyncMode.OFF:
            for qid in self.queues:
                for path in map(partial(self._directory.store_path, qid), self._directory.priorities(qid)):
                    sync_files(self._files, path)
            self._files.sync_directory(f"{self._directory.path}/q")
        # The second time for what the first one has to say to the manifests.
        for _ in range(2):
            self.commit(events=True)
            for store in stores:
                self._uncommitted.add(store)
        self.checkpoint(clean=True)
        self._redo.clear()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Put all stores together again, and write down what came of it."""
        report, files, directory = self.report, self._files, self._directory
        if files.list_directory(directory.redo) and files.free_space(directory.path) < self.disk.limit:
            # To complete segments from the redo log takes room.
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
                store.tidy()
                queue.stores[priority] = store
                self._uncommitted.add(store)
                self._untidy[store] = None
        try:
            self._flush_events()
            # The manifests have to say then what is sealed; that is synced by the next group.
            commit_recovered(self._uncommitted.collect(True, keep=True), files, self._redo, self._threaded)
            self._write_checkpoint(CommitGroup(), clean=False)
            if not report.failures:
                remove_redo(files, directory.redo)
        except OSError as error:
            report.failures.append(f"{directory.path}: {error}")
        for line in report.lines():
            _LOG.warning("recovery: %s", line)

    def _write_checkpoint(self, group: CommitGroup, clean: bool) -> None:
        # Recovery has no use for those of queues that end with the process, but readers have.
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
        """Have all synced that was written, whatever the sync mode promises, and call back after that."""
        group = self._uncommitted.collect(events=False)
        group.callbacks.append(callback)
        self._submit(group)

    def _flush_events(self) -> bool:
        """Write events, if need be into the room of the ballast; return whether that was possible."""
        while self._events.waiting:
            try:
                self._events.flush()
            except OSError:
                if not self.disk.release_ballast():
                    self._events_refused = True
                    return False
            else:
                break
        self._events_refused = self._events.waiting
        if self._held_up and not self._events_refused:
            held_up, self._held_up = self._held_up, []
            for callback in held_up:
                self._commit(callback, events=True)
        return True

    def _tidy(self) -> None:
        """Give up what is dead, now that the events that say so have been written."""
        untidy, self._untidy = self._untidy, {}
        has_dropped = False
        for store in untidy:
            if store.has_dead_segments:
                if not store.tidy() and not (self.disk.release_ballast() and store.tidy()):
                    self._untidy[store] = None
                self._uncommitted.add(store)
                has_dropped = has_dropped or store.log.has_dropped
        if has_dropped:
            # The next confirm or settlement that has to be on the disk may be far away.
            self.commit()
        for store in untidy:
            self._compactor.consider(store)

    def _compacted(self, store: SegmentStore) -> None:
        """Segments of a store have been replaced: have the old files go, and see whether there is more to do."""
        self._uncommitted.add(store)
        self.commit()
        self._look_again(store)

    def _look_again(self, store: SegmentStore) -> None:
        if store.key[0] not in self.queues:
            return
        self._untidy[store] = None
        if self._committer is not None:
            # What died since is to be left out, and events have to be on their way before that.
            self.flush()
        else:
            self._compactor.consider(store)

    def _sync(self, store: SegmentStore) -> None:
        """Have a store's segments synced, whatever the sync mode says, and see what can be done with them then."""
        self._uncommitted.add(store)
        group = self._uncommitted.collect(events=True)
        group.callbacks.append(partial(self._look_again, store))
        self._submit(group)

    def _clear_away(self, is_short: bool) -> None:
        """Remove what is kept for readers only, when its time has come or there is no room for it."""
        group = CommitGroup()
        group.file_actions.append(partial(self._trash.expire, _END_OF_TIME if is_short else self._clock()))
        if isinstance(self._files, DiskFiles):
            group.file_actions.append(partial(remove_dead_snapshots, self._directory.path, all_of_them=is_short))
        self._submit(group)

    def _submit(self, group: CommitGroup) -> None:
        if self._options.sync is SyncMode.OFF and self._committer is not None:
            group.clear_syncs()
        if self._committer is not None:
            self._committer.submit(group)
        else:
            group.commit(self._files, self._redo)


def events_since(engine: StorageEngine, position: EventPosition) -> Iterator[Event]:
    """Return the events in the log of an engine from a position on."""
    directory = engine._directory
    log = read_events(engine._files, directory.events, directory.store_id, position)
    return (event for event in log if event is not None)


def _ignore(*_: object) -> None:
    pass


def _raise(error: OSError) -> None:
    raise error
