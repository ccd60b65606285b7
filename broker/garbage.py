"""Tunes `gc` to avoid long pauses."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any, Final

#: New objects between two young collections. A collection of this many takes some milliseconds.
_YOUNG_OBJECTS: Final = 20_000
#: A full collection every N young collections.
_YOUNG_COLLECTIONS: Final = 1_000


class GarbageCollection:
    """Freezes long-lived objects so that each is scanned once.

    Closed connections, deleted queues and removed messages leave no reference cycles, so there is little to collect.
    A collection that scans ten thousand queues or a million messages takes a good part of a second.

    Args:
        call_soon: Schedules a function on the event loop.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._collections = 0

    def start(self) -> None:
        """Freeze all current objects, and configure the collector of the process."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_COLLECTIONS, _YOUNG_COLLECTIONS)
        gc.callbacks.append(self._after_collection)

    def stop(self) -> None:
        """Stop to freeze objects."""
        gc.callbacks.remove(self._after_collection)

    def _after_collection(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop":
            return
        # Objects that have survived are not scanned again.
        gc.freeze()
        self._collections += 1
        if self._collections == _YOUNG_COLLECTIONS:
            self._collections = 0
            self._call_soon(collect_all)


def collect_all() -> None:
    """Run a full collection, including frozen objects."""
    had_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if had_frozen:
        gc.freeze()
