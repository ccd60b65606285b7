"""Lost messages of deleted queues and exchanges."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from leveret.broker.core.counters.history import STEP, LossCounters

#: Longest time window in seconds; the names of deleted objects are kept for as long.
DAY: Final = 86_400
#: Deleted objects of a virtual host and kind whose names are kept.
_DELETED_MAX: Final = 200

Counters = TypeVar("Counters", bound=LossCounters)


@dataclass(frozen=True, slots=True)
class Deleted(Generic[Counters]):
    """A deleted queue or exchange.

    Args:
        name: Its name.
        counters: Its counters.
        deleted_at: Time of the deletion, in seconds since 1970.
    """

    name: str
    counters: Counters
    deleted_at: int


class DeletedObjects(Generic[Counters]):
    """Losses of deleted queues, or of deleted exchanges, of a virtual host.

    Objects deleted within the last day are kept by name, up to a limit; of all others only sums are kept.

    Args:
        earlier: Receives the sums of objects deleted more than a day ago.
        others: Receives the sums of objects that are not kept by name.

    Attributes:
        recent: Objects kept by name, oldest first.
        earlier: Sums of objects deleted more than a day ago.
        others: Sums of objects that are not kept by name, with a history.
    """

    def __init__(self, earlier: Counters, others: Counters) -> None:
        self.recent: deque[Deleted[Counters]] = deque()
        self.earlier = earlier
        self.others = others

    def add(self, name: str, counters: Counters, now: int, by_name: bool = True) -> None:
        """Add an object that is being deleted.

        Args:
            name: Its name.
            counters: Its counters.
            now: Seconds since 1970.
            by_name: Whether to keep it by name.
        """
        if not counters.has_losses:
            return
        if not by_name:
            self.others.absorb(counters)
            return
        counters.sample_losses(now // STEP * STEP + STEP, detailed=False)
        self.restore(name, counters, now)

    def restore(self, name: str, counters: Counters, deleted_at: int) -> None:
        """Add an object as the newest one; see add()."""
        self.recent.append(Deleted(name, counters, deleted_at))
        if len(self.recent) > _DELETED_MAX:
            self.others.absorb(self.recent.popleft().counters)

    def sample(self, now: int) -> None:
        """Take a sample, and drop the names of objects deleted more than a day ago."""
        while self.recent and self.recent[0].deleted_at < now - DAY:
            self.earlier.absorb(self.recent.popleft().counters)
        if self.others.has_losses:
            self.others.sample_losses(now, detailed=True)
