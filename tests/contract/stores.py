"""Implementations of MessageStore; each one registered here must pass the contract tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from leveret.storage.interface import MessageStore
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore, StrictPriorityStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import (
    memory_store,
    new_cached_store,
    new_flushed_store,
    new_returning_store,
    new_store,
)

#: Factories of empty stores, by the name shown in test ids.
STORES: Final[Mapping[str, Callable[[], MessageStore]]] = {
    "memory": memory_store,
    # The contract is of one priority; what several mean is tested beside the store.
    "priority": lambda: PriorityStore(10, lambda level: memory_store()),
    # What has been appended waits to be written ...
    "segments": new_store,
    # ... or has been.
    "segments-written": new_flushed_store,
    # ... and some of it is in memory too.
    "segments-cached": new_cached_store,
    # ... or is written only once it has returned, behind messages with higher numbers.
    "segments-returned": new_returning_store,
    "returns": lambda: ReturnsStore(lambda level: memory_store()),
    "priority-segments": lambda: PriorityStore(10, lambda level: new_flushed_store()),
    "returns-segments": lambda: ReturnsStore(lambda level: new_flushed_store()),
    "strict": lambda: StrictPriorityStore(lambda level: memory_store()),
    "strict-segments": lambda: StrictPriorityStore(lambda level: new_flushed_store()),
}

#: Factories of empty stores in files; each gets a function that makes its inner stores.
STORES_IN_FILES: Final[Mapping[str, Callable[[Callable[[], SegmentStore]], MessageStore]]] = {
    "segments": lambda new: new(),
    "priority": lambda new: PriorityStore(10, lambda level: new()),
    "returns": lambda new: ReturnsStore(lambda level: new()),
    "strict": lambda new: StrictPriorityStore(lambda level: new()),
}
