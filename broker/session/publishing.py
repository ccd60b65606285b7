"""Publishes messages: checks, routing, queues and confirms; in time slices if there are many queues.

The result of checks and routing is cached for equal publishes with equal content headers. It is valid until a binding,
an exchange, a queue or a permission changes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages import PublishDetails, Target
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.operations.publishing import open_exchange, read_content
from leveret.broker.session.channel import REPLY_QUEUE, Channel
from leveret.broker.session.delivery_frames import send_message
from leveret.broker.session.shared_state import ChannelHost, PublishRoute, cached_route
from leveret.broker.unfinished import Unfinished
from leveret.protocol import properties
from leveret.protocol.faults import ReplyCode, not_implemented, precondition_failed
from leveret.protocol.field_table import MAX_DEPTH, FieldTable
from leveret.protocol.frame_reader import Publish, PublishRun, VariedRun
from leveret.protocol.header_scan import DECODE, PERSISTENT, scan_header
from leveret.protocol.methods import INDEX
from leveret.protocol.properties import Properties, encode_text
from leveret.storage.event_format import TOLD
from leveret.storage.message import Envelope, Message

_BODY_SIZE: Final = struct.Struct(">Q")
_BARE_HEADER_SIZE: Final = 14
_RETURN: Final = INDEX["basic.return"]
#: With more queues than this the time slice is checked after each: a full queue that dead-letters can take two slices.
_FEW: Final = 4


def publish_run(channel: Channel, run: PublishRun) -> None:
    """Publish a run of messages.

    Args:
        run: Messages that differ only in their bodies.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_IMPLEMENTED (540), INTERNAL_ERROR (541).
        Unfinished: Routing, or enqueueing in many queues, takes longer than a time slice.
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
    """Publish the messages of a run with a route each; those that have been published are removed from it.

    Raises:
        Unfinished: As publish_run().
    """
    while True:
        body = run.bodies.pop(0)
        try:
            _publish(channel, run.publish, route, [body])
        except Unfinished as work:
            # The event is handled again later if other messages are left.
            work.is_handled = not run.bodies
            raise
        if not run.bodies:
            return
        route = _resolve(channel, run.publish, run.header)


def _publish(channel: Channel, publish: Publish, route: PublishRoute, bodies: list[bytes]) -> None:
    """Publish messages with one route."""
    envelope = route.envelope
    messages = [Message(envelope, body) for body in bodies]
    body_bytes = len(bodies) * len(bodies[0])
    if channel.tracer is not None:
        channel.tracer.published(channel.origin, messages, route.queues)
    # Also in a transaction, whether or not it is committed, as in RabbitMQ.
    for history in route.histories:
        history.remember(messages)
    if channel.transaction is not None:
        queues = tuple([queue.decided(messages) for queue in route.queues])
        held = Enqueueing(channel, route.exchange, queues, route.replies, messages, body_bytes, publish.mandatory)
        channel.transaction.hold_publish(held)
        return
    exchange, replies, awaits_sync = route.exchange, route.replies, route.awaits_sync
    _enqueue(channel, exchange, route.queues, replies, messages, body_bytes, publish.mandatory, awaits_sync)


