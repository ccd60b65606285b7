"""Sums up the counters of all objects, on request and every five seconds for their histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.counters.counters import ChannelCounters, QueueCounters, VirtualHostStatistics
from leveret.broker.core.counters.history import GLOBAL, STEP, LossCounters
from leveret.broker.core.node import Node
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import PeriodicWork
from leveret.broker.core.vhosts.vhost import VirtualHost

_FIELDS: Final = VirtualHostStatistics.FIELDS
_READY: Final = _FIELDS.index("messages_ready")
_UNACKNOWLEDGED: Final = _FIELDS.index("messages_unacknowledged")
_WAITING: Final = _FIELDS.index("messages_waiting")
_DROP: Final = _FIELDS.index("drop")
_REFUSE: Final = _FIELDS.index("refuse")
_RECEIVED: Final = _FIELDS.index("recv_oct")
_SENT: Final = _FIELDS.index("send_oct")
_OF_CHANNELS: Final = len(ChannelCounters.FIELDS)

#: Objects of a kind with a detailed history (about 20 KB each); further ones keep only what rates need.
_DETAILED_MAX: Final = 2000
#: Queues and exchanges with a detailed history of losses (up to 40 KB each).
_DETAILED_LOSSES_MAX: Final = 500


class Census:
    """Totals of all virtual hosts, collected in one pass over all objects, in steps.

    Args:
        detailed: Number of objects with a detailed history at the last pass, by kind.

    Attributes:
        vhosts: Totals by virtual host, by the FIELDS of VirtualHostStatistics; complete after all steps.
        detailed: Number of objects with a detailed history, by kind.
    """

    def __init__(self, broker: Broker, detailed: dict[str, int] | None = None) -> None:
        self._broker = broker
        self._known = detailed or {}
        self.vhosts: dict[str, list[int]] = {}
        self.detailed: dict[str, int] = {}

    def steps(self, now: int | None = None) -> Iterator[None]:
        """Sum up all counters; a step is one object.

        Args:
            now: Seconds since 1970, a multiple of the step of histories; None to take no samples of the objects.
        """
        for vhost in list(self._broker.vhosts.values()):
            self.vhosts[vhost.name] = list(vhost.statistics.row())
        for vhost in list(self._broker.vhosts.values()):
            yield from self._count_queues(vhost, now)
            if now is not None:
                yield from self._sample_exchanges(vhost, now)
        for connection in list(self._broker.connections):
            yield from self._count_connection(connection, now)

    def total(self) -> tuple[int, ...]:
        """Return the totals of all virtual hosts, including deleted ones."""
        rows: list[Sequence[int]] = [self._broker.statistics.ended.row(), *self.vhosts.values()]
        return tuple(map(sum, zip(*rows, strict=True)))

    def _count_queues(self, vhost: VirtualHost, now: int | None) -> Iterator[None]:
        totals = self.vhosts.get(vhost.name)
        if totals is None:
            return
        for queue in list(vhost.queues.values()):
            if queue.deleted:
                continue
            counters = queue.counters
            ready, unacknowledged = queue.store.ready_count, queue.unacked_count
            totals[_READY] += ready
            totals[_UNACKNOWLEDGED] += unacknowledged
            totals[_WAITING] += queue.withheld_count()
            totals[_DROP] += counters.dropped.total() if counters.dropped else 0
            totals[_REFUSE] += counters.refused
            if now is not None:
                if counters.has_losses:
                    self._sample_losses(counters, now, queue.retained_count)
                if counters.sample(now, counters.row(ready, unacknowledged), self._may_be_detailed("queue")):
                    _count_disk_operations(vhost, queue)
                self._count_detailed("queue", counters.is_detailed)
                if len(queue.consumers):
                    counters.sample_capacity(not ready or bool(queue.consumers.ring))
            yield

    def _sample_exchanges(self, vhost: VirtualHost, now: int) -> Iterator[None]:
        for exchange in list(vhost.topology.exchanges.values()):
            counters = exchange.counters
            counters.sample(now, counters.row(), self._may_be_detailed("exchange"))
            self._count_detailed("exchange", counters.is_detailed)
            if counters.has_losses:
                self._sample_losses(counters, now)
            yield
        vhost.deleted_queues.sample(now)
        vhost.deleted_exchanges.sample(now)

    def _count_connection(self, connection: ClientConnection, now: int | None) -> Iterator[None]:
        totals = self.vhosts.get(connection.vhost_name)
        if totals is None or connection not in self._broker.connections:
            return
        counters = connection.output.counters
        totals[_RECEIVED] += counters.recv_oct
        totals[_SENT] += counters.send_oct
        if now is not None:
            counters.sample(now, counters.row(), self._may_be_detailed("connection"))
            self._count_detailed("connection", counters.is_detailed)
        for channel in connection.channels:
            row = channel.counters.row()
            totals[:_OF_CHANNELS] = map(add, totals, row)
            if now is not None:
                channel.counters.sample(now, row, self._may_be_detailed("channel"))
                self._count_detailed("channel", channel.counters.is_detailed)
            yield
        yield

    def _sample_losses(self, counters: LossCounters, now: int, retained: int = 0) -> None:
        counters.sample_losses(now, self._may_be_detailed("losses", _DETAILED_LOSSES_MAX), retained)
        self._count_detailed("losses", counters.losses is not None and counters.losses.is_detailed)

    def _may_be_detailed(self, kind: str, limit: int | None = None) -> bool:
        known = max(self._known.get(kind, 0), self.detailed.get(kind, 0))
        return known < (_DETAILED_MAX if limit is None else limit)

    def _count_detailed(self, kind: str, is_detailed: bool) -> None:
        if is_detailed:
            self.detailed[kind] = self.detailed.get(kind, 0) + 1


def _count_disk_operations(vhost: VirtualHost, queue: Queue) -> None:
    """Add the disk reads and writes of a queue since the last sample."""
    counters, figures = queue.counters, queue.figures()
    vhost.statistics.disk_reads += figures.disk_reads - counters.disk_reads
    vhost.statistics.disk_writes += figures.disk_writes - counters.disk_writes
    counters.disk_reads, counters.disk_writes = figures.disk_reads, figures.disk_writes


#: Queue types, named as in the HTTP API.
QUEUE_TYPES: Final = ("classic", "quorum", "stream")


class CounterTotals:
    """Adds up counters in steps.

    The counters of ended objects are added at once, then those of the objects that existed at that time, even if they
    end meanwhile. Nothing is missed or counted twice, so the sums never decrease.

    Args:
        broker: The broker with the objects.

    Attributes:
        channels: Sum of all channels.
        connections: Sum of all connections.
        queues: Sums of all queues, by queue type.
        publishers: Number of open channels that have published.
        consumers: Number of consumers of all queues.
        disk_reads: Messages that queues have read from disk, at the time of the last sample.
        disk_writes: Messages that queues have written to disk, at the time of the last sample.
    """

    def __init__(self, broker: Broker) -> None:
        ended = ended_totals(broker)
        self.channels = ended.channels
        self.connections = ended.connections
        self.queues = {queue_type: ended.queues.get(queue_type, QueueCounters()) for queue_type in QUEUE_TYPES}
        self.disk_reads = ended.disk_reads
        self.disk_writes = ended.disk_writes
        self.publishers = self.consumers = 0
        self._queues = [
            (queue.queue_type, queue.counters, queue.consumers)
            for vhost in broker.vhosts.values()
            for queue in vhost.queues.values()
        ]
        self._connections = [
            (connection.output.counters, [channel.counters for channel in connection.channels])
            for connection in broker.connections
        ]

    def steps(self) -> Iterator[None]:
        """Add the existing objects, one object per step."""
        for queue_type, counters, consumers in self._queues:
            self.queues[queue_type].absorb(counters)
            self.consumers += len(consumers)
            yield
        for octets, channels in self._connections:
            self.connections.absorb(octets)
            for messages in channels:
                self.channels.absorb(messages)
                self.publishers += messages.publish > 0
            yield

    @property
    def all_queues(self) -> QueueCounters:
        """Sum of the queues of all types."""
        total = QueueCounters()
        for counters in self.queues.values():
            total.absorb(counters)
        return total


def ended_totals(broker: Broker) -> VirtualHostStatistics:
    """Return the sums of what virtual hosts keep, existing and deleted ones: those of ended objects, and churn."""
    totals = VirtualHostStatistics()
    for statistics in (broker.statistics.ended, *(vhost.statistics for vhost in broker.vhosts.values())):
        totals.absorb(statistics)
    return totals


class Sampler:
    """Keeps the histories of queues, exchanges, connections, channels, virtual hosts, broker and node.

    Samples are due at full steps of the clock, as in RabbitMQ. The objects are then sampled one after the other.

    Args:
        broker: The broker to sample.
    """

    def __init__(self, broker: Broker, node: Node) -> None:
        self._broker = broker
        self._node = node
        self._detailed: dict[str, int] = {}
        self._work = PeriodicWork(broker.timers, self._seconds_left, self._sample_now, "a sample was taken")

    def start(self) -> None:
        """Start to take samples."""
        self._work.start()

    def stop(self) -> None:
        """Stop taking samples."""
        self._work.stop()

    def sample(self, now: int) -> Iterator[None]:
        """Take one sample of all counters; a step is one object.

        Args:
            now: Seconds since 1970, a multiple of STEP.
        """
        broker = self._broker
        census = Census(broker, self._detailed)
        yield from census.steps(now)
        self._detailed = census.detailed
        for name, row in census.vhosts.items():
            vhost = broker.vhosts.get(name)
            if vhost is not None:
                statistics = vhost.statistics
                statistics.sample(now, statistics.monotonic_row(row), retention=GLOBAL)
        totals = broker.statistics
        totals.sample(now, totals.monotonic_row(totals.row(census.total())), retention=GLOBAL)
        node = self._node
        measured = node.statistics.row(broker.sockets.used, node.disk_free())
        node.statistics.sample(now, measured, retention=GLOBAL, from_zero=False)
        yield
        broker.last_sample = now

    def _seconds_left(self) -> float:
        """Return the seconds until the next sample is due, and a little more."""
        seconds = self._broker.timers.now() / 1_000_000
        return STEP - seconds % STEP + 0.001

    def _sample_now(self) -> Iterator[None]:
        return self.sample(self._broker.timers.seconds() // STEP * STEP)
