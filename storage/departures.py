"""Messages that move are forgotten where they were only once they are safe where they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.storage.stores.segment_store import SegmentStore


class _Departure:
    """What one commit group has the copies of.

    Attributes:
        runs: How many of the oldest runs that leave each store.
        callbacks: To be called once they are forgotten.
    """

    __slots__ = ("callbacks", "runs")

    def __init__(self, runs: dict[SegmentStore, int]) -> None:
        self.runs: Final = runs
        self.callbacks: Final[list[Callable[[], None]]] = []


class Departures:
    """Dead letters, returned and moved messages on their way.

    The event that removes an original would otherwise be on the disk before the copy: any group syncs the event log,
    which all queues share. So it is not written before the copy has been synced. Until then the original is in its
    segment like any living message, which compaction copies and a checkpoint counts.

    Args:
        commit: Has all that was written so far synced, and calls back after that. Groups are done in order.
    """

    __slots__ = ("_commit", "_under_way", "_waiting", "_when_begun")

    def __init__(self, commit: Callable[[Callable[[], None]], None]) -> None:
        self._commit = commit
        #: Stores with messages whose copies may not be written yet.
        self._waiting: dict[SegmentStore, None] = {}
        self._when_begun: list[Callable[[], None]] = []
        self._under_way: deque[_Departure] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def add(self, store: SegmentStore) -> None:
        """Note that messages are leaving a store."""
        self._waiting[store] = None

    def forget(self, store: SegmentStore) -> None:
        """The store is gone."""
        self._waiting.pop(store, None)

    def begin(self) -> None:
        """Have copies synced, all of which have been written, and forget the originals after that."""
        if self._waiting:
            departure = _Departure({store: store.leaving.cover() for store in self._waiting})
            departure.callbacks.extend(self._when_begun)
            self._waiting.clear()
            self._when_begun.clear()
            self._under_way.append(departure)
            self._commit(self._end)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once all that is leaving now has been forgotten; something must be."""
        (self._when_begun if self._waiting else self._under_way[-1].callbacks).append(callback)

    def _end(self) -> None:
        departure = self._under_way.popleft()
        for store, runs in departure.runs.items():
            store.forget_left(runs)
        for callback in departure.callbacks:
            callback()
