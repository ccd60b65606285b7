"""The way of a published message from the wire into its queues.

Checks are made once for equal publishes with equal content headers, and hold until a binding, an exchange, a
queue or a permission changes.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from leveret.broker.core.published import read_expiration, read_extra_keys
from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.delivery import send_message
from leveret.broker.session.direct_reply import REPLY_QUEUE
from leveret.protocol import properties
from leveret.protocol.events import Publish, PublishRun, VariedRun
from leveret.protocol.faults import ReplyCode, access_refused, not_implemented, precondition_failed
from leveret.protocol.field_table import MAX_DEPTH, FieldTable, find, normalize
from leveret.protocol.header_scan import DECODE, PERSISTENT, scan_header
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties, encode_headers, encode_text
from leveret.storage.message import Envelope, Message

if TYPE_CHECKING:
    from leveret.broker.core.exchanges.base import Exchange
    from leveret.broker.session.channel import Channel
    from leveret.broker.session.connection import Connection

_RETURN: Final = INDEX["basic.return"]
_BODY_SIZE: Final = struct.Struct(">Q")
_BARE_HEADER_SIZE: Final = 14


class PublishRoute:
    """What is known of publishes with the same exchange, routing key and flags, on one connection.

    Args:
        generation: Of the connection's topology and permissions when it was found out.
        exchange: Where they go.
        keys_replies: Direct reply-to consumers that the routing key alone names.

    Attributes:
        header: The content header that the rest belongs to; None where the next message must look again.
        envelope: Of messages with that header.
        queues: Where messages with that header go.
        awaits_sync: Whether such a message is confirmed only once it is on disk.
        replies: Direct reply-to consumers that they go to, by name.
        keys_queues: Where messages without CC and BCC go, whatever their header; None if that depends on it.
        sync_checked_queues: The queues that `needs_sync` is about.
        needs_sync: Whether transient messages for these wait for the disk, and persistent ones.
    """

    __slots__ = (
        "awaits_sync",
        "envelope",
        "exchange",
        "generation",
        "header",
        "keys_queues",
        "keys_replies",
        "queues",
        "replies",
        "needs_sync",
        "sync_checked_queues",
    )

    def __init__(self, generation: int, exchange: Exchange, keys_replies: tuple[str, ...]) -> None:
        self.generation = generation
        self.exchange = exchange
        self.header: bytes | None = None
        self.envelope = Envelope(b"", b"")
        self.queues: tuple[Queue, ...] = ()
        self.awaits_sync = False
        self.replies: tuple[str, ...] = ()
        self.keys_queues: tuple[Queue, ...] | None = None
        self.keys_replies = keys_replies
        self.sync_checked_queues: tuple[Queue, ...] = ()
        self.needs_sync = False, False


def publish_run(channel: Channel, run: PublishRun) -> None:
    """Publish a run of messages.

    Args:
        channel: The channel they came on.
        run: Messages that differ in nothing but their bodies.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_IMPLEMENTED (540), INTERNAL_ERROR (541).
        Unfinished: Finding the queues takes long.
    Spec: AMQP 0-9-1 basic.publish; the order of the checks is RabbitMQ's.
    """
    publish = run.publish
    route: PublishRoute | None = publish.memo
    if route is None or route.generation != channel.connection.authorization.generation or not run.bodies[0]:
        route = _resolve(channel, publish, run.header)
    elif route.header is not run.header:
        _read_header(channel, publish, route, run.header)
    envelope = route.envelope
    messages = [Message(envelope, body) for body in run.bodies]
    if channel.tracer is not None:
        channel.tracer.published(channel.origin, messages, route.queues)
    if channel.transaction is not None:
        held = partial(_enqueue, channel, route.exchange, route.queues, route.replies, messages, publish.mandatory)
        channel.transaction.hold_publish(held, len(messages))
        return
    taken = _enqueue(channel, route.exchange, route.queues, route.replies, messages, publish.mandatory)
    if channel.confirms is not None:
        _confirm(channel, route.queues, route.awaits_sync, len(messages), taken)


def publish_varied(channel: Channel, run: VariedRun) -> None:
    """Publish messages of one route with content headers of their own.

    Those whose headers the broker need not decode go to the queues in batches; the others are published one by one.

    Args:
        channel: The channel they came on.
        run: The messages.
    Raises:
        ChannelFault: As publish_run(); the messages before it are published, those behind it are not.
        ConnectionFault: Likewise.
    """
    publish = run.publish
    route = _varied_route(channel, publish)
    batch: list[Message] = []
    last = DECODE
    for header, body in zip(run.headers, run.bodies, strict=True):
        scanned = DECODE if route is None else scan_header(header)
        if scanned != last and batch:
            assert route is not None
            _publish_batch(channel, route, batch, publish.mandatory)
            batch = []
        last = scanned
        if scanned == DECODE:
            publish_run(channel, PublishRun(run.channel, publish, header, [body]))
            route = _varied_route(channel, publish)
        else:
            envelope = Envelope(publish.route, header, scanned >= PERSISTENT, scanned & (PERSISTENT - 1))
            batch.append(Message(envelope, body))
    if batch:
        assert route is not None
        _publish_batch(channel, route, batch, publish.mandatory)


def _varied_route(channel: Channel, publish: Publish) -> PublishRoute | None:
    """Return where messages go by their routing key alone, if their queues take headers and sizes that differ."""
    route: PublishRoute | None = publish.memo
    if (
        route is None
        or route.generation != channel.connection.authorization.generation
        or route.keys_queues is None
        or route.keys_replies
        or channel.tracer is not None
        or channel.transaction is not None
    ):
        return None
    for queue in route.keys_queues:
        if not queue.accepts_varied:
            return None
    return route


def _publish_batch(channel: Channel, route: PublishRoute, messages: list[Message], mandatory: bool) -> None:
    """Hand messages with one priority and one delivery mode to the queues for their routing key."""
    queues, count = route.keys_queues, len(messages)
    assert queues is not None
    sizes = [len(message.body) for message in messages]
    body_bytes, longest = sum(sizes), max(sizes)
    _count_publish(channel, route.exchange, count, queues)
    routed = False
    for queue in queues:
        if not queue.deleted:
            queue.publish_varied(messages, body_bytes, longest)
            routed = True
    if not routed:
        _leave_unroutable(channel, messages, body_bytes, mandatory)
        route.exchange.counters.lose(count, returned=mandatory)
    if channel.confirms is not None:
        awaits_sync = _sync_needs(route, queues)[messages[0].envelope.persistent]
        _confirm(channel, queues, awaits_sync, count, count)


def _count_publish(channel: Channel, exchange: Exchange, count: int, queues: tuple[Queue, ...]) -> None:
    channel.counters.publish += count
    exchange.counters.publish_in += count
    exchange.counters.publish_out += count * len(queues)


def _confirm(channel: Channel, queues: tuple[Queue, ...], awaits_sync: bool, count: int, taken: int) -> None:
    """Confirm messages, now or once they are safe; refuse those that were not taken."""
    confirms = channel.confirms
    assert confirms is not None
    channel.counters.publish_confirm += count
    if not awaits_sync:
        confirms.accept_next(taken)
        channel.output.confirm(channel)
    elif confirms.hold_next(taken, queues):
        channel.connection.server.broker.storage.await_sync(channel)
    if taken < count:
        for _ in range(count - taken):
            confirms.refuse_next()
        channel.output.confirm(channel)


def _enqueue(
    channel: Channel,
    exchange: Exchange,
    queues: tuple[Queue, ...],
    replies: tuple[str, ...],
    messages: list[Message],
    mandatory: bool,
) -> int:
    """Hand messages to their queues; send those back that none takes if the publisher wants that.

    Returns:
        How many were refused by no queue. They come first: a queue that is full stays full for the rest of a run.
    """
    taken = count = len(messages)
    _count_publish(channel, exchange, count, queues)
    routed = False
    body_bytes = count * len(messages[0].body)
    for queue in queues:
        if not queue.deleted:
            taken = min(taken, queue.publish(messages, body_bytes))
            routed = True
    for name in replies:
        _reply(channel, name, messages)
    # A direct reply does not count as routed, as in 3.10.8.
    if not routed:
        _leave_unroutable(channel, messages, body_bytes, mandatory)
        if not replies:
            exchange.counters.lose(count, returned=mandatory)
    return taken


def _leave_unroutable(channel: Channel, messages: list[Message], body_bytes: int, mandatory: bool) -> None:
    """Send messages back that no queue took, if the publisher wants that."""
    broker = channel.connection.server.broker
    broker.storage.note_unroutable(len(messages), body_bytes)
    if not mandatory:
        channel.counters.drop_unroutable += len(messages)
        return
    channel.counters.return_unroutable += len(messages)
    for message in messages:
        _return(channel, message)


def _reply(channel: Channel, name: str, messages: list[Message]) -> None:
    """Hand messages to the direct reply-to consumer of that name, if it still lives."""
    receiver = channel.vhost.replies.get(name)
    if receiver is not None:
        for message in messages:
            receiver.deliver_reply(message)


def _return(channel: Channel, message: Message) -> None:
    code = ReplyCode.NO_ROUTE
    send_message(channel, _RETURN, (code, code.name), message)


# -- what is found out once ---------------------------------------------------------------------------------


def _resolve(channel: Channel, publish: Publish, header: bytes) -> PublishRoute:
    """Check a publish and its header, and find its queues."""
    connection = channel.connection
    if publish.immediate:
        raise not_implemented("immediate=true")
    _check_size(connection, header)
    route: PublishRoute | None = publish.memo
    generation = connection.authorization.generation
    if route is None or route.generation != generation:
        route = PublishRoute(generation, _open_exchange(connection, publish), _reply_names(publish, []))
        connection.routes.remember(publish, route)
    _read_header(channel, publish, route, header)
    return route


def _check_size(connection: Connection, header: bytes) -> None:
    size: int = _BODY_SIZE.unpack_from(header, 4)[0]
    limit = connection.server.settings.max_message_size
    if size > limit:
        raise precondition_failed(f"message size {size} is larger than configured max size {limit}")


def _open_exchange(connection: Connection, publish: Publish) -> Exchange:
    """Find the exchange, and check that the user may publish to it."""
    name = publish.exchange
    connection.authorization.check("write", "exchange", name)
    exchange = connection.vhost.topology.exchange(name)
    if exchange.internal:
        raise access_refused(f"cannot publish to internal exchange '{name}' in vhost '{connection.vhost_name}'")
    if exchange.type_name == "topic":
        connection.authorization.check_topic("write", name, publish.routing_key)
    return exchange


def _read_header(channel: Channel, publish: Publish, route: PublishRoute, header: bytes) -> None:
    """Make the envelope of messages with this header, and find out where they go and how safe they have to be."""
    _find_envelope(channel, publish, route, header)
    route.awaits_sync = _sync_needs(route, route.queues)[route.envelope.persistent]


def _sync_needs(route: PublishRoute, queues: tuple[Queue, ...]) -> tuple[bool, bool]:
    """Return whether transient messages for these queues wait for the disk, and whether persistent ones do."""
    if queues is not route.sync_checked_queues:
        durable = [queue.storage for queue in queues if queue.storage.awaits_sync]
        route.sync_checked_queues, route.needs_sync = (
            queues,
            (any(each.persists_transient for each in durable), bool(durable)),
        )
    return route.needs_sync


def _find_envelope(channel: Channel, publish: Publish, route: PublishRoute, header: bytes) -> None:
    """Make the envelope of messages with this header, and find their queues.

    The two short cuts are for headers that cannot change where a message goes.
    """
    flags = properties.read_flags(header)
    if not flags and len(header) == _BARE_HEADER_SIZE:
        route.envelope = Envelope(publish.route, header)
        route.queues = _queues_by_key(channel, publish, route)
        route.replies = route.keys_replies
        route.header = header
        return
    if route.keys_queues is not None and (scanned := scan_header(header)) != DECODE:
        route.envelope = Envelope(publish.route, header, scanned >= PERSISTENT, scanned & (PERSISTENT - 1))
        route.queues = route.keys_queues
        route.replies = route.keys_replies
        route.header = header
        return
    read = Properties(header)
    mode = read.octet(properties.DELIVERY_MODE, 1)
    headers = read.headers(MAX_DEPTH)
    changes = _substitute_reply_to(channel, read)
    _check_user_id(channel.connection, read)
    expiration = read_expiration(read)
    copies, blind = read_extra_keys(headers, "CC"), read_extra_keys(headers, "BCC")
    extra_keys = copies + blind
    if mode not in (1, 2):
        raise precondition_failed(f"invalid message: {{delivery_mode_unknown,{mode}}}")
    if find(headers, "BCC") is not None:
        kept = tuple(entry for entry in headers if entry[0] != "BCC")
        changes[properties.HEADERS] = encode_headers(normalize(kept))
    relayed = read.replaced(changes) if changes else header
    priority = read.octet(properties.PRIORITY, 0)
    route.envelope = Envelope(publish.route, relayed, mode == 2, priority, expiration, blind_keys=tuple(blind))
    if extra_keys or route.exchange.uses_headers:
        keys = [publish.routing_key, *extra_keys]
        route.queues, _ = _find(channel, route, keys, headers)
    else:
        route.queues = _queues_by_key(channel, publish, route, headers)
    route.replies = _reply_names(publish, extra_keys)
    # A substituted reply-to is that of this channel; another one may send the same bytes.
    route.header = None if properties.REPLY_TO in changes else header


def _reply_names(publish: Publish, extra_keys: list[str]) -> tuple[str, ...]:
    """The routing keys that name direct reply-to consumers: on the default exchange only."""
    if publish.exchange or not (extra_keys or publish.routing_key.startswith(REPLY_QUEUE)):
        return ()
    return tuple(key for key in (publish.routing_key, *extra_keys) if key.startswith(REPLY_QUEUE))


def _queues_by_key(
    channel: Channel, publish: Publish, route: PublishRoute, headers: FieldTable = ()
) -> tuple[Queue, ...]:
    """Queues for the routing key alone, remembered unless a headers exchange is on the way."""
    if route.keys_queues is not None:
        return route.keys_queues
    queues, cacheable = _find(channel, route, [publish.routing_key], headers)
    if cacheable:
        route.keys_queues = queues
    return queues


def _find(
    channel: Channel, route: PublishRoute, keys: list[str], headers: FieldTable
) -> tuple[tuple[Queue, ...], bool]:
    """Queues for these keys and headers, and whether the headers did not matter."""
    search = channel.connection.route_search
    found = search.find(channel.vhost.topology, route.exchange, keys, headers)
    if search.is_outdated:
        # Good for this message, which came before the change; the next one looks again.
        route.generation = -1
    channel.connection.routes.count(len(found.queues))
    return cast("tuple[Queue, ...]", found.queues), found.cacheable


def _substitute_reply_to(channel: Channel, read: Properties) -> dict[int, bytes | None]:
    if read.text(properties.REPLY_TO) != REPLY_QUEUE:
        return {}
    if channel.reply_consumer is None:
        raise precondition_failed("fast reply consumer does not exist")
    return {properties.REPLY_TO: encode_text(channel.reply_consumer.name)}


def _check_user_id(connection: Connection, read: Properties) -> None:
    user_id = read.text(properties.USER_ID)
    if user_id is not None and user_id != connection.username and "impersonator" not in connection.user.tags:
        raise precondition_failed(
            f"user_id property set to '{user_id}' but authenticated user was '{connection.username}'"
        )
