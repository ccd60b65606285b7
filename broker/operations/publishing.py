"""Publishes messages, and reads what their content headers say to the broker.

AMQP calls the checks with the first message of a route and enqueues by itself; HTTP calls publish().
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages import AnsweredPublisher, Origin, Remembering, Target, read_extra_keys
from leveret.broker.core.vhosts.routing import route
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.principal import Principal
from leveret.policies.policy_keys import MAX_TTL_MS
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


class Prepared(NamedTuple):
    """Where messages go that are published alike.

    Attributes:
        generation: That of the principal when it was found out.
        exchange: The exchange that they are published to.
        envelope: Their envelope.
        targets: What takes them.
        histories: What has to remember them.
        varies: Whether the targets are those of one message only.
    """

    generation: int
    exchange: Exchange
    envelope: Envelope
    targets: tuple[Target, ...]
    histories: tuple[Remembering, ...]
    varies: bool


def prepare(
    principal: Principal, exchange_name: str, routing_key: str, header: bytes, *, keeps_deaths: bool = False
) -> Prepared:
    """Check whether messages may be published, and find where they go.

    Args:
        exchange_name: Name of the exchange; "" is the default exchange.
        header: Their content header.
        keeps_deaths: Whether the header x-death is a broker's own: then it goes on when they die again.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    topology = principal.vhost.topology
    generation, exchange = principal.generation, open_exchange(principal, exchange_name, routing_key)
    published_to = encode_shortstr(exchange_name) + encode_shortstr(routing_key)
    read = Properties(header)
    headers = read.headers()
    envelope, extra_keys = read_content(principal, published_to, read, headers)
    envelope.dead = keeps_deaths and find(headers, "x-death") is not None
    found = route(topology, exchange, [routing_key, *extra_keys], headers, header, exchange.counters)
    return Prepared(generation, exchange, envelope, found.queues, found.histories, found.varies)


def send(
    principal: Principal,
    prepared: Prepared,
    messages: Sequence[Message],
    body_bytes: int,
    origin: Origin,
    mandatory: bool = True,
) -> list[int]:
    """Publish messages that have one envelope, and bodies of one size.

    Args:
        prepared: Where they go; see prepare().
        body_bytes: Sum of their body lengths.
        origin: The publisher, for tracing.
        mandatory: Whether the publisher learns that no queue gets them.
    Returns:
        How many of them each queue has accepted: the first ones.
    """
    vhost = principal.vhost
    for history in prepared.histories:
        history.remember(messages)
    if vhost.tracer is not None:
        vhost.tracer.published(origin, messages, prepared.targets)
    publisher = AnsweredPublisher(origin)
    accepted = [queue.publish(messages, body_bytes, publisher) for queue in prepared.targets]
    _count(vhost, prepared.exchange, len(messages), accepted, mandatory)
    if not accepted:
        for message in messages:
            vhost.note_unroutable(message, publisher, mandatory)
    return accepted


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
    prepared = prepare(principal, exchange_name, routing_key, header)
    message = Message(prepared.envelope, body)
    return [count == 1 for count in send(principal, prepared, [message], len(body), origin)]


def _count(vhost: VirtualHost, exchange: Exchange, count: int, accepted: Sequence[int], mandatory: bool) -> None:
    """Update counters as in RabbitMQ, which publishes on a channel in confirm mode; over HTTP as mandatory."""
    counters = vhost.statistics.channels
    counters.publish += count
    counters.publish_confirm += count
    counters.confirm += min(accepted, default=count)
    exchange.counters.publish_in += count
    exchange.counters.publish_out += count * len(accepted)
    if not accepted:
        exchange.counters.count_unroutable(count, returned=mandatory)
        if mandatory:
            counters.return_unroutable += count
        else:
            counters.drop_unroutable += count
