"""Counters of channels, exchanges, queues and connections. They only grow, with one addition per batch of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final

from leveret.broker.core.counters.history import LossCounters, SampledCounters
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from leveret.storage.interface import Entry


class ChannelCounters(SampledCounters):
    """Counters of a channel; the names are those of the HTTP API."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "publish",
        "confirm",
        "return_unroutable",
        "drop_unroutable",
        "deliver",
        "deliver_no_ack",
        "get",
        "get_no_ack",
        "get_empty",
        "redeliver",
        "ack",
    )

    #: Messages published; those in confirm mode also count as publish_confirm.
    publish = 0
    #: Messages published in confirm mode.
    publish_confirm = 0
    #: Messages confirmed.
    confirm = 0
    #: Unroutable messages returned.
    return_unroutable = 0
    #: Unroutable messages dropped.
    drop_unroutable = 0
    #: Messages delivered to consumers that acknowledge.
    deliver = 0
    #: Messages delivered to consumers that do not acknowledge.
    deliver_no_ack = 0
    #: Messages fetched by basic.get, to be acknowledged.
    get = 0
    #: Messages fetched by basic.get without acknowledgement.
    get_no_ack = 0
    #: Calls of basic.get on an empty queue.
    get_empty = 0
    #: Delivered or fetched messages that had been delivered before.
    redeliver = 0
    #: Messages acknowledged.
    ack = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return (
            self.publish,
            self.confirm,
            self.return_unroutable,
            self.drop_unroutable,
            self.deliver,
            self.deliver_no_ack,
            self.get,
            self.get_no_ack,
            self.get_empty,
            self.redeliver,
            self.ack,
        )

    def absorb(self, other: ChannelCounters) -> None:
        """Add the counters of a closed channel."""
        self.publish += other.publish
        self.publish_confirm += other.publish_confirm
        self.confirm += other.confirm
        self.return_unroutable += other.return_unroutable
        self.drop_unroutable += other.drop_unroutable
        self.deliver += other.deliver
        self.deliver_no_ack += other.deliver_no_ack
        self.get += other.get
        self.get_no_ack += other.get_no_ack
        self.get_empty += other.get_empty
        self.redeliver += other.redeliver
        self.ack += other.ack


class ExchangeCounters(LossCounters):
    """Counters of an exchange."""

    FIELDS: ClassVar[tuple[str, ...]] = ("publish_in", "publish_out")
    #: New ones at the end: the histories of earlier versions have fewer numbers.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = (
        "lost",
        "drop_unroutable",
        "return_unroutable",
        "refuse",
        "drop_deleted",
        "refuse_told",
    )

    #: Messages published to it.
    publish_in = 0
    #: Messages routed to queues, counted once per queue.
    publish_out = 0
    #: Unroutable messages dropped.
    drop_unroutable = 0
    #: Unroutable messages returned to the publisher.
    return_unroutable = 0
    #: Messages with a delay that were refused, because too many waited.
    refuse = 0
    #: Of these, those whose sender knows; see QueueCounters.refused_told.
    refuse_told = 0
    #: Messages that waited until they were due when the exchange was deleted.
    drop_deleted = 0
    #: Duplicates that it has dropped, which are not lost.
    deduplicated = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return self.publish_in, self.publish_out

    @property
    def has_losses(self) -> bool:
        """Whether it has lost messages."""
        return bool(self.drop_unroutable or self.return_unroutable or self.refuse or self.drop_deleted or self.earlier)

    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """Return the losses since the start, by LOSS_FIELDS; messages whose publisher was told are not lost."""
        lost = self.drop_unroutable + self.refuse - self.refuse_told + self.drop_deleted
        return (
            lost,
            self.drop_unroutable,
            self.return_unroutable,
            self.refuse,
            self.drop_deleted,
            self.refuse_told,
        )

    def count_unroutable(self, count: int, returned: bool) -> None:
        """Count unroutable messages."""
        if returned:
            self.return_unroutable += count
        else:
            self.drop_unroutable += count

    def absorb(self, other: ExchangeCounters) -> None:
        """Add the counters of a deleted exchange."""
        self.publish_in += other.publish_in
        self.publish_out += other.publish_out
        self.drop_unroutable += other.drop_unroutable
        self.return_unroutable += other.return_unroutable
        self.refuse += other.refuse
        self.refuse_told += other.refuse_told
        self.drop_deleted += other.drop_deleted
        self.deduplicated += other.deduplicated
        self.add_earlier(other.earlier)


