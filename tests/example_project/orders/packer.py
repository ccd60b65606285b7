"""Packs orders."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping

import pika
from pika.exceptions import AMQPError

from orders.shop import declare

#: Seconds between two attempts to connect, and between two looks at whether to stop.
_PAUSE = 0.05


class Packer(threading.Thread):
    """Packs orders until it is stopped, each once, even if it is delivered again.

    Args:
        url: AMQP URL of the broker.
        pack: Packs an order: its number, and how many of which article.
    """

    def __init__(self, url: str, pack: Callable[[int, Mapping[str, int]], None]) -> None:
        super().__init__(name="packer", daemon=True)
        self._parameters = pika.URLParameters(url)
        self._pack = pack
        self._packed: set[str] = set()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Consume, and connect again when the connection is lost."""
        while not self._stopping.is_set():
            try:
                with pika.BlockingConnection(self._parameters) as connection:
                    self._consume(connection.channel())
            except AMQPError:
                self._stopping.wait(_PAUSE)

    def stop(self) -> None:
        """Stop after the current order."""
        self._stopping.set()
        self.join()

    def _consume(self, channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
        declare(channel)
        channel.basic_qos(prefetch_count=1)
        for method, properties, body in channel.consume("orders", inactivity_timeout=_PAUSE):
            if method is not None:
                if properties.message_id not in self._packed:
                    order = json.loads(body)
                    self._pack(order["number"], order["articles"])
                    self._packed.add(properties.message_id)
                channel.basic_ack(method.delivery_tag)
            if self._stopping.is_set():
                return
