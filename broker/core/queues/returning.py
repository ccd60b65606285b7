"""Requeues very many messages of a queue in time slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from leveret.broker.core.scheduling.time_slice import TimeSlice
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
        self.batches: deque[tuple[Sequence[Entry], PutBack]] = deque()
        #: Number of messages of the first batch that are back.
        self._done = 0

    def add(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Add a batch.

        Args:
            entries: The messages, at least one.
            put_back: Called with parts of them, in order.
        """
        self.batches.append((entries, put_back))

    def run(self, time_slice: TimeSlice) -> bool:
        """Put messages back while time is left; return whether all are back."""
        while self.batches:
            if time_slice.is_over():
                return False
            entries, put_back = self.batches[0]
            end = self._done + RETURN_STEP
            part = entries[self._done : end]
            self._done = end
            if end >= len(entries):
                self.batches.popleft()
                self._done = 0
            put_back(part)
        return True

    def clear(self) -> None:
        """Forget all messages: their queue is deleted."""
        self.batches.clear()
        self._done = 0