def publish_varied(channel: Channel, run: VariedRun) -> None:
    """Publish messages with the same route and different content headers.

    Messages whose headers need no decoding are enqueued in batches; the remaining ones are published one by one.

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
        done = position
        try:
            if scanned != last and batch:
                assert route is not None
                _publish_batch(channel, route, batch, publish.mandatory)
                batch = []
            last = scanned
            if scanned == DECODE:
                done = position + 1
                publish_run(channel, PublishRun(run.channel, publish, header, [body]))
        except Unfinished as work:
            # The event is handled again later if messages are left: these have been published already.
            done = done if work.is_handled else position
            del run.headers[:done], run.bodies[:done]
            work.is_handled = not run.headers
            raise
        if scanned == DECODE:
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
    queues = route.keys_queues
    assert queues is not None
    body_bytes = longest = 0
    for message in messages:
        size = len(message.body)
        body_bytes += size
        longest = max(longest, size)
    awaits_sync = _sync_needs(route, queues)[messages[0].envelope.persistent]
    _enqueue(channel, route.exchange, queues, (), messages, body_bytes, mandatory, awaits_sync, longest)


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


# -- queues and confirms -------------------------------------------------------------------------------------


class Enqueueing:
    """Messages on their way to the queues of their route.

    Args:
        exchange: The exchange that they were published to.
        replies: Names of direct reply-to consumers.
        messages: The messages. They have one size and one envelope, unless `longest` is given.
        body_bytes: Sum of their body lengths.
        mandatory: Whether they are returned if they are unroutable.
        longest: Length of the longest body, for messages with different headers and sizes; see Queue.publish_varied().

    Attributes:
        count: Number of messages.
        taken: Number of messages from the front that no queue has refused: a full queue refuses all further messages
            of a run.
    """

    __slots__ = (
        "_body_bytes", "_exchange", "_longest", "_mandatory", "_messages", "_position", "_replies", "_routed",
        "channel", "count", "queues", "taken",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        exchange: Exchange,
        queues: tuple[Target, ...],
        replies: tuple[str, ...],
        messages: Sequence[Message],
        body_bytes: int,
        mandatory: bool,
        longest: int | None = None,
    ) -> None:
        self.channel = channel
        self.queues = queues
        self.count = self.taken = len(messages)
        self._exchange = exchange
        self._replies = replies
        self._messages = messages
        self._mandatory = mandatory
        self._longest = longest
        self._position = 0
        self._routed = False
        self._body_bytes = body_bytes

    def run(self, time_slice: TimeSlice) -> bool:
        """Enqueue messages while time is left; return whether all queues have them."""
        if not self._position:
            _count_publish(self.channel, self._exchange, self.count, self.queues)
        queues, messages, body_bytes, longest = self.queues, self._messages, self._body_bytes, self._longest
        written = self.count if messages[0].envelope.persistent else 0
        while self._position < len(queues):
            if self._position and time_slice.is_over():
                return False
            queue = queues[self._position]
            self._position += 1
            if queue.deleted:
                continue
            self._routed = True
            time_slice.count_published(written)
            if longest is None:
                self.taken = min(self.taken, queue.publish(messages, body_bytes, self.channel))
            else:
                queue.publish_varied(messages, body_bytes, longest)
        _end(self.channel, self._exchange, self._routed, self._replies, messages, body_bytes, self._mandatory)
        return True


class _Rest:
    """Goes on with messages for which one time slice was too short, then confirms them.

    Args:
        work: What is left.
        awaits_sync: Whether their confirms wait for the sync to disk.
    """

    __slots__ = ("_awaits_sync", "_confirms", "_work")

    def __init__(self, work: Enqueueing, awaits_sync: bool) -> None:
        self._work = work
        self._awaits_sync = awaits_sync
        self._confirms = work.channel.confirms
        work.channel.publishing = self

    def step(self) -> bool:
        """Use one time slice; return whether all queues have the messages."""
        work = self._work
        channel = work.channel
        if channel.publishing is not self:
            return True
        if not work.run(channel.vhost.turn.slice()):
            return False
        channel.publishing = None
        if channel.confirms is self._confirms:
            _confirm(channel, work.queues, self._awaits_sync, work.count, work.taken)
        return True

    def go_on_alone(self) -> None:
        """Go on without the channel: a message that a client has sent does not reach only some of its queues."""
        if not self.step():
            self._work.channel.vhost.timers.call_later(0, self.go_on_alone)


def _enqueue(
    channel: Channel,
    exchange: Exchange,
    queues: tuple[Target, ...],
    replies: tuple[str, ...],
    messages: Sequence[Message],
    body_bytes: int,
    mandatory: bool,
    awaits_sync: bool,
    longest: int | None = None,
) -> None:
    """Enqueue messages in their queues and confirm them, after the sync if `awaits_sync`; see Enqueueing.

    Raises:
        Unfinished: There are so many queues that it takes longer than a time slice.
    """
    if len(queues) > _FEW:
        work = Enqueueing(channel, exchange, queues, replies, messages, body_bytes, mandatory, longest)
        if not work.run(channel.vhost.turn.slice()):
            raise Unfinished(_Rest(work, awaits_sync).step, is_handled=True)
        _confirm(channel, queues, awaits_sync, work.count, work.taken)
        return
    # The same without an object.
    taken = count = len(messages)
    _count_publish(channel, exchange, count, queues)
    routed = False
    for queue in queues:
        if queue.deleted:
            continue
        routed = True
        if longest is None:
            taken = min(taken, queue.publish(messages, body_bytes, channel))
        else:
            queue.publish_varied(messages, body_bytes, longest)
    _end(channel, exchange, routed, replies, messages, body_bytes, mandatory)
    _confirm(channel, queues, awaits_sync, count, taken)


def _count_publish(channel: Channel, exchange: Exchange, count: int, queues: tuple[Target, ...]) -> None:
    channel.counters.publish += count
    exchange.counters.publish_in += count
    exchange.counters.publish_out += count * len(queues)


def _end(
    channel: Channel,
    exchange: Exchange,
    routed: bool,
    replies: tuple[str, ...],
    messages: Sequence[Message],
    body_bytes: int,
    mandatory: bool,
) -> None:
    """Deliver direct replies, and handle messages that no queue got."""
    for name in replies:
        _reply(channel, name, messages)
    # A direct reply does not count as routed, as in 3.10.8.
    if not routed:
        _handle_unroutable(channel, messages, body_bytes, mandatory)
        if not replies:
            exchange.counters.count_unroutable(len(messages), returned=mandatory)


def _confirm(channel: Channel, queues: tuple[Target, ...], awaits_sync: bool, count: int, taken: int) -> None:
    """Confirm accepted messages, now or after the sync, and refuse the remaining ones, if the channel confirms."""
    confirms = channel.confirms
    if confirms is None:
        return
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


def _handle_unroutable(channel: Channel, messages: Sequence[Message], body_bytes: int, mandatory: bool) -> None:
    """Count unroutable messages, and send basic.return if they are mandatory."""
    flags, vhost_name = TOLD if mandatory else 0, channel.host.vhost_name
    alike = [(messages, body_bytes)]
    if messages[0].envelope is not messages[-1].envelope:
        alike = [([message], len(message.body)) for message in messages]
    for some, size in alike:
        details = PublishDetails(vhost_name, some[0].envelope, channel)
        channel.host.stores.engine.note_unroutable(len(some), size, flags, details)
    if not mandatory:
        channel.counters.drop_unroutable += len(messages)
        return
    channel.counters.return_unroutable += len(messages)
    for message in messages:
        _return(channel, message)


def _reply(channel: Channel, name: str, messages: Sequence[Message]) -> None:
    """Deliver messages to a direct reply-to consumer, if it still exists."""
    receiver = channel.vhost.replies.get(name)
    if receiver is not None:
        for message in messages:
            receiver.deliver_reply(message)


def _return(channel: Channel, message: Message) -> None:
    code = ReplyCode.NO_ROUTE
    send_message(channel.host, channel.number, _RETURN, (code, code.name), message)
