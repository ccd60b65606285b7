"""Sums of the counters of all objects, including deleted ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.counters.totals import VirtualHostStatistics

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
