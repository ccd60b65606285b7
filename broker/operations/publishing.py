"""Publishes messages, and reads what their content headers say to the broker.

AMQP calls the checks with the first message of a route and enqueues by itself; HTTP calls publish().
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages.origin import AnsweredPublisher, Origin, read_extra_keys
from leveret.broker.core.vhosts.routing import route
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.policies.keys import MAX_TTL_MS
from leveret.protocol import properties
from leveret.protocol.faults import access_refused, precondition_failed
from leveret.protocol.field_table import FieldTable, find, normalize
from leveret.protocol.properties import Properties, encode_headers
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.message import Envelope, Message


def open_exchange(principal: Principal, name: str, routing_key: str) -> Exchange:
    """Find an exchange to which the principal may publish with a routing key.

    Args:
        name: Name of the exchange; "" is the default exchange.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404).
    """
    exchange = find_exchange(principal, name)
    principal.check_topic("write", name, routing_key)
    return exchange


def find_exchange(principal: Principal, name: str) -> Exchange:
    """Find an exchange to which the principal may publish, as far as this does not depend on the routing key.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404).
    """
    principal.check("write", "exchange", name)
    exchange = principal.vhost.topology.exchange(name)
    if exchange.internal:
        raise access_refused(f"cannot publish to internal exchange '{name}' in vhost '{principal.vhost.name}'")
    return exchange


def read_content(
    principal: Principal,
    published_to: bytes,
    read: Properties,
    headers: FieldTable,
    changes: Mapping[int, bytes | None] = MappingProxyType({}),
) -> tuple[Envelope, list[str]]:
    """Read user-id, expiration, CC, BCC, delivery mode and priority of a message.

    Args:
        published_to: Exchange and routing key as encoded short strings.
        changes: Properties to replace, by flag; see Properties.replaced().
    Returns:
        The envelope, without the header BCC, and the routing keys of CC and BCC.
    Raises:
        ChannelFault: PRECONDITION_FAILED (406). The order of the checks is RabbitMQ's.
    """
    principal.check_user_id(read.text(properties.USER_ID))
    expiration = _read_expiration(read)
    copies, blind = read_extra_keys(headers, "CC"), read_extra_keys(headers, "BCC")
    mode = read.octet(properties.DELIVERY_MODE, 1)
    if mode not in (1, 2):
        raise precondition_failed(f"invalid message: {{delivery_mode_unknown,{mode}}}")
    if find(headers, "BCC") is not None:
        kept = tuple(entry for entry in headers if entry[0] != "BCC")
        changes = {**changes, properties.HEADERS: encode_headers(normalize(kept))}
    header = read.replaced(changes) if changes else read.payload
    priority = read.octet(properties.PRIORITY, 0)
    envelope = Envelope(published_to, header, mode == 2, priority, expiration, blind_keys=tuple(blind))
    return envelope, copies + blind


def _read_expiration(read: Properties) -> int | None:
    """Return the expiration in milliseconds, parsed as Erlang parses integers: an optional sign, then only digits.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406).
    """
    text = read.text(properties.EXPIRATION)
    if text is None:
        return None
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    digits = unsigned[: len(unsigned) - len(unsigned.lstrip("0123456789"))]
    rest = unsigned[len(digits) :]
    if not digits:
        reason = "no_integer"
    elif rest:
        reason = f'{{leftover_string,"{rest}"}}'
    else:
        # 19 digits are above the limit already; int() of thousands of digits would be slow.
        value = int(digits) if len(digits) < 4000 else MAX_TTL_MS + 1
        value = -value if text[0] == "-" else value
        if 0 <= value <= MAX_TTL_MS:
            return value
        reason = f"{{{'value_negative' if value < 0 else 'value_too_large'},{value}}}"
    raise precondition_failed(f"invalid expiration '{text}': {reason}")


def publish(
    principal: Principal, exchange_name: str, routing_key: str, header: bytes, body: bytes, origin: Origin
) -> list[bool]:
    """Publish one message.

    Args:
        exchange_name: Name of the exchange; "" is the default exchange.
        origin: The publisher, for tracing.
    Returns:
        For each queue that it was routed to, whether that has accepted it.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    vhost = principal.vhost
    exchange = open_exchange(principal, exchange_name, routing_key)
    published_to = encode_shortstr(exchange_name) + encode_shortstr(routing_key)
    read = Properties(header)
    headers = read.headers()
    envelope, extra_keys = read_content(principal, published_to, read, headers)
    found = route(vhost.topology, exchange, [routing_key, *extra_keys], headers, header, exchange.counters)
    message = Message(envelope, body)
    for history in found.histories:
        history.remember([message])
    queues = found.queues
    if vhost.tracer is not None:
        vhost.tracer.published(origin, [message], queues)
    publisher = AnsweredPublisher(origin)
    accepted = [queue.publish([message], len(body), publisher) == 1 for queue in queues]
    _count(vhost, exchange, accepted)
    if not accepted:
        vhost.note_unroutable(message, publisher)
    return accepted


def _count(vhost: VirtualHost, exchange: Exchange, accepted: Sequence[bool]) -> None:
    """Update counters as in RabbitMQ, which publishes it as mandatory on a channel in confirm mode."""
    counters = vhost.statistics.channels
    counters.publish += 1
    counters.publish_confirm += 1
    counters.confirm += all(accepted)
    exchange.counters.publish_in += 1
    exchange.counters.publish_out += len(accepted)
    if not accepted:
        counters.return_unroutable += 1
        exchange.counters.count_unroutable(1, returned=True)
