"""Counters of channels, exchanges, queues and connections, of virtual hosts, of the broker as a whole and of its node.

They only grow, with one addition per batch of messages. Those of open connections and existing queues are summed up on
request, and every few seconds for the history. What is kept for a virtual host and the broker are those of closed and
deleted objects. So a message updates only its channel, exchange and queue.
"""

from __future__ import annotations

import gc
import resource
import threading
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final

from leveret.broker.core.counters.history import LossCounters, SampledCounters
from leveret.broker.core.resources.memory import used_memory
from leveret.broker.core.resources.sockets import open_files
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


#: The VirtualHostStatistics.FIELDS that may decrease.
_GAUGES = ("messages_ready", "messages_unacknowledged", "messages_waiting")


class VirtualHostStatistics(SampledCounters):
    """Counters of a virtual host, without those of its existing objects."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        *ChannelCounters.FIELDS,
        "recv_oct",
        "send_oct",
        "drop",
        "refuse",
        "queue_declared",
        "queue_created",
        "queue_deleted",
        "disk_reads",
        "disk_writes",
        *_GAUGES,
    )

    #: Declarations of queues, including existing ones.
    queue_declared = 0
    #: Queues created.
    queue_created = 0
    #: Queues deleted.
    queue_deleted = 0
    #: Messages that queues have read from disk, by the last sample.
    disk_reads = 0
    #: Messages that queues have written to disk, by the last sample.
    disk_writes = 0

    def __init__(self) -> None:
        super().__init__()
        #: Sums of closed channels, and of requests over HTTP.
        self.channels = ChannelCounters()
        #: Sums of closed connections.
        self.connections = ConnectionCounters()
        #: Sums of deleted queues, by queue type.
        self.queues: dict[str, QueueCounters] = {}

    def deleted(self, queue_type: str, counters: QueueCounters) -> None:
        """Add the counters of a deleted queue."""
        self.queue_deleted += 1
        self.queues.setdefault(queue_type, QueueCounters()).absorb(counters)

    def row(self) -> tuple[int, ...]:
        """Return the numbers without those of existing objects, by FIELDS."""
        return (
            *self.channels.row(),
            self.connections.recv_oct,
            self.connections.send_oct,
            sum(counters.dropped.total() for counters in self.queues.values()),
            sum(counters.refused for counters in self.queues.values()),
            self.queue_declared,
            self.queue_created,
            self.queue_deleted,
            self.disk_reads,
            self.disk_writes,
            *[0] * len(_GAUGES),
        )

    def absorb(self, other: VirtualHostStatistics) -> None:
        """Add the counters of a deleted virtual host."""
        self.channels.absorb(other.channels)
        self.connections.absorb(other.connections)
        for queue_type, counters in other.queues.items():
            self.queues.setdefault(queue_type, QueueCounters()).absorb(counters)
        self.queue_declared += other.queue_declared
        self.queue_created += other.queue_created
        self.queue_deleted += other.queue_deleted
        self.disk_reads += other.disk_reads
        self.disk_writes += other.disk_writes

    def monotonic_row(self, row: Sequence[int]) -> tuple[int, ...]:
        """Return a row in which no counter is less than in the last sample.

        An object that is closed while counters are summed up is missing from one sample.
        """
        return _monotonic_row(row, self._last_row, len(_GAUGES))


class BrokerStatistics(SampledCounters):
    """Counters of the broker, without those of its virtual hosts."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "connection_created",
        "connection_closed",
        "channel_created",
        "channel_closed",
        *VirtualHostStatistics.FIELDS,
    )

    #: Connections that have opened a virtual host.
    connection_created = 0
    #: Of these, closed connections.
    connection_closed = 0
    #: Channels opened.
    channel_created = 0
    #: Channels closed.
    channel_closed = 0

    def __init__(self) -> None:
        super().__init__()
        #: Sums of deleted virtual hosts.
        self.ended = VirtualHostStatistics()

    def row(self, totals: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers, by FIELDS.

        Args:
            totals: Totals of all virtual hosts, by the FIELDS of VirtualHostStatistics.
        """
        return (
            self.connection_created,
            self.connection_closed,
            self.channel_created,
            self.channel_closed,
            *totals,
        )

    def monotonic_row(self, row: Sequence[int]) -> tuple[int, ...]:
        """Return a row in which no counter is less than in the last sample."""
        return _monotonic_row(row, self._last_row, len(_GAUGES))


def _monotonic_row(row: Sequence[int], before: Sequence[int], gauges: int) -> tuple[int, ...]:
    if not before:
        return tuple(row)
    split = len(row) - gauges
    return (*map(max, row[:split], before[:split]), *row[split:])


class NodeStatistics(SampledCounters):
    """Samples of resource usage, read from the system and the interpreter."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "mem_used",
        "fd_used",
        "sockets_used",
        "proc_used",
        "disk_free",
        "gc_num",
        "gc_bytes_reclaimed",
        "context_switches",
        "run_queue",
    )

    def row(self, sockets: int, disk_free: int) -> tuple[int, ...]:
        """Measure and return the numbers, by FIELDS.

        Args:
            sockets: Number of file descriptors of clients.
            disk_free: Free bytes on the disk of the data directory.
        """
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return (
            used_memory(),
            open_files(),
            sockets,
            threading.active_count(),
            disk_free,
            sum(generation["collections"] for generation in gc.get_stats()),
            0,
            usage.ru_nvcsw + usage.ru_nivcsw,
            0,
        )
