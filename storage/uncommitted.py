"""Written data that is not yet in a commit group."""

from __future__ import annotations

from leveret.storage.commit.group import CommitGroup
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.event_log import EventLog
from leveret.storage.stores.segment_store import SegmentStore


class Uncommitted:
    """Collects stores and queues written since the last commit, so that the next one syncs them before the events.

    Args:
        directory: The data directory.
        events: The event log.
    """

    __slots__ = ("_directory", "_events", "_queues", "_stores")

    def __init__(self, directory: DataDirectory, events: EventLog) -> None:
        self._directory = directory
        self._events = events
        #: New queues whose directories must be synced.
        self._queues: set[int] = set()
        #: Bytes written by store.
        self._stores: dict[SegmentStore, int] = {}

    def add(self, store: SegmentStore, written: int = 0) -> int:
        """Register a store with data for a commit group.

        Args:
            store: The store.
            written: Bytes that it has written.
        Returns:
            Bytes written since the last commit.
        """
        total = self._stores[store] = self._stores.get(store, 0) + written
        return total

    def add_queue(self, qid: int) -> None:
        """Register a new queue."""
        self._queues.add(qid)

    def forget(self, qid: int, stores: dict[int, SegmentStore]) -> None:
        """Remove a deleted queue and its stores."""
        self._queues.discard(qid)
        for store in stores.values():
            self._stores.pop(store, None)

    def collect(self, events: bool, keep: bool = False) -> CommitGroup:
        """Return a commit group that syncs all collected data.

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
