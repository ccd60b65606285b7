"""Counters of virtual hosts, of the broker as a whole and of its node.

Counters of open connections and existing queues are summed up on request, and every few seconds for the history. Only
those of closed and deleted objects are kept here. So a message updates only its channel, exchange and queue.
"""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Sequence
from typing import ClassVar

from leveret.broker.core.counters.counters import ChannelCounters, ConnectionCounters, QueueCounters
from leveret.broker.core.counters.history import SampledCounters
from leveret.broker.core.resources.memory import used_memory
from leveret.broker.core.resources.sockets import open_files

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
