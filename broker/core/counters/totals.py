"""Counters of virtual hosts and of the broker as a whole.

Counters of open connections and existing queues are summed up on request, and every few seconds for the history. Only
those of closed and deleted objects are kept here. So a message updates only its channel, exchange and queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters, QueueCounters
from leveret.broker.core.counters.history import SampledCounters

#: The VirtualHostStatistics.FIELDS that may decrease.
_GAUGES = ("messages_ready", "messages_unacknowledged", "messages_waiting")


class VirtualHostStatistics(SampledCounters):
    """Counters of a virtual host, without those of its existing objects.

    Attributes:
        channels: Sums of closed channels, and of requests over HTTP.
        connections: Sums of closed connections.
        queues: Sums of deleted queues, by queue type.
        queue_declared: Declarations of queues, including existing ones.
        queue_created: Queues created.
        queue_deleted: Queues deleted.
        disk_reads: Messages that queues have read from disk, by the last sample.
        disk_writes: Messages that queues have written to disk, by the last sample.
    """

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

    __slots__ = (
        "channels",
        "connections",
        "disk_reads",
        "disk_writes",
        "queue_created",
        "queue_declared",
        "queue_deleted",
        "queues",
    )

    def __init__(self) -> None:
        super().__init__()
        self.channels = ChannelCounters()
        self.connections = ConnectionCounters()
        self.queues: dict[str, QueueCounters] = {}
        self.queue_declared = 0
        self.queue_created = 0
        self.queue_deleted = 0
        self.disk_reads = 0
        self.disk_writes = 0

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
    """Counters of the broker, without those of its virtual hosts.

    Attributes:
        ended: Sums of deleted virtual hosts.
        connection_created: Connections that have opened a virtual host.
        connection_closed: Of these, closed connections.
        channel_created: Channels opened.
        channel_closed: Channels closed.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        "connection_created",
        "connection_closed",
        "channel_created",
        "channel_closed",
        *VirtualHostStatistics.FIELDS,
    )

    __slots__ = ("channel_closed", "channel_created", "connection_closed", "connection_created", "ended")

    def __init__(self) -> None:
        super().__init__()
        self.ended = VirtualHostStatistics()
        self.connection_created = 0
        self.connection_closed = 0
        self.channel_created = 0
        self.channel_closed = 0

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
