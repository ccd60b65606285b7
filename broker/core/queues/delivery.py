"""Delivers the ready messages of a queue to its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from leveret.broker.core.queues.consumers import ConsumerGroup, Consumers, QueueConsumer, UnackedHolder
from leveret.broker.core.queues.contents import Contents
from leveret.broker.core.queues.returns import RETURN_STEP, PutBack, Returning
from leveret.broker.core.queues.traits import QueueTraits
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.policies.dead_letter import EXPIRED
from leveret.storage.event_format import AUTO_ACK, EventKind
from leveret.storage.interface import Entry

#: Batch limits per consumer: large enough to amortise the cost per batch, small enough to stay fair.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144
#: Messages that are taken at once for consumers that take turns, unless there are more of these.
_SHARED_RUN_MESSAGES: Final = 1024


class Delivery:
    """Delivers the ready messages of a queue, and counts those that are unacked.

    Args:
        contents: The messages of the queue.
        consumers: Consumers of the queue.

    Attributes:
        returning: Requeued messages that are not back yet, because there are very many. They count as unacked. Until
            all are back nothing is delivered, so that newer messages do not overtake them.
        others: Holders of unacked messages that are not consumers of the queue (any more): its gets, and consumers
            that were cancelled.
    """

    __slots__ = (
        "_backing", "_consumers", "_contents", "_counters", "_counts_deliveries", "_outbox", "_unacked", "others",
        "returning",
    )  # fmt: skip

    def __init__(self, contents: Contents, consumers: ConsumerGroup, traits: QueueTraits) -> None:
        self._contents = contents
        self._backing = contents.backing
        self._consumers = consumers
        self._counters = contents.counters
        self._outbox = contents.outbox
        self._counts_deliveries = traits.counts_deliveries
        self._unacked = contents.unacked
        self.returning = Returning()
        self.others: dict[UnackedHolder, None] = {}

    @property
    def unacked_count(self) -> int:
        """Number of messages delivered and not yet settled."""
        return self._unacked.count

    @property
    def unacked_bytes(self) -> int:
        """Body bytes of these."""
        return self._unacked.body_bytes

    def serve(self, expired_too: bool = False) -> None:
        """Deliver messages while a consumer has credit.

        Args:
            expired_too: Also deliver messages that have expired: one with a TTL of 0 is delivered if a consumer has
                credit when it is published.
        """
        if self.returning.batches:
            return
        store, ring, contents = self._backing.store, self._consumers.ring, self._contents
        while store.ready_count and ring:
            level = ring.first_level()
            if len(level) > 1 and not (contents.may_have_timed or self._consumers.share_channels):
                self._serve_in_turns(level)
                continue
            consumer = next(iter(level))
            credit = consumer.credit()
            if credit <= 0:
                ring.block(consumer)
                continue
            if len(level) > 1:
                # Consumers of the same priority take turns.
                credit = 1
            entries, body_bytes = store.take(min(credit, _RUN_MESSAGES), _RUN_BYTES)
            if contents.may_have_timed and not expired_too:
                entries, expired = contents.split_expired(entries)
                if expired:
                    # Their dead letters may be routed back to this consumer: deliver the older messages first.
                    body_bytes -= sum(len(entry[1].body) for entry in expired)
                    self._deliver_first(level, consumer, entries, body_bytes)
                    self._outbox.drop(expired, EXPIRED, EventKind.EXPIRED)
                    continue
            self._deliver_first(level, consumer, entries, body_bytes)

    def _serve_in_turns(self, level: Consumers) -> None:
        """Deliver messages to consumers of one priority, which take turns; each gets all of its messages at once.

        The consumers are on different channels: within a channel messages stay in order, and each has its own credit.
        """
        store = self._backing.store
        served, credit = self._find_credit(level)
        if not served:
            return
        turn_length = len(served)
        entries, _ = store.take(min(credit * turn_length, max(_SHARED_RUN_MESSAGES, turn_length)), _RUN_BYTES)
        # The consumers that had the last messages are the last ones now.
        taken = len(entries)
        for consumer in served[: taken % turn_length if turn_length == len(level) else taken]:
            level.move_to_end(consumer)
        for position, consumer in enumerate(served[:taken]):
            own = entries[position::turn_length]
            self._deliver(consumer, own, sum([len(entry[1].body) for entry in own]))

    def _find_credit(self, level: Consumers) -> tuple[list[QueueConsumer], int]:
        """Return the consumers that are served next, as many as there are messages for, and what all have credit for.

        If some have none, these are blocked, and none are returned.
        """
        served: list[QueueConsumer] = []
        blocked: list[QueueConsumer] = []
        least = _RUN_MESSAGES
        for consumer in islice(level, self._backing.store.ready_count):
            credit = consumer.credit()
            if credit <= 0:
                blocked.append(consumer)
            else:
                served.append(consumer)
                least = min(least, credit)
        for consumer in blocked:
            self._consumers.ring.block(consumer)
        return ([], 0) if blocked else (served, least)

    def add_unacked(self, count: int, body_bytes: int) -> None:
        """Count messages that were taken from the store as unacked."""
        self._unacked.count += count
        self._unacked.body_bytes += body_bytes

    def hold(self, holder: UnackedHolder, count: int, body_bytes: int) -> None:
        """Count messages that were taken from the store as unacked ones of a holder that is not a consumer."""
        self.others[holder] = None
        self.add_unacked(count, body_bytes)
        holder.unacked += count

    def remove_unacked(self, entries: Sequence[Entry]) -> None:
        """Stop counting messages as unacked."""
        count = len(entries)
        self._unacked.count -= count
        if count == 1:
            self._unacked.body_bytes -= len(entries[0][1].body)
        else:
            self._unacked.body_bytes -= sum([len(entry[1].body) for entry in entries])

    def put_back(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Put requeued messages back: at once, or by return_some() if there are very many.

        Args:
            entries: The messages, which no longer count as unacked.
            put_back: Called with all of them, or with some at a time.
        """
        if len(entries) <= RETURN_STEP and not self.returning.batches:
            put_back(entries)
            return
        self.add_unacked(len(entries), sum([len(entry[1].body) for entry in entries]))
        self.returning.add(entries, put_back)

    def return_some(self, time_slice: TimeSlice) -> bool:
        """Put requeued messages back while time is left; return whether all are back."""
        returning = self.returning
        if not returning.batches:
            return True
        while returning.batches:
            if time_slice.is_over():
                return False
            part, put_back = returning.take_part()
            self.remove_unacked(part)
            put_back(part)
        if self._counts_deliveries:
            self.serve_returned(time_slice)
        return True

    def serve_returned(self, time_slice: TimeSlice) -> None:
        """Deliver returned messages: unlike classic queues, quorum queues do so before they apply limits."""
        if not self._contents.may_have_timed or self._contents.expire(time_slice):
            self.serve()

    def prepare(self, time_slice: TimeSlice) -> bool:
        """Finish requeues, then apply limits and expiry while time is left; return whether all is finished."""
        return self.return_some(time_slice) and self._contents.evict_and_expire(time_slice)

    def _deliver_first(self, level: Consumers, consumer: QueueConsumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages, if any, to the first consumer of a priority level, and move it to the end."""
        if not entries:
            return
        if len(level) > 1:
            level.move_to_end(consumer)
        self._deliver(consumer, entries, body_bytes)

    def _deliver(self, consumer: QueueConsumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages to a consumer."""
        self._counters.count_delivery(entries)
        if consumer.no_ack:
            self._counters.delivered_no_ack += len(entries)
            if self._outbox.values.is_active:
                self._outbox.values.release(self._backing.store, entries)
            self._backing.store.settle(entries, AUTO_ACK)
        else:
            self.add_unacked(len(entries), body_bytes)
        consumer.deliver(entries, body_bytes)
