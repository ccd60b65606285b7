"""What named readers still need of the files of segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

#: More than the size of any file.
_NO_SIZE: Final = 1 << 64


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


class Holds:
    """What all readers need. What it says never changes. `needs()` is called by one thread only.

    Args:
        holds: Of each reader.
        max_bytes: Maximum size of the files that are kept for readers alone.
        keeps_all: Whether everything may be needed, because it is not known yet which queues the readers read.
        since: What was dropped from this time on is needed, in microseconds since 1970; None if nothing is because of
            its time.
    """

    __slots__ = ("_holds", "_keeps_all", "_least", "max_bytes", "since")

    def __init__(
        self, holds: Sequence[Hold] = (), max_bytes: int = 0, keeps_all: bool = False, since: int | None = None
    ) -> None:
        self._holds = holds
        self.since = 0 if keeps_all else since
        self._keeps_all = keeps_all
        #: The first number that some reader has not read, by store; None if nobody reads it. Found when it is needed.
        self._least: dict[tuple[int, int], int | None] = {}
        self.max_bytes = max_bytes

    def needs(self, content: Content | None, dropped: int = 0) -> bool:
        """Return whether a reader has not read a file.

        Args:
            content: What it has; None if it has no messages that readers are promised.
            dropped: When it was dropped, in microseconds since 1970.
        """
        if content is None or self._keeps_all or (self.since is not None and dropped >= self.since):
            return content is not None
        store = content[:2]
        if store not in self._least:
            key = f"{content.qid}/{content.priority}"
            numbers = [each.next.get(key, 0) for each in self._holds if content.qid in each.queues]
            self._least[store] = min(numbers, default=None)
        least = self._least[store]
        return least is not None and content.last_seq >= least

    def unread_bytes(self, files: Iterable[tuple[Content, int]]) -> dict[str, int]:
        """Return how many bytes each reader has not read, by its name.

        Args:
            files: What files have, and their sizes.
        """
        unread: dict[str, int] = {}
        by_store: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for content, size in files:
            by_store.setdefault(content[:2], []).append((-content.last_seq, size))
        for (qid, priority), found in by_store.items():
            found.sort()
            sizes = [0, *accumulate(size for _, size in found)]
            key = f"{qid}/{priority}"
            for hold in self._holds:
                if qid in hold.queues:
                    count = bisect_right(found, (-hold.next.get(key, 0), _NO_SIZE))
                    unread[hold.reader] = unread.get(hold.reader, 0) + sizes[count]
        return unread


NO_HOLDS: Final = Holds()
