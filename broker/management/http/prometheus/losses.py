"""Metrics of what queues did not keep: dropped, refused and dead-lettered messages. RabbitMQ has no such ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.core.queues.counters import QueueCounters
from broker.core.queues.queue import Queue
from broker.management.http.documents.queues import DEAD_LETTER_REASONS, DROP_REASONS
from broker.management.http.prometheus.counted import Counted
from broker.management.http.prometheus.families import Family, counter
from broker.management.http.prometheus.queues import queue_labels, queues_in

_DROPPED: Final = counter(
    "queue_dropped_total", "Messages that left a queue otherwise than by being acknowledged, by reason"
)
_REFUSED: Final = counter("queue_refused_total", "Messages that a full queue refused")
_DEAD_LETTERED: Final = counter(
    "queue_dead_lettered_total", "Messages that a queue handed to its dead-letter exchange, by reason"
)
FAMILY: Final = "queue_losses"
PREFIX: Final = "leveret_"


def dropped(reason: str, counters: QueueCounters) -> tuple[float]:
    """Messages dropped for a reason."""
    return (counters.dropped[reason],)


def dead_lettered(reason: str, counters: QueueCounters) -> tuple[float]:
    """Messages dead-lettered for a reason."""
    return (counters.dead_lettered[reason],)


def refused(counters: QueueCounters) -> tuple[float]:
    """Messages refused."""
    return (counters.refused,)
