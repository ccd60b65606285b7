"""Transactions of one channel: publishes and acknowledgements held until commit."""

from __future__ import annotations

from collections.abc import Callable

from leveret.broker.session.unacked import Held, Outcome, Unacked


class Transaction:
    """Publishes and acknowledgements of a channel since the last commit or rollback.

    Args:
        unacked: Unacknowledged messages of the channel.
    """

    __slots__ = ("_publishes", "_settlements", "_unacked")

    def __init__(self, unacked: Unacked) -> None:
        self._unacked = unacked
        self._publishes: list[tuple[Callable[[], int], int]] = []
        self._settlements: list[tuple[list[tuple[int, Held]], Outcome]] = []

    def hold_publish(self, publish: Callable[[], int], count: int) -> None:
        """Hold publishes that have passed all checks.

        Args:
            publish: Enqueues them; returns the number that no queue refused.
            count: Number of publishes.
        """
        self._publishes.append((publish, count))

    def hold_settlement(self, tags: list[int], outcome: Outcome) -> None:
        """Hold acknowledgements; their delivery tags are no longer outstanding.

        Args:
            tags: Outstanding delivery tags.
            outcome: How to settle the messages at commit.
        """
        unacked, settlements = self._unacked, self._settlements
        held = [(tag, unacked.pop(tag)) for tag in tags]
        if settlements and outcome == "acknowledge" == settlements[-1][1]:
            settlements[-1][0].extend(held)
        else:
            settlements.append((held, outcome))

    def held_counts(self) -> tuple[int, int]:
        """Return the numbers of held publishes and acknowledgements."""
        publishes = sum(count for _, count in self._publishes)
        return publishes, sum(len(held) for held, _ in self._settlements)

    def commit(self) -> bool:
        """Apply held publishes, then acknowledgements; return whether all publishes were accepted."""
        publishes, self._publishes = self._publishes, []
        settlements, self._settlements = self._settlements, []
        refused = [publish() < count for publish, count in publishes]
        for held, outcome in settlements:
            self._unacked.settle([each for _, each in held], outcome)
        return not any(refused)

    def rollback(self) -> None:
        """Discard held publishes, and make acknowledged messages outstanding again."""
        self._publishes.clear()
        settlements, self._settlements = self._settlements, []
        for held, _ in settlements:
            self._unacked.restore(held)
