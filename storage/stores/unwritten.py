"""Messages that are in memory only and belong on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.storage.message import Message
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Arrival


class Unwritten:
    """What the next flush of a store writes to its durable stream.

    Attributes:
        has_gaps: Some of it may have been settled since.
    """

    __slots__ = ("_batches", "has_gaps")

    def __init__(self) -> None:
        #: Number of the first, messages, when they came.
        self._batches: list[tuple[int, Sequence[Message], int]] = []
        self.has_gaps = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def append(self, seq: int, messages: Sequence[Message], arrived: int) -> None:
        """Add messages.

        Args:
            seq: Number of the first.
            messages: In order.
            arrived: When they came, in microseconds.
        """
        self._batches.append((seq, messages, arrived))

    def first_seq(self, next_seq: int) -> int:
        """The lowest number in it; `next_seq`, that of the next message, if it is empty."""
        return self._batches[0][0] if self._batches else next_seq

    def arrivals(self, dead: DeadSet) -> list[Arrival]:
        """All of it that is not dead, in order."""
        return [each for each in self._each() if each[0] not in dead] if self.has_gaps else [*self._each()]

    def replace(self, arrivals: Sequence[Arrival]) -> None:
        """Have only these left."""
        self._batches = [(seq, [message], arrived) for seq, message, arrived in arrivals]
        self.has_gaps = False

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self.has_gaps = False

    def _each(self) -> Iterator[Arrival]:
        return (
            (seq, message, arrived)
            for first, messages, arrived in self._batches
            for seq, message in enumerate(messages, first)
        )
