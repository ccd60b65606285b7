"""The implementations of MessageStore. One that is registered here is held to the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from leveret.storage.interface import MessageStore
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import ReturnsStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import new_cached_store, new_flushed_store, new_store

#: Makes an empty store, by the name that a failing test shows.
STORES: Final[Mapping[str, Callable[[], MessageStore]]] = {
    "memory": MemoryStore,
    # The contract is of one priority; what several mean is tested beside the store.
    "priority": lambda: PriorityStore(10, lambda level: MemoryStore()),
    # What has been appended waits to be written ...
    "segments": new_store,
    # ... or has been.
    "segments-written": new_flushed_store,
    # ... and some of it is in memory too.
    "segments-cached": new_cached_store,
    "returns": lambda: ReturnsStore(lambda level: MemoryStore()),
    "priority-segments": lambda: PriorityStore(10, lambda level: new_flushed_store()),
    "returns-segments": lambda: ReturnsStore(lambda level: new_flushed_store()),
}

#: Makes an empty store that is in files, of stores that each come from the function it is given.
STORES_IN_FILES: Final[Mapping[str, Callable[[Callable[[], SegmentStore]], MessageStore]]] = {
    "segments": lambda new: new(),
    "priority": lambda new: PriorityStore(10, lambda level: new()),
    "returns": lambda new: ReturnsStore(lambda level: new()),
}
