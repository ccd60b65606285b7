"""Prefetch limit of a channel (basic.qos with global=true)."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.queues.consumers import QueueConsumer

#: Credit of a consumer without limits.
UNLIMITED: Final = 1 << 30


class SharedPrefetch:
    """Prefetch limit shared by all consumers of a channel.

    Consumers without credit wait in a queue, in order of arrival, until they are served. They may consume from
    different queues.

    Attributes:
        limit: Maximum number of unacked messages; 0 for no limit.
        unacked: Number of unacked messages of all consumers; those with no_ack have none.
    """

    __slots__ = ("_waiting", "limit", "unacked")

    def __init__(self) -> None:
        self.limit = 0
        self.unacked = 0
        # A dict used as an ordered set.
        self._waiting: dict[QueueConsumer, None] = {}

    def credit(self, consumer: QueueConsumer) -> int:
        """Return the credit of a consumer; at 0 it waits until it is unblocked."""
        if not self.limit:
            return UNLIMITED
        room = self.limit - self.unacked
        if room <= 0:
            self._waiting.setdefault(consumer)
            return 0
        # As in RabbitMQ, no_ack consumers wait while the limit is reached, but their messages do not count.
        return UNLIMITED if consumer.no_ack else room

    def count_delivered(self, consumer: QueueConsumer, count: int) -> None:
        """Count delivered messages, and remove the consumer from the waiting ones.

        Args:
            consumer: The consumer.
            count: Number of new unacked messages.
        """
        self.unacked += count
        if self._waiting:
            self._waiting.pop(consumer, None)

    def release(self, count: int) -> None:
        """Count settled messages; if the limit is no longer reached, unblock all waiting consumers in order."""
        was_full = self.unacked >= self.limit
        self.unacked -= count
        if self.limit and was_full and self.unacked < self.limit:
            self._unblock_waiting()

    def set_limit(self, limit: int) -> None:
        """Change the limit; 0 for none."""
        self.limit = limit
        if not limit or self.unacked < limit:
            self._unblock_waiting()

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove a cancelled consumer."""
        self._waiting.pop(consumer, None)

    def clear(self) -> None:
        """Remove all consumers, and reset the count."""
        self._waiting.clear()
        self.unacked = 0

    def _unblock_waiting(self) -> None:
        for consumer in self._waiting:
            consumer.unblock()
        if not self.limit:
            self._waiting.clear()
