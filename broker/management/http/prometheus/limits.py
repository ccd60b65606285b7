"""Metrics of the limits of queues. RabbitMQ does not have them."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.queues.queue import Queue
from leveret.broker.management.http.prometheus.families import Family, gauge
from leveret.broker.management.http.prometheus.queues import exists, queue_labels, queues_in

_LIMITS: Final = (
    gauge("queue_max_length", "Maximum number of ready messages in a queue, for queues with this limit"),
    gauge("queue_max_length_bytes", "Maximum size in bytes of ready messages in a queue, for queues with this limit"),
)


def _limits(queue: Queue) -> tuple[int | None, int | None]:
    return queue.settings.max_length, queue.settings.max_length_bytes


#: Only per queue: a sum over the queues with a limit would be meaningless.
LIMIT_FAMILIES: Final = (
    Family("queue_limits", _LIMITS, ("vhost", "queue"), queues_in, queue_labels, _limits, exists, prefix="leveret_"),
)
