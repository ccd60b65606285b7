"""Segment stores on a disk in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.storage.commit.group import CommitGroup
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Message
from leveret.storage.segments.segment import StorePlace
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.simulated_files import ROOT, SimulatedFiles

#: Small enough that a few messages fill several segments.
SMALL: Final = EngineOptions(segment_bytes=600, disk_free_limit=0, ballast_bytes=0)


class Clock:
    """A clock that goes on by a millisecond whenever it is looked at."""

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self.now = start

    def __call__(self) -> int:
        self.now += 1000
        return self.now


def open_engine(files: SimulatedFiles, clock: Clock | None = None, options: EngineOptions = SMALL) -> StorageEngine:
    """An engine that commits at once."""
    return StorageEngine(ROOT, files=files, clock=clock or Clock(), options=options)


def new_store() -> SegmentStore:
    """The store of a new durable queue, alone on its disk."""
    engine = open_engine(SimulatedFiles())
    return engine.store(engine.create_queue(True, {"name": "q"}))


class FlushedStore(SegmentStore):
    """A store that writes and commits whatever it is given at once, so that all it takes comes from files."""

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        super().append(messages, body_bytes, longest)
        self.flush()
        self.tidy()
        group = CommitGroup()
        self.collect(group)
        group.commit(files_of(self))


def new_flushed_store() -> FlushedStore:
    """A store that keeps nothing in memory, of small segments."""
    plain = new_store()
    place: StorePlace = plain._place
    return FlushedStore(place, plain._events, True, lambda _: None)


def new_cached_store() -> FlushedStore:
    """A store that keeps some messages in memory."""
    store = new_flushed_store()
    store.set_lazy(False)
    return store


def files_of(store: SegmentStore) -> SimulatedFiles:
    """The disk that a store is on."""
    files = store._place.files
    assert isinstance(files, SimulatedFiles)
    return files
