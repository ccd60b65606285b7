"""Messages in memory that must be written to disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.storage.message import Message
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.segment import Arrival


class Unwritten:
    """Messages that the next flush writes to the durable stream.

    Attributes:
        has_gaps: Whether some of them may have been settled since.
    """

    __slots__ = ("_batches", "has_gaps")

    def __init__(self) -> None:
        #: Sequence number of the first message, messages, arrival.
        self._batches: list[tuple[int, Sequence[Message], int]] = []
        self.has_gaps = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def append(self, seq: int, messages: Sequence[Message], arrived: int) -> None:
        """Add messages.

        Args:
            seq: Sequence number of the first message.
            messages: Messages in order.
            arrived: Arrival in microseconds since 1970.
        """
        self._batches.append((seq, messages, arrived))

    def first_seq(self, next_seq: int) -> int:
        """Return the lowest sequence number; `next_seq` if it is empty."""
        return self._batches[0][0] if self._batches else next_seq

    def arrivals(self, dead: DeadSet) -> list[Arrival]:
        """Return the messages that are not dead, in order."""
        return [each for each in self._each() if each[0] not in dead] if self.has_gaps else [*self._each()]

    def replace(self, arrivals: Sequence[Arrival]) -> None:
        """Replace the contents."""
        self._batches = [(seq, [message], arrived) for seq, message, arrived in arrivals]
        self.has_gaps = False

    def clear(self) -> None:
        """Remove all messages."""
        self._batches.clear()
        self.has_gaps = False

    def _each(self) -> Iterator[Arrival]:
        return (
            (seq, message, arrived)
            for first, messages, arrived in self._batches
            for seq, message in enumerate(messages, first)
        )
