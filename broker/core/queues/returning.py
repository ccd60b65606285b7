"""Requeued messages that are put back into their queue in parts, because there are very many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from leveret.storage.interface import Entry

#: Messages that are requeued between two checks of the time slice.
RETURN_STEP: Final = 512

#: Puts messages back into the queue.
PutBack: TypeAlias = Callable[[Sequence[Entry]], None]


class Returning:
    """Requeued messages that are not back in their queue yet.

    Attributes:
        batches: Batches of messages, oldest first; empty if all are back.
    """

    __slots__ = ("_done", "batches")

    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[Entry], PutBack]] = []
        #: Number of messages of the first batch that have been taken.
        self._done = 0

    def add(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Add a batch.

        Args:
            entries: The messages, at least one.
            put_back: Called with parts of them, in order.
        """
        self.batches.append((entries, put_back))

    def take_part(self) -> tuple[Sequence[Entry], PutBack]:
        """Remove and return the next messages, and what to call with them; requires batches."""
        entries, put_back = self.batches[0]
        end = self._done + RETURN_STEP
        part = entries[self._done : end]
        self._done = end
        if end >= len(entries):
            del self.batches[0]
            self._done = 0
        return part, put_back

    def clear(self) -> None:
        """Forget all messages: their queue is deleted."""
        self.batches.clear()
        self._done = 0
