"""Metrics of what queues may hold, to be compared with what they hold. RabbitMQ has none of these."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.prometheus.families import Family, gauge
from leveret.broker.management.http.prometheus.queues import is_there, queue_labels, queues_in

_LIMITS: Final = (
    gauge("queue_max_length", "Ready messages that a queue may hold; only of queues with such a limit"),
    gauge("queue_max_length_bytes", "Size in bytes of ready messages that a queue may hold; likewise"),
)


def _limits(queue: Queue) -> tuple[int | None, int | None]:
    return queue.settings.max_length, queue.settings.max_length_bytes


#: By queue only: a sum over the queues that have a limit says nothing.
LIMIT_FAMILIES: Final = (
    Family("queue_limits", _LIMITS, ("vhost", "queue"), queues_in, queue_labels, _limits, is_there, prefix="leveret_"),
)
