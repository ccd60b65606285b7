"""The limit that all consumers of a channel share (basic.qos with global=true)."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.consumers import Consumer

#: Credit of a consumer without limits.
UNLIMITED: Final = 1 << 30


class SharedPrefetch:
    """How many unacked messages the consumers of a channel may hold together, and in which order they wait for room.

    Consumers take turns: one that finds no room waits behind those that wait already, and keeps its place until it is
    served. They may consume from one queue or from several.

    Attributes:
        limit: Messages; 0 for any number.
        unacked: Messages that they hold; those sent to consumers with no_ack do not count.
    """

    __slots__ = ("_waiting", "limit", "unacked")

    def __init__(self) -> None:
        self.limit = 0
        self.unacked = 0
        # A dict keeps the order in which they came.
        self._waiting: dict[Consumer, None] = {}

    def room_for(self, consumer: Consumer) -> int:
        """How many more messages a consumer may get; without any room it waits until queue.unblock() is called."""
        if not self.limit:
            return UNLIMITED
        room = self.limit - self.unacked
        if room <= 0:
            self._waiting.setdefault(consumer)
            return 0
        # RabbitMQ does not serve no_ack consumers either while there is no room, but what they get takes none.
        return UNLIMITED if consumer.no_ack else room

    def serve(self, consumer: Consumer, count: int) -> None:
        """Note that a consumer has been served: the next time it waits behind the others.

        Args:
            consumer: Who.
            count: Unacked messages that it now holds more.
        """
        self.unacked += count
        if self._waiting:
            self._waiting.pop(consumer, None)

    def release(self, count: int) -> None:
        """Note that consumers hold so many fewer; if that makes room, all that wait try again, in their order."""
        was_full = self.unacked >= self.limit
        self.unacked -= count
        if self.limit and was_full and self.unacked < self.limit:
            self._wake()

    def change(self, limit: int) -> None:
        """Put another limit in force; 0 for none."""
        self.limit = limit
        if not limit or self.unacked < limit:
            self._wake()

    def leave(self, consumer: Consumer) -> None:
        """Forget a consumer that is gone."""
        self._waiting.pop(consumer, None)

    def clear(self) -> None:
        """Forget all consumers and what they hold."""
        self._waiting.clear()
        self.unacked = 0

    def _wake(self) -> None:
        for consumer in self._waiting:
            consumer.queue.unblock(consumer)
        if not self.limit:
            self._waiting.clear()
