"""Counters of virtual hosts and of the broker as a whole.

What still lives is added up when somebody wants to know, every few seconds for the history; only what has gone is
kept here. So a message costs nothing beyond the counters of its own channel, exchange and queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.stats.counters import ChannelCounters, ConnectionCounters
from leveret.broker.core.stats.followed import Followed

#: Of VirtualHostStatistics.FIELDS, those that may go down.
_GAUGES = ("messages_ready", "messages_unacknowledged")


class VirtualHostStatistics(Followed):
    """What has happened in a virtual host, apart from what its living objects have counted.

    Attributes:
        channels: Of closed channels, and of what was done without one, over HTTP.
        connections: Of closed connections.
        queues: Of deleted queues, by queue type.
        queue_declared: Declarations of queues, whether they existed or not.
        queue_created: Queues made.
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
        """Keep the counters of a queue that has been deleted."""
        self.queue_deleted += 1
        self.queues.setdefault(queue_type, QueueCounters()).absorb(counters)

    def row(self) -> tuple[int, ...]:
        """The numbers without those of what still lives, by FIELDS."""
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
            0,
            0,
        )

    def absorb(self, other: VirtualHostStatistics) -> None:
        """Add those of a virtual host that has been deleted."""
        self.channels.absorb(other.channels)
        self.connections.absorb(other.connections)
        for queue_type, counters in other.queues.items():
            self.queues.setdefault(queue_type, QueueCounters()).absorb(counters)
        self.queue_declared += other.queue_declared
        self.queue_created += other.queue_created
        self.queue_deleted += other.queue_deleted
        self.disk_reads += other.disk_reads
        self.disk_writes += other.disk_writes

    def never_less(self, row: Sequence[int]) -> tuple[int, ...]:
        """A row in which no counter is less than in the last sample.

        What is closed while all objects are being added up is missed once, and is back the next time.
        """
        return _never_less(row, self._seen, len(_GAUGES))


class BrokerStatistics(Followed):
    """What has happened in the broker, apart from what its virtual hosts have counted.

    Attributes:
        ended: Of deleted virtual hosts.
        connection_created: Connections that have opened a virtual host.
        connection_closed: Of these, closed.
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
        """The numbers, by FIELDS.

        Args:
            totals: Of all virtual hosts, by the FIELDS of VirtualHostStatistics.
        """
        return (
            self.connection_created,
            self.connection_closed,
            self.channel_created,
            self.channel_closed,
            *totals,
        )

    def never_less(self, row: Sequence[int]) -> tuple[int, ...]:
        """A row in which no counter is less than in the last sample."""
        return _never_less(row, self._seen, len(_GAUGES))


def _never_less(row: Sequence[int], before: Sequence[int], gauges: int) -> tuple[int, ...]:
    if not before:
        return tuple(row)
    split = len(row) - gauges
    return (*map(max, row[:split], before[:split]), *row[split:])
