"""Publishes orders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType

import pika
from pika.exceptions import AMQPConnectionError, NackError

#: Orders that may wait to be packed.
MOST = 100
#: Hours after which an order that nobody has packed is forgotten, and somebody is told.
PATIENCE = 24
_ORDERS = {
    "x-max-length": MOST,
    "x-overflow": "reject-publish",
    "x-message-ttl": PATIENCE * 3_600_000,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "forgotten",
}
_ATTEMPTS = 5


class SoldOut(Exception):
    """The queue is full: no more orders can be taken now."""


class Shop:
    """Takes orders: a context manager.

    Args:
        url: AMQP URL of the broker.
    """

    def __init__(self, url: str) -> None:
        self._parameters = pika.URLParameters(url)
        self._connection: pika.BlockingConnection | None = None

    def __enter__(self) -> Shop:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

    def order(self, number: int, articles: Mapping[str, int]) -> None:
        """Take an order. When it returns, the order is safe.

        If the connection is lost before the confirm, the order is sent again. So it may be there twice, with the same
        message-id.

        Args:
            number: Number of the order.
            articles: How many of which article.
        Raises:
            SoldOut: It was refused.
            AMQPConnectionError: There is no broker.
        """
        body = json.dumps({"number": number, "articles": dict(articles)}).encode()
        properties = pika.BasicProperties(delivery_mode=2, message_id=str(number), content_type="application/json")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                if self._connection is None or self._connection.is_closed:
                    self._connect()
                self._channel.basic_publish("", "orders", body, properties)
            except NackError as error:
                raise SoldOut(f"order {number} was refused: {MOST} are waiting") from error
            except AMQPConnectionError:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _connect(self) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        declare(self._channel)
        self._channel.confirm_delivery()


def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """Declare the queues."""
    channel.queue_declare("forgotten", durable=True)
    channel.queue_declare("orders", durable=True, arguments=_ORDERS)