class ConnectionCounters(SampledCounters):
    """Counters of a connection."""

    FIELDS: ClassVar[tuple[str, ...]] = ("recv_oct", "send_oct")

    #: Bytes read.
    recv_oct = 0
    #: Number of reads.
    recv_cnt = 0
    #: Bytes written.
    send_oct = 0
    #: Number of writes.
    send_cnt = 0

    def row(self) -> tuple[int, ...]:
        """Return the numbers, by FIELDS."""
        return self.recv_oct, self.send_oct

    def absorb(self, other: ConnectionCounters) -> None:
        """Add the counters of a closed connection."""
        self.recv_oct += other.recv_oct
        self.recv_cnt += other.recv_cnt
        self.send_oct += other.send_oct
        self.send_cnt += other.send_cnt


#: Weight of the newest sample in the moving average of consumer capacity.
_CAPACITY_WEIGHT: Final = 0.5


class QueueCounters(LossCounters):
    """Message counters of one queue. All except capacity only increase.

    Args:
        since: See LossCounters.
    """

    #: Counters with a history; see row().
    FIELDS: ClassVar[tuple[str, ...]] = (
        "messages_ready",
        "messages_unacknowledged",
        "publish",
        "deliver",
        "deliver_no_ack",
        "get",
        "get_no_ack",
        "get_empty",
        "redeliver",
        "ack",
        "drop",
        "refuse",
    )

    #: New ones at the end: the histories of earlier versions have fewer numbers.
    LOSS_FIELDS: ClassVar[tuple[str, ...]] = (
        "lost",
        "drop_maxlen",
        "drop_expired",
        "drop_rejected",
        "drop_delivery_limit",
        "drop_purged",
        "drop_deleted",
        "refuse",
        "dead_letter_maxlen",
        "dead_letter_expired",
        "dead_letter_rejected",
        "dead_letter_delivery_limit",
        "dead_letter_lost_maxlen",
        "dead_letter_lost_expired",
        "dead_letter_lost_rejected",
        "dead_letter_lost_delivery_limit",
        "refuse_told",
    )

    #: Messages accepted from publishers and dead-lettering.
    published = 0
    #: Publishes refused because the queue was full.
    refused = 0
    #: Of these, those that are not lost although they are in no dead-letter queue, because their sender knows: a
    #: publisher with confirms, in a transaction or over HTTP, or a queue whose dead letters they are.
    refused_told = 0
    #: Messages sent to consumers, with or without acknowledgement.
    delivered = 0
    #: Those of delivered that needed no acknowledgement.
    delivered_no_ack = 0
    #: Messages returned by basic.get, with or without acknowledgement.
    got = 0
    #: Those of got that needed no acknowledgement.
    got_no_ack = 0
    #: basic.get requests answered with get-empty.
    got_empty = 0
    #: Those of delivered and got that had been delivered before.
    redelivered = 0
    #: Messages acknowledged by consumers.
    acknowledged = 0
    #: Messages returned to the queue.
    requeued = 0
    #: Dead letters that at least one queue accepted.
    dead_letters_arrived = 0
    #: Those sent with the at-least-once strategy and accepted by all queues.
    dead_letters_confirmed = 0
    #: Duplicates that were dropped on arrival, which are not lost.
    deduplicated = 0
    #: Messages that were ready when the queue was deleted.
    deleted = 0
    #: Messages that the retention of a stream removed. They are no losses.
    outlived = 0
    #: Share of recent time in which consumers could accept more messages immediately, 0.0 to 1.0.
    capacity = 1.0
    #: Messages read from disk, at the last sample.
    disk_reads = 0
    #: Messages written to disk, at the last sample.
    disk_writes = 0

    def __init__(self, since: int = 0) -> None:
        super().__init__(since)
        #: Messages removed otherwise, by reason: maxlen, expired, rejected, delivery_limit, purged.
        self.dropped: Counter[str] = Counter()
        #: Messages published to the dead-letter exchange, by reason.
        self.dead_lettered: Counter[str] = Counter()
        #: Dead letters that no queue accepted, by reason: the exchange does not exist, or the message was unroutable,
        #: or all queues were full.
        self.dead_letters_lost: Counter[str] = Counter()

    def count_delivery(self, entries: Sequence[Entry]) -> None:
        """Count messages sent to a consumer."""
        self.delivered += len(entries)
        if self.requeued:
            self.redelivered += sum([entry[2] for entry in entries])

    def row(self, ready: int, unacknowledged: int) -> tuple[int, ...]:
        """Return the values of FIELDS.

        Args:
            ready: Messages ready in the queue.
            unacknowledged: Messages delivered and not yet settled.
        """
        return (
            ready,
            unacknowledged,
            self.published,
            self.delivered - self.delivered_no_ack,
            self.delivered_no_ack,
            self.got - self.got_no_ack,
            self.got_no_ack,
            self.got_empty,
            self.redelivered,
            self.acknowledged,
            self.dropped.total() if self.dropped else 0,
            self.refused,
        )

    @property
    def has_losses(self) -> bool:
        """Whether messages may have been lost; all counters may still be 0."""
        return bool(self.dropped or self.refused or self.deleted or self.earlier)

    def current_loss_row(self, retained: int = 0) -> tuple[int, ...]:
        """Return the losses since the broker was started, the values of LOSS_FIELDS.

        The sum excludes purged messages and those of a deleted queue, which users removed on purpose, and refused ones
        whose sender knows.
        """
        dropped, letters, lost = self.dropped, self.dead_lettered, self.dead_letters_lost
        purged = dropped["purged"]
        return (
            dropped.total() - purged + self.refused - self.refused_told - self.dead_letters_arrived - retained,
            dropped[MAXLEN],
            dropped[EXPIRED],
            dropped[REJECTED],
            dropped[DELIVERY_LIMIT],
            purged,
            self.deleted,
            self.refused,
            letters[MAXLEN],
            letters[EXPIRED],
            letters[REJECTED],
            letters[DELIVERY_LIMIT],
            lost[MAXLEN],
            lost[EXPIRED],
            lost[REJECTED],
            lost[DELIVERY_LIMIT],
            self.refused_told,
        )

    def sample_capacity(self, can_deliver: bool) -> None:
        """Add a sample of whether consumers can accept more messages."""
        self.capacity += (float(can_deliver) - self.capacity) * _CAPACITY_WEIGHT

    def absorb(self, other: QueueCounters) -> None:
        """Add the counters of a deleted queue."""
        self.published += other.published
        self.refused += other.refused
        self.refused_told += other.refused_told
        self.delivered += other.delivered
        self.delivered_no_ack += other.delivered_no_ack
        self.got += other.got
        self.got_no_ack += other.got_no_ack
        self.got_empty += other.got_empty
        self.redelivered += other.redelivered
        self.acknowledged += other.acknowledged
        self.requeued += other.requeued
        self.dropped.update(other.dropped)
        self.dead_lettered.update(other.dead_lettered)
        self.dead_letters_lost.update(other.dead_letters_lost)
        self.dead_letters_arrived += other.dead_letters_arrived
        self.dead_letters_confirmed += other.dead_letters_confirmed
        self.deduplicated += other.deduplicated
        self.deleted += other.deleted
        self.outlived += other.outlived
        self.add_earlier(other.earlier)
