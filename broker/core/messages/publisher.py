"""Publishes messages without a connection, for the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from leveret.broker.core.messages.published import read_expiration, read_extra_keys
from leveret.broker.core.messages.routing import route
from leveret.broker.core.messages.tracing import Origin
from leveret.protocol import properties
from leveret.protocol.faults import access_refused, precondition_failed
from leveret.protocol.field_table import find, normalize
from leveret.protocol.properties import Properties, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message

if TYPE_CHECKING:
    from leveret.broker.core.exchanges.base import Exchange
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.core.vhost import VirtualHost


def publish(
    vhost: VirtualHost,
    exchange_name: str,
    routing_key: str,
    header: bytes,
    body: bytes,
    origin: Origin,
    check_topic: Callable[[], None],
) -> bool:
    """Publish one message.

    Args:
        vhost: The virtual host.
        exchange_name: Name of the exchange; "" is the default exchange.
        routing_key: The routing key.
        header: The content header.
        body: The body.
        origin: The publisher, for tracing.
        check_topic: Raises if the user may not use the routing key; called for topic exchanges.
    Returns:
        Whether it was routed, and all its queues have accepted it.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    exchange = vhost.topology.exchange(exchange_name)
    if exchange.internal:
        raise access_refused(f"cannot publish to internal exchange '{exchange_name}' in vhost '{vhost.name}'")
    if exchange.type_name == "topic":
        check_topic()
    read = Properties(header)
    headers = read.headers()
    mode, expiration = read.octet(properties.DELIVERY_MODE, 1), read_expiration(read)
    copies, blind = read_extra_keys(headers, "CC"), read_extra_keys(headers, "BCC")
    if mode not in (1, 2):
        raise precondition_failed(f"invalid message: {{delivery_mode_unknown,{mode}}}")
    if blind or find(headers, "BCC") is not None:
        kept = tuple(entry for entry in headers if entry[0] != "BCC")
        header = read.replaced({properties.HEADERS: encode_headers(normalize(kept))})
    published = encode_shortstr(exchange_name) + encode_shortstr(routing_key)
    priority = read.octet(properties.PRIORITY, 0)
    envelope = Envelope(published, header, mode == 2, priority, expiration, blind_keys=tuple(blind))
    found = route(vhost.topology, exchange, [routing_key, *copies, *blind], headers)
    message = Message(envelope, body)
    queues = cast("tuple[Queue, ...]", found.queues)
    if vhost.tracer is not None:
        vhost.tracer.published(origin, [message], queues)
    taken = [queue.publish([message], len(body)) for queue in queues]
    _count(vhost, exchange, taken)
    return bool(taken) and all(taken)


def _count(vhost: VirtualHost, exchange: Exchange, taken: Sequence[int]) -> None:
    """Update counters as in RabbitMQ, which publishes it as mandatory on a channel in confirm mode."""
    counters = vhost.statistics.channels
    counters.publish += 1
    counters.publish_confirm += 1
    counters.confirm += all(taken)
    exchange.counters.publish_in += 1
    exchange.counters.publish_out += len(taken)
    if not taken:
        counters.return_unroutable += 1
        exchange.counters.count_unroutable(1, returned=True)
