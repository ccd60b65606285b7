"""Transactions of one channel: publishes and acknowledgements held until commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.protocol.faults import precondition_failed
from leveret.protocol.methods import INDEX

if TYPE_CHECKING:
    from leveret.broker.core.message_stores.registry import HasFailed
    from leveret.broker.session.channel import Channel, Outcome
    from leveret.broker.session.unacked import Held


_COMMIT: Final = INDEX["tx.commit"]
_COMMIT_OK: Final = INDEX["tx.commit-ok"]


class Transaction:
    """Publishes and acknowledgements of a channel since the last commit or rollback.

    Args:
        channel: The channel in transaction mode.
    """

    __slots__ = ("_channel", "_publishes", "_settlements")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
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
        unacked, settlements = self._channel.unacked, self._settlements
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
            self._channel.settle([each for _, each in held], outcome)
        return not any(refused)

    def written(self, has_failed: HasFailed) -> Callable[[], None] | None:
        """Prepare tx.commit-ok after the write; return the callback for the sync."""
        if has_failed(None):
            self._channel.fail(precondition_failed("partial tx completion"), _COMMIT)
            return None
        self._channel.connection.server.broker.gate.hold(self._channel.output)
        return self._synced

    def _synced(self) -> None:
        if self._channel.transaction is self:
            self._channel.send(_COMMIT_OK)

    def rollback(self) -> None:
        """Discard held publishes, and make acknowledged messages outstanding again."""
        self._publishes.clear()
        settlements, self._settlements = self._settlements, []
        for held, _ in settlements:
            self._channel.unacked.restore(held)
