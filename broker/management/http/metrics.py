"""Metrics in Prometheus' text format, under RabbitMQ's names.

Source: https://www.rabbitmq.com/docs/prometheus
"""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from broker.core.broker import Broker
from broker.core.memory import used_memory


class Metrics:
    """Measures the broker when it is asked.

    Args:
        broker: The broker that is measured.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def handle(self, request: web.Request) -> web.Response:
        """Answer with all metrics."""
        lines = [f"# TYPE rabbitmq_{name} gauge\nrabbitmq_{name} {value}\n" for name, value in self._gauges()]
        return web.Response(text="".join(lines), headers={"content-type": "text/plain; version=0.0.4"})

    def _gauges(self) -> Iterator[tuple[str, int]]:
        broker = self._broker
        queues = [queue for vhost in broker.vhosts.values() for queue in vhost.queues.values()]
        ready = sum(queue.store.ready_count for queue in queues)
        unacked = sum(queue.unacked_count for queue in queues)
        yield "connections", len(broker.connections)
        yield "channels", broker.channel_count
        yield "consumers", sum(len(queue.consumers) for queue in queues)
        yield "queues", len(queues)
        yield "queue_messages_ready", ready
        yield "queue_messages_unacked", unacked
        yield "queue_messages", ready + unacked
        yield "queue_messages_ready_bytes", sum(queue.store.ready_bytes for queue in queues)
        yield "process_resident_memory_bytes", used_memory()
        yield "alarms_memory_used_watermark", int(broker.alarms.any)
