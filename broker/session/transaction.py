"""Transactions of one channel: publishes and acknowledgements held until commit."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import UNLIMITED, TimeSlice
from leveret.broker.session.unacked import Held, Outcome, Unacked

#: Acknowledgements applied between two checks of the time slice.
_SLICE_ACKNOWLEDGEMENTS: Final = 8192


class HeldPublish(Protocol):
    """Messages that passed all checks.

    Attributes:
        count: Their number.
        taken: Number of those that no queue has refused.
    """

    count: int
    taken: int

    def run(self, time_slice: TimeSlice) -> bool:
        """Enqueue them while time is left; return whether all queues have them."""


class Transaction:
    """Publishes and acknowledgements of a channel since the last commit or rollback."""

    __slots__ = ("_is_committing", "_is_refused", "_publishes", "_returning", "_settlements", "_unacked")

    def __init__(self, unacked: Unacked) -> None:
        self._unacked = unacked
        self._publishes: deque[HeldPublish] = deque()
        self._settlements: deque[tuple[list[tuple[int, Held]], Outcome]] = deque()
        unacked.set_aside = self._settlements
        #: Queues that have not requeued all messages of the commit yet.
        self._returning: list[Queue] = []
        self._is_committing = False
        self._is_refused = False

    def hold_publish(self, publish: HeldPublish) -> None:
        """Hold publishes that have passed all checks."""
        self._publishes.append(publish)

    def hold_settlement(self, tags: list[int], outcome: Outcome) -> None:
        """Hold acknowledgements; their delivery tags are no longer outstanding.

        Args:
            tags: Outstanding delivery tags.
            outcome: How to settle the messages at commit.
        """
        unacked, settlements = self._unacked, self._settlements
        held = [(tag, unacked.held.pop(tag)) for tag in tags]
        if settlements and outcome == "acknowledge" == settlements[-1][1]:
            settlements[-1][0].extend(held)
        else:
            settlements.append((held, outcome))

    def held_counts(self) -> tuple[int, int]:
        """Return the numbers of held publishes and acknowledgements."""
        publishes = sum(publish.count for publish in self._publishes)
        return publishes, sum(len(held) for held, _ in self._settlements)

    def commit(self, time_slice: TimeSlice) -> bool:
        """Apply held publishes, then acknowledgements, while time is left.

        Returns:
            Whether it is finished, so that end_commit() can be called; otherwise call it again.
        """
        self._is_committing = True
        published = 0
        while self._publishes:
            if published and time_slice.is_over():
                return False
            publish = self._publishes[0]
            if not publish.run(time_slice):
                return False
            del self._publishes[0]
            self._is_refused |= publish.taken < publish.count
            published += publish.count
            time_slice.count_published(publish.count)
        while self._settlements:
            if published and time_slice.is_over():
                return False
            published += self._settle_some()
        self._returning = [queue for queue in self._returning if not queue.return_some(time_slice)]
        return not self._returning

    def end_commit(self) -> bool:
        """End a finished commit; return whether all publishes were accepted."""
        is_refused, self._is_refused, self._is_committing = self._is_refused, False, False
        return not is_refused

    def _settle_some(self) -> int:
        """Apply acknowledgements; return their number."""
        held, outcome = self._settlements.popleft()
        if outcome == "acknowledge" and len(held) > _SLICE_ACKNOWLEDGEMENTS:
            self._settlements.appendleft((held[_SLICE_ACKNOWLEDGEMENTS:], outcome))
            del held[_SLICE_ACKNOWLEDGEMENTS:]
        self._returning += self._unacked.settle([each for _, each in held], outcome)
        return len(held)

    def abandon(self) -> None:
        """End the transaction with its channel: roll it back, or finish a commit that has begun."""
        if self._is_committing:
            while not self.commit(UNLIMITED):
                pass
        self.rollback()

    def rollback(self) -> None:
        """Discard held publishes, and make acknowledged messages outstanding again."""
        self._publishes.clear()
        while self._settlements:
            self._unacked.restore(self._settlements.popleft()[0])
