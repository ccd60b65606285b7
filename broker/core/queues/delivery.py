"""Delivers the ready messages of a queue to its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.broker.core.message_stores.backing import QueueBacking
from leveret.broker.core.queues.consumers import ConsumerGroup, Consumers, QueueConsumer
from leveret.broker.core.queues.contents import Contents
from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.queues.outbox import DeadLetterOutbox
from leveret.policies.dead_letter import EXPIRED
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry

#: Batch limits per consumer: large enough to amortise the cost per batch, small enough to stay fair.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144


class Delivery:
    """Delivers the ready messages of a queue, and counts those that are unacked.

    Args:
        contents: The messages of the queue.
        backing: Where the messages are kept.
        consumers: Consumers of the queue.
        counters: Counters of the queue.
        outbox: Gets expired messages.

    Attributes:
        unacked_count: Number of messages delivered and not yet settled.
        unacked_bytes: Body bytes of these.
    """

    __slots__ = ("_backing", "_consumers", "_contents", "_counters", "_outbox", "unacked_bytes", "unacked_count")

    def __init__(
        self,
        contents: Contents,
        backing: QueueBacking,
        consumers: ConsumerGroup,
        counters: QueueCounters,
        outbox: DeadLetterOutbox,
    ) -> None:
        self._contents = contents
        self._backing = backing
        self._consumers = consumers
        self._counters = counters
        self._outbox = outbox
        self.unacked_count = 0
        self.unacked_bytes = 0

    def serve(self, expired_too: bool = False) -> None:
        """Deliver messages while a consumer has credit.

        Args:
            expired_too: Also deliver expired messages, for a TTL of 0.
        """
        store, ring, contents = self._backing.store, self._consumers.ring, self._contents
        while store.ready_count and ring:
            level = ring.first_level()
            consumer = next(iter(level))
            credit = consumer.credit()
            if credit <= 0:
                ring.block(consumer)
                continue
            if len(level) > 1:
                credit = 1
            entries, body_bytes = store.take(min(credit, _RUN_MESSAGES), _RUN_BYTES)
            if contents.may_have_timed and not expired_too:
                entries, expired = contents.split_expired(entries)
                if expired:
                    # Their dead letters may be routed back to this consumer: deliver the older messages first.
                    body_bytes -= sum(len(entry[1].body) for entry in expired)
                    self._deliver(level, consumer, entries, body_bytes)
                    self._outbox.drop(expired, EXPIRED, EventKind.EXPIRED)
                    continue
            self._deliver(level, consumer, entries, body_bytes)

    def hold(self, count: int, body_bytes: int) -> None:
        """Count messages that were taken from the store as unacked."""
        self.unacked_count += count
        self.unacked_bytes += body_bytes

    def release(self, entries: Sequence[Entry]) -> None:
        """Stop counting messages as unacked."""
        self.unacked_count -= len(entries)
        self.unacked_bytes -= sum([len(entry[1].body) for entry in entries])

    def _deliver(self, level: Consumers, consumer: QueueConsumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages, if any, to the first consumer of a priority level, and move it to the end."""
        if not entries:
            return
        if len(level) > 1:
            level.move_to_end(consumer)
        self._counters.count_delivery(entries)
        if consumer.no_ack:
            self._counters.delivered_no_ack += len(entries)
            self._backing.store.settle(entries, EventKind.AUTO_ACK)
        else:
            self.hold(len(entries), body_bytes)
        consumer.deliver(entries, body_bytes)
