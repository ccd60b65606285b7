"""What named readers still need of the files of segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Content(NamedTuple):
    """What a file has.

    Attributes:
        qid: Number of the queue.
        priority: Priority of the store.
        last_seq: Number of its last message.
    """

    qid: int
    priority: int
    last_seq: int


class Hold(NamedTuple):
    """What one reader needs.

    Attributes:
        reader: Name of the reader.
        queues: Numbers of the queues that it reads.
        next: Number of the first message that it has not read, by store: `2/0`; 0 for others.
    """

    reader: str
    queues: frozenset[int]
    next: Mapping[str, int]


class Holds(NamedTuple):
    """What all readers need. It is never changed, so threads can share it.

    Attributes:
        holds: Of each reader.
        max_bytes: Maximum size of the files that are kept for readers alone.
        keeps_all: Whether everything may be needed, because it is not known yet which queues the readers read.
    """

    holds: tuple[Hold, ...] = ()
    max_bytes: int = 0
    keeps_all: bool = False

    def needs(self, content: Content | None) -> bool:
        """Return whether a reader has not read a file; None if it has no messages that readers are promised."""
        if content is None:
            return False
        return self.keeps_all or bool(self.readers_of(content))

    def readers_of(self, content: Content) -> list[str]:
        """Return the names of the readers that have not read a file."""
        key = f"{content.qid}/{content.priority}"
        return [
            each.reader
            for each in self.holds
            if content.qid in each.queues and content.last_seq >= each.next.get(key, 0)
        ]


NO_HOLDS: Final = Holds()
