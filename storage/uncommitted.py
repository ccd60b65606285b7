"""What has been written and is in no commit group yet."""

from __future__ import annotations

from leveret.storage.commit.group import CommitGroup
from leveret.storage.directory.data_directory import DataDirectory
from leveret.storage.event_log import EventLog
from leveret.storage.stores.segment_store import SegmentStore


class Uncommitted:
    """Collects what has been written since the last commit, so that the next commit syncs it before the events.

    Args:
        directory: Where the queues are.
        events: The event log.
    """

    __slots__ = ("_directory", "_events", "_queues", "_stores")

    def __init__(self, directory: DataDirectory, events: EventLog) -> None:
        self._directory = directory
        self._events = events
        #: New queues, whose directories are to be synced.
        self._queues: set[int] = set()
        #: With the bytes that were written.
        self._stores: dict[SegmentStore, int] = {}

    def add(self, store: SegmentStore, written: int = 0) -> int:
        """Note that a store has something for a commit group.

        Args:
            store: The store.
            written: Bytes that it has written.
        Returns:
            What that comes to, together with what was noted before.
        """
        total = self._stores[store] = self._stores.get(store, 0) + written
        return total

    def add_queue(self, qid: int) -> None:
        """Note that a queue was made."""
        self._queues.add(qid)

    def forget(self, qid: int, stores: dict[int, SegmentStore]) -> None:
        """A queue with these stores is gone."""
        self._queues.discard(qid)
        for store in stores.values():
            self._stores.pop(store, None)

    def collect(self, events: bool, keep: bool = False) -> CommitGroup:
        """Have all of it synced.

        Args:
            events: Events too, also if nothing that goes away depends on them.
            keep: The next group is to ask the stores again.
        """
        group = CommitGroup()
        for qid in self._queues:
            self._directory.collect_queue(group, qid)
        self._queues.clear()
        for store in self._stores:
            store.collect(group)
        if not keep:
            self._stores.clear()
        if events or group.file_actions:
            self._events.collect(group)
        return group
