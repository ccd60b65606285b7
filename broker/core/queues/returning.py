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
    """Requeued messages that are not back in their queue yet, in batches, oldest first."""

    __slots__ = ("_batches", "_done")

    def __init__(self) -> None:
        self._batches: deque[tuple[Sequence[Entry], PutBack]] = deque()
        #: Number of messages of the first batch that are back.
        self._done = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Add a batch.

        Args:
            entries: The messages, at least one.
            put_back: Called with parts of them, in order.
        """
        self._batches.append((entries, put_back))

    def run(self, time_slice: TimeSlice) -> bool:
        """Put messages back while time is left; return whether all are back."""
        while self._batches:
            if time_slice.is_over():
                return False
            entries, put_back = self._batches[0]
            end = self._done + RETURN_STEP
            part = entries[self._done : end]
            self._done = end
            if end >= len(entries):
                self._batches.popleft()
                self._done = 0
            put_back(part)
        return True

    def clear(self) -> None:
        """Forget all messages: their queue is deleted."""
        self._batches.clear()
        self._done = 0
