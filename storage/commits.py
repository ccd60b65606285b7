"""Collects what the stores have written in commit groups, and settles moved messages after their copies are synced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from leveret.storage.callbacks import call_each
from leveret.storage.commit.committer import CommitGroup, Committer, SyncMode
from leveret.storage.commit.redo_log import RedoLog
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.disk.files import Files
from leveret.storage.event_log import EventLog
from leveret.storage.stores.segment_store import SegmentStore


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
        return _at_once if self._committer is None else self._committer.barrier()

    def close(self) -> bool:
        """End the thread; following groups are committed at once. Return whether all syncs succeeded."""
        committer, self._committer = self._committer, None
        return committer is None or committer.close()


def _at_once() -> bool:
    return True
