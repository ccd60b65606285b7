"""Metrics of queues."""

from __future__ import annotations

import math
from typing import Any, Final

from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.prometheus.families import Family, Vhosts, counter, gauge
from leveret.protocol.properties import Properties

_LABELS: Final = ("vhost", "queue")

_COARSE: Final = (
    gauge("queue_messages_ready", "Messages ready to be delivered to consumers"),
    gauge("queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged"),
    gauge("queue_messages", "Sum of ready and unacknowledged messages - total queue depth"),
)
_CONSUMERS: Final = gauge("queue_consumers", "Consumers on a queue")
_DETAILS: Final = (
    _CONSUMERS,
    gauge("queue_consumer_capacity", "Consumer capacity"),
    gauge("queue_consumer_utilisation", "Same as consumer capacity"),
    gauge("queue_process_memory_bytes", "Memory in bytes used by the queue, estimated"),
    gauge("queue_messages_ram", "Ready and unacknowledged messages stored in memory"),
    gauge("queue_messages_ram_bytes", "Size of ready and unacknowledged messages stored in memory"),
    gauge("queue_messages_ready_ram", "Ready messages stored in memory"),
    gauge("queue_messages_unacked_ram", "Unacknowledged messages stored in memory"),
    gauge("queue_messages_persistent", "Persistent messages"),
    gauge("queue_messages_persistent_bytes", "Size in bytes of persistent messages"),
    gauge("queue_messages_bytes", "Size in bytes of ready and unacknowledged messages"),
    gauge("queue_messages_ready_bytes", "Size in bytes of ready messages"),
    gauge("queue_messages_unacked_bytes", "Size in bytes of all unacknowledged messages"),
    gauge("queue_messages_paged_out", "Messages paged out to disk"),
    gauge("queue_messages_paged_out_bytes", "Size in bytes of messages paged out to disk"),
)
_HEAD: Final = (gauge("queue_head_message_timestamp", "Timestamp of the first message in the queue, if any"),)
_DISK: Final = (
    counter("queue_disk_reads_total", "Total number of times queue read messages from disk"),
    counter("queue_disk_writes_total", "Total number of times queue wrote messages to disk"),
)
_PUBLISHED: Final = (counter("queue_messages_published_total", "Total number of messages published to queues"),)


def queues_in(broker: Broker, vhosts: Vhosts) -> list[Queue]:
    """Return the queues of some virtual hosts."""
    return [
        queue
        for vhost in broker.vhosts.values()
        if vhosts is None or vhost.name in vhosts
        for queue in vhost.queues.values()
    ]


def queue_labels(queue: Queue) -> tuple[str, ...]:
    """Return the labels of a queue: its virtual host and its name."""
    return queue.vhost_name, queue.name


def exists(queue: Queue) -> bool:
    """Check whether a queue has not been deleted."""
    return not queue.deleted


def _lengths(queue: Queue) -> tuple[float, ...]:
    ready, unacknowledged = queue.store.ready_count, queue.unacked_count
    return ready, unacknowledged, ready + unacknowledged + queue.retained_count


def _details(queue: Queue) -> tuple[float, ...]:
    figures = queue.figures()
    consumers = len(queue.consumers)
    capacity = queue.counters.capacity if consumers else 0.0
    ready_bytes, unacknowledged_bytes = queue.store.ready_bytes, queue.unacked_bytes
    return (
        consumers,
        capacity,
        capacity,
        figures.memory,
        figures.messages_ram,
        figures.message_bytes_ram,
        figures.messages_ready_ram,
        figures.messages_unacknowledged_ram,
        figures.messages_persistent,
        figures.message_bytes_persistent,
        ready_bytes + unacknowledged_bytes,
        ready_bytes,
        unacknowledged_bytes,
        figures.messages_paged_out,
        figures.message_bytes_paged_out,
    )


def _head(queue: Queue) -> tuple[float]:
    head = queue.store.peek() if queue.store.ready_count else None
    found = None if head is None else Properties(head.envelope.header).timestamp()
    return (math.nan if found is None else found,)


def _disk(queue: Queue) -> tuple[float, ...]:
    figures = queue.figures()
    return figures.disk_reads, figures.disk_writes


def _family(name: str, metrics: Any, measure: Any, **extra: Any) -> Family[Queue]:
    return Family(name, metrics, _LABELS, queues_in, queue_labels, measure, exists, **extra)


#: queue_consumer_count is the part of queue_metrics that is cheap to measure.
CONSUMER_COUNT: Final = _family("queue_consumer_count", (_CONSUMERS,), lambda queue: (len(queue.consumers),))
QUEUE_FAMILIES: Final[tuple[Family[Queue], ...]] = (
    _family("queue_coarse_metrics", _COARSE, _lengths),
    _family("queue_metrics", _DETAILS, _details),
    # A sum of timestamps would be meaningless.
    _family("queue_metrics", _HEAD, _head, total=lambda counted: (None,)),
    _family("queue_metrics", _DISK, _disk, total=lambda counted: (counted.disk_reads, counted.disk_writes)),
    # Messages are counted per queue, not also per channel and exchange.
    Family(
        "channel_queue_exchange_metrics",
        _PUBLISHED,
        ("queue_vhost", "queue"),
        queues_in,
        queue_labels,
        lambda queue: (queue.counters.published,),
        total=lambda counted: (counted.all_queues.published,),
    ),
)
