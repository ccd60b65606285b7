"""What all objects have counted, those that have gone included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.stats.counters import ChannelCounters, ConnectionCounters

#: Queue types, as the HTTP API names them.
QUEUE_TYPES: Final = ("classic", "quorum")


class Counted:
    """Adds up counters, in steps.

    What has gone is added first and at once, then what lived at that time, even if it is gone meanwhile: nothing is
    missed or counted twice, so the sums never go back.

    Args:
        broker: Whose objects are counted.

    Attributes:
        channels: Of all channels.
        connections: Of all connections.
        queues: Of all queues, by queue type.
        publishers: Open channels that have published.
        consumers: Of all queues.
        disk_reads: Messages that queues have read from disk, by the last sample.
        disk_writes: Messages that queues have written to disk, by the last sample.
    """

    def __init__(self, broker: Broker) -> None:
        self.channels = ChannelCounters()
        self.connections = ConnectionCounters()
        self.queues = {queue_type: QueueCounters() for queue_type in QUEUE_TYPES}
        self.publishers = self.consumers = 0
        self.disk_reads = self.disk_writes = 0
        for gone in (broker.statistics.ended, *(vhost.statistics for vhost in broker.vhosts.values())):
            self.channels.absorb(gone.channels)
            self.connections.absorb(gone.connections)
            for queue_type, counters in gone.queues.items():
                self.queues[queue_type].absorb(counters)
            self.disk_reads += gone.disk_reads
            self.disk_writes += gone.disk_writes
        self._living_queues = [
            (queue.queue_type, queue.counters, queue.consumers)
            for vhost in broker.vhosts.values()
            for queue in vhost.queues.values()
        ]
        self._living_connections = [
            (connection.output.counters, [channel.counters for channel in connection.channels])
            for connection in broker.connections
        ]

    def steps(self) -> Iterator[None]:
        """Count what lives; a step is one object."""
        for queue_type, counters, consumers in self._living_queues:
            self.queues[queue_type].absorb(counters)
            self.consumers += len(consumers)
            yield
        for octets, channels in self._living_connections:
            self.connections.absorb(octets)
            for messages in channels:
                self.channels.absorb(messages)
                self.publishers += messages.publish > 0
            yield

    @property
    def all_queues(self) -> QueueCounters:
        """Of the queues of all types."""
        total = QueueCounters()
        for counters in self.queues.values():
            total.absorb(counters)
        return total
