"""Tunes `gc` to avoid long pauses."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any, Final

#: New objects between two runs of the collector, which looks at nothing else: some milliseconds.
_NEW_OBJECTS: Final = 20_000
#: A full collection every N young collections.
_RUNS: Final = 1_000


class GarbageCollection:
    """Freezes long-lived objects so that each is scanned once.

    Connections, channels, queues and messages that end leave no cycles, so that there is next to nothing to collect;
    but a run that walks ten thousand queues, or a million messages that wait, takes a good part of a second.

    Args:
        call_soon: Calls something once the current work is done.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._runs = 0

    def start(self) -> None:
        """Take charge of the process's collector."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(_NEW_OBJECTS, _RUNS, _RUNS)
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Leave it alone."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop":
            return
        # What has been looked at is not looked at again.
        gc.freeze()
        self._runs += 1
        if self._runs == _RUNS:
            self._runs = 0
            self._call_soon(collect_everything)


def collect_everything() -> None:
    """Find all garbage there is, also among what is not looked at again."""
    had_been_looked_at = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    if had_been_looked_at:
        gc.freeze()
