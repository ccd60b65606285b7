"""Publishes messages: checks, routing and enqueueing.

The result of checks and routing is cached for equal publishes with equal content headers. It is valid until a binding,
an exchange, a queue or a permission changes.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages.publish_details import PublishDetails
from leveret.broker.core.queues.target import Target
from leveret.broker.core.scheduling.time_slice import Unfinished
from leveret.broker.operations.publishing import open_exchange, read_content
from leveret.broker.session.channel import Channel
from leveret.broker.session.channel_host import ChannelHost
from leveret.broker.session.delivery import send_message
from leveret.broker.session.direct_reply import REPLY_QUEUE
from leveret.broker.session.routes import PublishRoute, cached_route
from leveret.protocol import properties
from leveret.protocol.events import Publish, PublishRun, VariedRun
from leveret.protocol.faults import ReplyCode, not_implemented, precondition_failed
from leveret.protocol.field_table import MAX_DEPTH, FieldTable
from leveret.protocol.header_scan import DECODE, PERSISTENT, scan_header
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties, encode_text
from leveret.storage.event_format import TOLD
from leveret.storage.message import Envelope, Message

_RETURN: Final = INDEX["basic.return"]
_BODY_SIZE: Final = struct.Struct(">Q")
_BARE_HEADER_SIZE: Final = 14


def publish_run(channel: Channel, run: PublishRun) -> None:
    """Publish a run of messages.

    Args:
        channel: The channel.
        run: Messages that differ only in their bodies.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_IMPLEMENTED (540), INTERNAL_ERROR (541).
        Unfinished: Routing takes longer than a time slice.
    Spec: AMQP 0-9-1 basic.publish; the order of the checks is RabbitMQ's.
    """
    publish = run.publish
    route = cached_route(publish)
    if route is None or route.generation != channel.host.principal.generation or not run.bodies[0]:
        route = _resolve(channel, publish, run.header)
    elif route.header is not run.header:
        _update_route(channel, publish, route, run.header)
    if route.varies and len(run.bodies) > 1:
        _publish_each(channel, run, route)
    else:
        _publish(channel, publish, route, run.bodies)


def _publish_each(channel: Channel, run: PublishRun, route: PublishRoute) -> None:
    """Publish the messages of a run with a route each.

    Args:
        channel: The channel.
        run: The messages; those that have been published are removed from it.
        route: The route of the first one.
    Raises:
        Unfinished: As publish_run().
    """
    while True:
        body = run.bodies.pop(0)
        _publish(channel, run.publish, route, [body])
        if not run.bodies:
            return
        route = _resolve(channel, run.publish, run.header)


def _publish(channel: Channel, publish: Publish, route: PublishRoute, bodies: list[bytes]) -> None:
    """Publish messages with one route."""
    envelope = route.envelope
    messages = [Message(envelope, body) for body in bodies]
    if channel.tracer is not None:
        channel.tracer.published(channel.origin, messages, route.queues)
    # Also in a transaction, whether or not it is committed, as in RabbitMQ.
    for history in route.histories:
        history.remember(messages)
    if channel.transaction is not None:
        queues = tuple([queue.decided(messages) for queue in route.queues])
        held = partial(_enqueue, channel, route.exchange, queues, route.replies, messages, publish.mandatory)
        channel.transaction.hold_publish(held, len(messages))
        return
    taken = _enqueue(channel, route.exchange, route.queues, route.replies, messages, publish.mandatory)
    if channel.confirms is not None:
        _confirm(channel, route.queues, route.awaits_sync, len(messages), taken)


def publish_varied(channel: Channel, run: VariedRun) -> None:
    """Publish messages with the same route and different content headers.

    Messages whose headers need no decoding are enqueued in batches; the remaining ones are published one by one.

    Args:
        channel: The channel.
        run: The messages.
    Raises:
        ChannelFault: As publish_run(). Messages before the refused one are published, those after it are not.
        ConnectionFault: As publish_run().
        Unfinished: As publish_run(). The run has only the messages that are not published yet.
    """
    publish = run.publish
    route = _varied_route(channel, publish)
    batch: list[Message] = []
    last = DECODE
    for position, (header, body) in enumerate(zip(run.headers, run.bodies, strict=True)):
        scanned = DECODE if route is None else scan_header(header)
        if scanned != last and batch:
            assert route is not None
            _publish_batch(channel, route, batch, publish.mandatory)
            batch = []
        last = scanned
        if scanned == DECODE:
            try:
                publish_run(channel, PublishRun(run.channel, publish, header, [body]))
            except Unfinished:
                # The event is handled again later: the messages before this one are published already.
                del run.headers[:position], run.bodies[:position]
                raise
            route = _varied_route(channel, publish)
        else:
            envelope = Envelope(publish.route, header, scanned >= PERSISTENT, scanned & (PERSISTENT - 1))
            batch.append(Message(envelope, body))
    if batch:
        assert route is not None
        _publish_batch(channel, route, batch, publish.mandatory)


def _varied_route(channel: Channel, publish: Publish) -> PublishRoute | None:
    """Return the cached route if it depends on the routing key alone and all queues accept varied messages."""
    route = cached_route(publish)
    if (
        route is None
        or route.generation != channel.host.principal.generation
        or route.keys_queues is None
        or route.keys_replies
        or channel.tracer is not None
        or channel.transaction is not None
    ):
        return None
    for queue in route.keys_queues:
        if not queue.takes_varied():
            return None
    return route


def _publish_batch(channel: Channel, route: PublishRoute, messages: list[Message], mandatory: bool) -> None:
    """Enqueue messages with one priority and one delivery mode in the queues for their routing key."""
    queues, count = route.keys_queues, len(messages)
    assert queues is not None
    body_bytes = longest = 0
    for message in messages:
        size = len(message.body)
        body_bytes += size
        longest = max(longest, size)
    _count_publish(channel, route.exchange, count, queues)
    routed = False
    for queue in queues:
        if not queue.deleted:
            queue.publish_varied(messages, body_bytes, longest)
            routed = True
    if not routed:
        _handle_unroutable(channel, messages, body_bytes, mandatory)
        route.exchange.counters.count_unroutable(count, returned=mandatory)
    if channel.confirms is not None:
        awaits_sync = _sync_needs(route, queues)[messages[0].envelope.persistent]
        _confirm(channel, queues, awaits_sync, count, count)


def _count_publish(channel: Channel, exchange: Exchange, count: int, queues: tuple[Target, ...]) -> None:
    channel.counters.publish += count
    exchange.counters.publish_in += count
    exchange.counters.publish_out += count * len(queues)


def _confirm(channel: Channel, queues: tuple[Target, ...], awaits_sync: bool, count: int, taken: int) -> None:
    """Confirm accepted messages, now or after the sync, and refuse the remaining ones."""
    confirms = channel.confirms
    assert confirms is not None
    channel.counters.publish_confirm += count
    if not awaits_sync:
        confirms.accept_next(taken)
        channel.output.confirm(confirms)
    elif confirms.hold_next(taken, queues):
        channel.host.stores.await_sync(channel)
    if taken < count:
        for _ in range(count - taken):
            confirms.refuse_next()
        channel.output.confirm(confirms)


def _enqueue(
    channel: Channel,
    exchange: Exchange,
    queues: tuple[Target, ...],
    replies: tuple[str, ...],
    messages: list[Message],
    mandatory: bool,
) -> int:
    """Enqueue messages in their queues; return unroutable ones if they are mandatory.

    Returns:
        Number of messages from the front that no queue refused: a full queue refuses all further messages of a run.
    """
    taken = count = len(messages)
    _count_publish(channel, exchange, count, queues)
    routed = False
    body_bytes = count * len(messages[0].body)
    for queue in queues:
        if not queue.deleted:
            taken = min(taken, queue.publish(messages, body_bytes, channel))
            routed = True
    for name in replies:
        _reply(channel, name, messages)
    # A direct reply does not count as routed, as in 3.10.8.
    if not routed:
        _handle_unroutable(channel, messages, body_bytes, mandatory)
        if not replies:
            exchange.counters.count_unroutable(count, returned=mandatory)
    return taken


def _handle_unroutable(channel: Channel, messages: list[Message], body_bytes: int, mandatory: bool) -> None:
    """Count unroutable messages, and send basic.return if they are mandatory."""
    flags, vhost_name = TOLD if mandatory else 0, channel.host.vhost_name
    alike = [(messages, body_bytes)]
    if messages[0].envelope is not messages[-1].envelope:
        alike = [([message], len(message.body)) for message in messages]
    for some, size in alike:
        details = PublishDetails(vhost_name, some[0].envelope, channel)
        channel.host.stores.note_unroutable(len(some), size, flags, details)
    if not mandatory:
        channel.counters.drop_unroutable += len(messages)
        return
    channel.counters.return_unroutable += len(messages)
    for message in messages:
        _return(channel, message)


def _reply(channel: Channel, name: str, messages: list[Message]) -> None:
    """Deliver messages to a direct reply-to consumer, if it still exists."""
    receiver = channel.vhost.replies.get(name)
    if receiver is not None:
        for message in messages:
            receiver.deliver_reply(message)


def _return(channel: Channel, message: Message) -> None:
    code = ReplyCode.NO_ROUTE
    send_message(channel.host, channel.number, _RETURN, (code, code.name), message)


# -- cached checks and routes -------------------------------------------------------------------------------


def _resolve(channel: Channel, publish: Publish, header: bytes) -> PublishRoute:
    """Check a publish and its header, and return its route."""
    host = channel.host
    if publish.immediate:
        raise not_implemented("immediate=true")
    _check_size(host, header)
    route = cached_route(publish)
    generation = host.principal.generation
    if route is None or route.generation != generation:
        exchange = open_exchange(host.principal, publish.exchange, publish.routing_key)
        route = PublishRoute(generation, exchange, _reply_names(publish, []))
        host.routes.add(publish, route)
    _update_route(channel, publish, route, header)
    return route


def _check_size(host: ChannelHost, header: bytes) -> None:
    size: int = _BODY_SIZE.unpack_from(header, 4)[0]
    limit = host.max_message_size
    if size > limit:
        raise precondition_failed(f"message size {size} is larger than configured max size {limit}")


def _update_route(channel: Channel, publish: Publish, route: PublishRoute, header: bytes) -> None:
    """Update the route for messages with this header: envelope, queues, and whether confirms wait for the sync."""
    _update_envelope(channel, publish, route, header)
    route.awaits_sync = _sync_needs(route, route.queues)[route.envelope.persistent]


def _sync_needs(route: PublishRoute, queues: tuple[Target, ...]) -> tuple[bool, bool]:
    """Return whether confirms of transient messages, and those of persistent ones, wait for the sync."""
    if queues is not route.sync_checked_queues:
        durable = [queue.stored for queue in queues if queue.stored.awaits_sync]
        route.sync_checked_queues, route.needs_sync = (
            queues,
            (any(each.persists_transient for each in durable), bool(durable)),
        )
    return route.needs_sync


def _update_envelope(channel: Channel, publish: Publish, route: PublishRoute, header: bytes) -> None:
    """Update envelope, queues and replies of the route for messages with this header.

    The first two branches handle headers that cannot affect routing.
    """
    route.varies, route.histories = False, ()
    flags = properties.read_flags(header)
    if not flags and len(header) == _BARE_HEADER_SIZE:
        route.envelope = Envelope(publish.route, header)
        route.queues = _queues_by_key(channel, publish, route)
        route.replies = route.keys_replies
        route.header = None if route.varies else header
        return
    if route.keys_queues is not None and (scanned := scan_header(header)) != DECODE:
        route.envelope = Envelope(publish.route, header, scanned >= PERSISTENT, scanned & (PERSISTENT - 1))
        route.queues = route.keys_queues
        route.replies = route.keys_replies
        route.header = header
        return
    read = Properties(header)
    headers = read.headers(MAX_DEPTH)
    changes = _substitute_reply_to(channel, read)
    route.envelope, extra_keys = read_content(channel.host.principal, publish.route, read, headers, changes)
    if extra_keys or route.exchange.uses_headers:
        keys = [publish.routing_key, *extra_keys]
        route.queues, _ = _find_queues(channel, route, keys, headers, header)
    else:
        route.queues = _queues_by_key(channel, publish, route, headers, header)
    route.replies = _reply_names(publish, extra_keys)
    # Not reusable with a substituted reply-to, which is that of this channel: other channels may send the same bytes.
    route.header = None if properties.REPLY_TO in changes or route.varies else header


def _reply_names(publish: Publish, extra_keys: list[str]) -> tuple[str, ...]:
    """Return routing keys that name direct reply-to consumers; only the default exchange has them."""
    if publish.exchange or not (extra_keys or publish.routing_key.startswith(REPLY_QUEUE)):
        return ()
    return tuple(key for key in (publish.routing_key, *extra_keys) if key.startswith(REPLY_QUEUE))


def _queues_by_key(
    channel: Channel, publish: Publish, route: PublishRoute, headers: FieldTable = (), header: bytes = b""
) -> tuple[Target, ...]:
    """Return the queues for the routing key alone; cached unless an exchange is involved that routes otherwise."""
    if route.keys_queues is not None:
        return route.keys_queues
    queues, cacheable = _find_queues(channel, route, [publish.routing_key], headers, header)
    if cacheable:
        route.keys_queues = queues
    return queues


def _find_queues(
    channel: Channel, route: PublishRoute, keys: list[str], headers: FieldTable, header: bytes
) -> tuple[tuple[Target, ...], bool]:
    """Return the queues for these keys and headers, and whether they depend on the keys alone.

    What else the search has found is noted in the route.
    """
    search = channel.host.route_search
    found = search.find(channel.vhost.topology, route.exchange, keys, headers, header)
    route.varies, route.histories = found.varies, found.histories
    if search.is_outdated:
        # Valid for this message, which arrived before the change, but not for the next one.
        route.generation = -1
    channel.host.routes.add_queues(len(found.queues))
    return found.queues, found.cacheable


def _substitute_reply_to(channel: Channel, read: Properties) -> dict[int, bytes | None]:
    if read.text(properties.REPLY_TO) != REPLY_QUEUE:
        return {}
    if channel.reply_consumer is None:
        raise precondition_failed("fast reply consumer does not exist")
    return {properties.REPLY_TO: encode_text(channel.reply_consumer.name)}
