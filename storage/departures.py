"""Removes moved messages from their old store only after their copies have been synced."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from leveret.storage.stores.segment_store import SegmentStore


class _Departure:
    """Moved messages whose copies are in one commit group.

    Attributes:
        runs: Number of oldest leaving runs by store.
        callbacks: Called after the originals have been settled.
    """

    __slots__ = ("callbacks", "runs")

    def __init__(self, runs: dict[SegmentStore, int]) -> None:
        self.runs: Final = runs
        self.callbacks: Final[list[Callable[[], None]]] = []


class Departures:
    """Dead-lettered, returned and moved messages whose copies are not yet synced.

    The event that removes the original is written only after the copy has been synced. Otherwise the event could be on
    disk before the copy, because all queues share the event log and every group syncs it. Until then the original is
    an ordinary live message of its segment: compaction copies it and checkpoints count it.

    Args:
        commit: Syncs everything written so far, then calls its argument. Groups are committed in order.
    """

    __slots__ = ("_commit", "_under_way", "_waiting", "_when_begun")

    def __init__(self, commit: Callable[[Callable[[], None]], None]) -> None:
        self._commit = commit
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

    def begin(self) -> None:
        """Commit the copies, all of which have been written, and settle the originals after the sync."""
        if self._waiting:
            departure = _Departure({store: store.leaving.cover() for store in self._waiting})
            departure.callbacks.extend(self._when_begun)
            self._waiting.clear()
            self._when_begun.clear()
            self._under_way.append(departure)
            self._commit(self._end)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back after all originals that are leaving now have been settled. There must be at least one."""
        (self._when_begun if self._waiting else self._under_way[-1].callbacks).append(callback)

    def _end(self) -> None:
        departure = self._under_way.popleft()
        for store, runs in departure.runs.items():
            store.settle_left(runs)
        for callback in departure.callbacks:
            callback()
