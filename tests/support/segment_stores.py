"""Segment stores on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from leveret.storage.clock import AscendingClock
from leveret.storage.clock import Clock as SystemClock
from leveret.storage.commit import CommitGroup
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.event_log import EventLog
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.simulated_files import ROOT, SimulatedFiles

#: Segments so small that a few messages fill several of them.
SMALL: Final = EngineOptions(segment_bytes=600, disk_free_limit=0, ballast_bytes=0)


class Clock(SystemClock):
    """Clock that advances with each reading."""

    def __init__(self, start: int = 1_700_000_000_000_000, step: int = 1000) -> None:
        super().__init__()
        self.time = start
        self._step = step

    def now(self) -> int:
        """Return the next time."""
        self.time += self._step
        return self.time


def open_engine(
    files: SimulatedFiles,
    clock: Clock | None = None,
    options: EngineOptions = SMALL,
    on_work: Callable[[], None] | None = None,
) -> StorageEngine:
    """Return an engine that commits immediately."""
    return StorageEngine(ROOT, files=files, clock=clock or Clock(), options=options, on_work=on_work)


def memory_store() -> SegmentStore:
    """Return the store of a new queue that is not durable."""
    return SegmentStore(AscendingClock(Clock()))


def new_store() -> SegmentStore:
    """Return the store of a new durable queue on a new disk."""
    return _new_store()[0]


def _new_store() -> tuple[SegmentStore, EventLog]:
    engine = open_engine(SimulatedFiles())
    return engine.store(engine.create_queue(True, {"name": "q"})), engine._events


class WrappedStore:
    """A store of which a subclass changes methods; the others are its own. Compiled classes allow no subclass here."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FlushedStore(WrappedStore):
    """A store that writes and commits immediately, so that messages are read back from files."""

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        self._store.append(messages, body_bytes, longest)
        commit(self._store)


def new_flushed_store() -> SegmentStore:
    """Return a store with small segments that keeps no messages in memory."""
    return cast(SegmentStore, FlushedStore(_unwatched_store(durable=True)))


def _unwatched_store(durable: bool) -> SegmentStore:
    """Return a store that no engine flushes."""
    plain, events = _new_store()
    store = SegmentStore(cast(AscendingClock, plain.place.clock), durable)
    store.add_files(plain.place, events, lambda _: None)
    return store


def new_cached_store() -> SegmentStore:
    """Return a store that keeps some messages in memory."""
    store = new_flushed_store()
    store.set_lazy(False)
    return store


class ReturningStore(WrappedStore):
    """A store that has messages in memory until they return, and pages those out at once."""

    def requeue(self, entries: Sequence[Entry]) -> None:
        self._store.requeue(entries)
        self._store.page_out(1 << 40)
        while self._store.paging.is_due:
            commit(self._store)


def new_returning_store() -> SegmentStore:
    """A store of small segments, of a queue that is not durable."""
    store = _unwatched_store(durable=False)
    store.set_lazy(False)
    return cast(SegmentStore, ReturningStore(store))


def commit(store: SegmentStore) -> None:
    """Do for a store what the engine does for it at the end of a turn."""
    store.flush()
    store.log.drop_dead()
    group = CommitGroup()
    store.log.collect(group)
    group.commit(files_of(store))


def files_of(store: SegmentStore) -> SimulatedFiles:
    """Return the disk of a store."""
    files = store.place.files
    assert isinstance(files, SimulatedFiles)
    return files
