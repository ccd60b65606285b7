"""Delayed exchanges and messages without a connection."""

from __future__ import annotations

from leveret.broker.core.delays.waiting_messages import WaitingMessages
from leveret.broker.core.exchanges.types import DelayedExchange
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol import properties
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.protocol.properties import encode_content_header, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message


def declare_delayed(
    vhost: VirtualHost, name: str = "d", inner: str = "direct", durable: bool = True
) -> WaitingMessages:
    """Declare a delayed exchange and return what keeps its messages."""
    arguments = (("x-delayed-type", FieldValue("S", inner.encode())),)
    vhost.declare_exchange(name, "x-delayed-message", durable, False, False, arguments)
    exchange = vhost.topology.exchanges[name]
    assert isinstance(exchange, DelayedExchange)
    assert exchange.waiting is not None
    return exchange.waiting


def bind(vhost: VirtualHost, queue: Queue, exchange: str = "d", key: str = "k") -> None:
    """Bind a queue to an exchange."""
    vhost.topology.bind(vhost.topology.exchanges[exchange], queue, key, ())


def delayed_envelope(delay: int, exchange: str = "d", key: str = "k", headers: FieldTable = ()) -> Envelope:
    """Return the envelope of a persistent message with a delay in milliseconds."""
    table = (*headers, ("x-delay", FieldValue("l", delay)))
    values = {properties.HEADERS: encode_headers(table), properties.DELIVERY_MODE: b"\x02"}
    return Envelope(encode_shortstr(exchange) + encode_shortstr(key), encode_content_header(0, values), True)


def publish_delayed(waiting: WaitingMessages, delay: int, *bodies: bytes, key: str = "k") -> int:
    """Publish messages of one size with a delay in milliseconds and write them; return how many were accepted."""
    envelope = delayed_envelope(delay, waiting.name, key)
    accepted = waiting.publish([Message(envelope, body) for body in bodies], sum(map(len, bodies)))
    for store in waiting.backing.stores():
        store.flush()
    return accepted


def bodies_in(queue: ClassicQueue) -> list[bytes]:
    """Take all messages of a queue, and return their bodies."""
    found: list[bytes] = []
    while (entry := queue.get(None)) is not None:
        found.append(entry[1].body)
    return found
