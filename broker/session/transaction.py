"""Transactions of one channel: publishes and acknowledgements held until commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from broker.core.consumers import Holder
from storage.interface import Entry

if TYPE_CHECKING:
    from broker.session.channel import Channel

#: What becomes of messages at commit: Queue.acknowledge, reject or requeue.
Outcome: TypeAlias = Callable[[Holder, list[Entry]], None]


class Transaction:
    """What a channel has done since the last commit or rollback.

    Args:
        channel: The channel in transaction mode.
    """

    __slots__ = ("_channel", "_publishes", "_settlements")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._publishes: list[Callable[[], None]] = []
        self._settlements: list[tuple[list[tuple[int, tuple[Holder, Entry]]], str]] = []

    def hold_publish(self, publish: Callable[[], None]) -> None:
        """Hold a publish that has passed all checks.

        Args:
            publish: Routes and enqueues it.
        """
        self._publishes.append(publish)

    def hold_settlement(self, tags: list[int], outcome: str) -> None:
        """Hold acknowledgements: their tags are outstanding no more.

        Args:
            tags: Outstanding delivery tags.
            outcome: ``acknowledge``, ``reject`` or ``requeue``.
        """
        unacked = self._channel.unacked
        self._settlements.append(([(tag, unacked.pop(tag)) for tag in tags], outcome))

    def commit(self) -> None:
        """Do all that was held, publishes first."""
        publishes, self._publishes = self._publishes, []
        settlements, self._settlements = self._settlements, []
        for publish in publishes:
            publish()
        for held, outcome in settlements:
            for _, (holder, entry) in held:
                getattr(holder.queue, outcome)(holder, [entry])
                self._channel.released(holder, 1)

    def rollback(self) -> None:
        """Forget the publishes; the acknowledged messages are outstanding again."""
        self._publishes.clear()
        settlements, self._settlements = self._settlements, []
        unacked = self._channel.unacked
        for held, _ in settlements:
            unacked.update(held)
        if settlements:
            in_order = sorted(unacked.items())
            unacked.clear()
            unacked.update(in_order)
