"""Metrics of dropped, refused and dead-lettered messages. RabbitMQ does not have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric as MetricFamily

from leveret.broker.core.broker import Broker
from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.prometheus.counted import Counted
from leveret.broker.management.http.prometheus.families import Family, Vhosts, add, counter
from leveret.broker.management.http.prometheus.queues import queue_labels, queues_in
from leveret.policies.dead_letter import REASONS

_DROPPED: Final = counter(
    "queue_dropped_total", "Total number of messages that left a queue without being acknowledged, by reason"
)
_REFUSED: Final = counter("queue_refused_total", "Total number of messages refused by a full queue")
_DEAD_LETTERED: Final = counter(
    "queue_dead_lettered_total", "Total number of messages published to the dead-letter exchange of a queue, by reason"
)
_DEAD_LETTERS_LOST: Final = counter(
    "queue_dead_letters_lost_total", "Total number of dead letters of a queue that no queue accepted, by reason"
)
_DROP_REASONS: Final = (*REASONS, "purged")
_PREFIX: Final = "leveret_"
_NAME: Final = "queue_losses"


def loss_totals(counted: Counted) -> Iterator[MetricFamily]:
    """Yield the sums over all queues."""
    total = counted.all_queues
    metrics = _DROPPED, _DEAD_LETTERED, _DEAD_LETTERS_LOST
    dropped, dead_lettered, lost = (metric.family(_PREFIX, ("reason",)) for metric in metrics)
    for reason in _DROP_REASONS:
        add(dropped, (reason,), total.dropped[reason])
    for reason in REASONS:
        add(dead_lettered, (reason,), total.dead_lettered[reason])
        add(lost, (reason,), total.dead_letters_lost[reason])
    yield dropped
    yield _REFUSED.single(_PREFIX, total.refused)
    yield dead_lettered
    yield lost


def _dropped_in(broker: Broker, vhosts: Vhosts) -> list[tuple[Queue, str]]:
    return [(queue, reason) for queue in queues_in(broker, vhosts) for reason in _DROP_REASONS]


def _dead_lettered_in(broker: Broker, vhosts: Vhosts) -> list[tuple[Queue, str]]:
    return [(queue, reason) for queue in queues_in(broker, vhosts) for reason in REASONS]


def _labels(item: tuple[Queue, str]) -> tuple[str, ...]:
    return (*queue_labels(item[0]), item[1])


#: Losses by queue, and by reason if there is one.
LOSS_FAMILIES: Final = (
    Family(
        _NAME,
        (_DROPPED,),
        ("vhost", "queue", "reason"),
        _dropped_in,
        _labels,
        lambda item: (item[0].counters.dropped[item[1]],),
        prefix=_PREFIX,
    ),
    Family(
        _NAME,
        (_REFUSED,),
        ("vhost", "queue"),
        queues_in,
        queue_labels,
        lambda queue: (queue.counters.refused,),
        prefix=_PREFIX,
    ),
    Family(
        _NAME,
        (_DEAD_LETTERED,),
        ("vhost", "queue", "reason"),
        _dead_lettered_in,
        _labels,
        lambda item: (item[0].counters.dead_lettered[item[1]],),
        prefix=_PREFIX,
    ),
    Family(
        _NAME,
        (_DEAD_LETTERS_LOST,),
        ("vhost", "queue", "reason"),
        _dead_lettered_in,
        _labels,
        lambda item: (item[0].counters.dead_letters_lost[item[1]],),
        prefix=_PREFIX,
    ),
)
