"""Metrics of queues: RabbitMQ's, and those of limits and lost messages, which it does not have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.policy_effects.explanation import fill_percent
from leveret.broker.core.queues.ages import oldest_ready_age, oldest_unacked_age
from leveret.broker.core.queues.queue import Queue, withheld_count
from leveret.broker.core.stats.counter_totals import CounterTotals
from leveret.broker.management.http.prometheus.families import Family, Metric, Vhosts, add, counter, gauge
from leveret.policies.dead_letter import REASONS
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
_DROPPED: Final = counter(
    "queue_dropped_total", "Total number of messages that left a queue without being acknowledged, by reason"
)
_REFUSED: Final = counter("queue_refused_total", "Total number of messages refused by a full queue")
_REFUSED_TOLD: Final = counter(
    "queue_refused_told_total", "Refused messages that are not lost, because their publishers were told"
)
_DEAD_LETTERED: Final = counter(
    "queue_dead_lettered_total", "Total number of messages published to the dead-letter exchange of a queue, by reason"
)
_DEAD_LETTERS_LOST: Final = counter(
    "queue_dead_letters_lost_total", "Total number of dead letters of a queue that no queue accepted, by reason"
)
_DROP_REASONS: Final = (*REASONS, "purged")
_OWN_PREFIX: Final = "leveret_"
_LOSSES: Final = "queue_losses"
_LIMITS: Final = (
    gauge("queue_max_length", "Maximum number of messages in a queue, for queues with this limit"),
    gauge("queue_max_length_bytes", "Maximum size in bytes of messages in a queue, for queues with this limit"),
    gauge("queue_fill_ratio", "Used share of the limit that is nearest to being reached, for queues with a limit"),
)
_AGES: Final = (
    gauge("queue_oldest_ready_age_seconds", "Time since the arrival of the oldest ready message, for queues with one"),
    gauge(
        "queue_oldest_unacked_age_seconds", "Time since the arrival of the oldest unacked message, for queues with one"
    ),
)

_DEDUPLICATED: Final = (
    counter("queue_deduplicated_total", "Duplicates that a queue has dropped, for queues that drop duplicates"),
)


_DELAYED: Final = (
    gauge(
        "queue_messages_delayed", "Returned messages that wait before they are redelivered, for queues that delay them"
    ),
    gauge("queue_messages_delayed_bytes", "Size in bytes of these"),
)


def _queues_in(broker: Broker, vhosts: Vhosts) -> list[Queue]:
    """Return the queues of some virtual hosts."""
    return [
        queue
        for vhost in broker.vhosts.values()
        if vhosts is None or vhost.name in vhosts
        for queue in vhost.queues.values()
    ]


def _labels(queue: Queue) -> tuple[str, ...]:
    """Return the labels of a queue: its virtual host and its name."""
    return queue.vhost_name, queue.name


def _exists(queue: Queue) -> bool:
    """Check whether a queue has not been deleted."""
    return not queue.deleted


def _lengths(queue: Queue) -> tuple[float, ...]:
    ready, unacknowledged = queue.store.ready_count, queue.unacked_count
    return ready, unacknowledged, ready + unacknowledged + withheld_count(queue)


def _deduplicated(queue: Queue) -> tuple[float | None, ...]:
    dropped = queue.counters.deduplicated
    return (dropped if dropped or queue.outbox.values.is_active else None,)


def _details(queue: Queue) -> tuple[float, ...]:
    figures = queue.figures()
    consumers = len(queue.consumers)
    capacity = queue.counters.capacity if consumers else 0.0
    ready_bytes, unacknowledged_bytes = queue.store.ready_bytes, queue.delivery.unacked_bytes
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
    return Family(name, metrics, _LABELS, _queues_in, _labels, measure, _exists, **extra)


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
        _queues_in,
        _labels,
        lambda queue: (queue.counters.published,),
        total=lambda counted: (counted.all_queues.published,),
    ),
)


def loss_totals(counted: CounterTotals) -> Iterator[MetricFamily]:
    """Yield the sums of lost messages over all queues."""
    total = counted.all_queues
    metrics = _DROPPED, _DEAD_LETTERED, _DEAD_LETTERS_LOST
    dropped, dead_lettered, lost = (metric.family(_OWN_PREFIX, ("reason",)) for metric in metrics)
    for reason in _DROP_REASONS:
        add(dropped, (reason,), total.dropped[reason])
    for reason in REASONS:
        add(dead_lettered, (reason,), total.dead_lettered[reason])
        add(lost, (reason,), total.dead_letters_lost[reason])
    yield dropped
    yield _REFUSED.single(_OWN_PREFIX, total.refused)
    yield _REFUSED_TOLD.single(_OWN_PREFIX, total.refused_told)
    yield dead_lettered
    yield lost


def _losses(metric: Metric, reasons: Sequence[str], lost: Callable[[QueueCounters], Mapping[str, int]]) -> Family[Any]:
    """Return a metric of losses by queue and reason."""

    def by_reason(broker: Broker, vhosts: Vhosts) -> list[tuple[Queue, str]]:
        return [(queue, reason) for queue in _queues_in(broker, vhosts) for reason in reasons]

    return Family(
        _LOSSES,
        (metric,),
        (*_LABELS, "reason"),
        by_reason,
        lambda item: (*_labels(item[0]), item[1]),
        lambda item: (lost(item[0].counters)[item[1]],),
        prefix=_OWN_PREFIX,
    )


def _limits(queue: Queue) -> tuple[int | None, int | None, float | None]:
    settings, percent = queue.settings, fill_percent(queue)
    return settings.max_length, settings.max_length_bytes, None if percent is None else percent / 100


def _ages(queue: Queue) -> tuple[float | None, float | None]:
    return oldest_ready_age(queue), oldest_unacked_age(queue)


def _delayed(queue: Queue) -> tuple[int | None, int | None]:
    contents = queue.contents
    return (None, None) if contents.waiting is None else (contents.delayed_count, contents.delayed_bytes)


#: Metrics that RabbitMQ does not have, only per queue: a sum over the queues with a limit would be meaningless.
OWN_FAMILIES: Final[tuple[Family[Any], ...]] = (
    _losses(_DROPPED, _DROP_REASONS, lambda counters: counters.dropped),
    Family(
        _LOSSES,
        (_REFUSED, _REFUSED_TOLD),
        _LABELS,
        _queues_in,
        _labels,
        lambda queue: (queue.counters.refused, queue.counters.refused_told),
        prefix=_OWN_PREFIX,
    ),
    _losses(_DEAD_LETTERED, REASONS, lambda counters: counters.dead_lettered),
    _losses(_DEAD_LETTERS_LOST, REASONS, lambda counters: counters.dead_letters_lost),
    _family("queue_limits", _LIMITS, _limits, prefix=_OWN_PREFIX),
    _family("queue_ages", _AGES, _ages, prefix=_OWN_PREFIX),
    _family("queue_delayed", _DELAYED, _delayed, prefix=_OWN_PREFIX),
    _family("queue_deduplication", _DEDUPLICATED, _deduplicated, prefix=_OWN_PREFIX),
)
