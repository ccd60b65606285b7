"""The implementations of MessageStore. One that is registered here is held to the contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from storage.interface import MessageStore
from storage.memory_store import MemoryStore
from storage.priority_store import PriorityStore

#: Makes an empty store, by the name that a failing test shows.
STORES: Final[Mapping[str, Callable[[], MessageStore]]] = {
    "memory": MemoryStore,
    # The contract is of one priority; what several mean is tested beside the store.
    "priority": lambda: PriorityStore(10, MemoryStore),
    # What has been appended waits to be written ...
    # ... or has been.
}
