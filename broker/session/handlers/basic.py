"""Methods of class basic, except publish."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.queues.declaration_checks import check_exclusive_use
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.vhosts.topology import generate_name
from leveret.broker.operations import queues
from leveret.broker.session.ack_timeout import AckDeadline
from leveret.broker.session.channel import (
    REPLY_QUEUE,
    Channel,
    ChannelConsumer,
    ChannelStreamConsumer,
    ReplyConsumer,
    tell_ended,
    tell_started,
)
from leveret.broker.session.delivery_frames import send_message
from leveret.broker.session.unacked import Outcome, Unacked
from leveret.broker.unfinished import Unfinished
from leveret.protocol.faults import (
    ConnectionFault,
    ReplyCode,
    not_implemented,
    precondition_failed,
)
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX
from leveret.protocol.states import ChannelState
from leveret.storage.message import Message

_QOS_OK: Final = INDEX["basic.qos-ok"]
_CONSUME_OK: Final = INDEX["basic.consume-ok"]
_CANCEL_OK: Final = INDEX["basic.cancel-ok"]
_GET_OK: Final = INDEX["basic.get-ok"]
_GET_EMPTY: Final = INDEX["basic.get-empty"]
_RECOVER_OK: Final = INDEX["basic.recover-ok"]

#: Messages acknowledged or rejected at once: some milliseconds of work.
_SETTLE_STEP: Final = 8192


def qos(channel: Channel, prefetch_size: int, prefetch_count: int, shared: bool) -> None:
    """Set the prefetch limit (basic.qos).

    Args:
        prefetch_size: Limit in bytes; only 0 (no limit) is implemented.
        prefetch_count: Limit of unacked messages, 0..65535; 0 for no limit.
        shared: The global bit: one limit for the channel, instead of one for each new consumer.
    Raises:
        ConnectionFault: NOT_IMPLEMENTED (540) if prefetch_size is not 0.
    """
    if prefetch_size:
        raise not_implemented(f"prefetch_size!=0 ({prefetch_size})")
    if shared:
        channel.shared_prefetch.set_limit(prefetch_count)
    else:
        channel.default_prefetch = prefetch_count
        channel.shared_prefetch.set_limit(0)
    channel.send(_QOS_OK)


def consume(
    channel: Channel,
    ticket: int,
    queue_name: str,
    tag: str,
    no_local: bool,
    no_ack: bool,
    exclusive: bool,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Start a consumer.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_ALLOWED (530) for a consumer tag in use, or too many consumers.
    """
    if tag in channel.consumers:
        raise ConnectionFault(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if queue_name == REPLY_QUEUE:
        tag = _consume_replies(channel, tag, no_ack)
    else:
        queue = queues.open_for_reading(channel.host.principal, channel.queue_name(queue_name), channel.host)
        given = queues.read_consumer_arguments(queue, arguments)
        if queue.traits.keeps_messages:
            _check_stream_consumer(channel, queue, no_ack)
        check_exclusive_use(queue, exclusive)
        if channel.shared_prefetch.limit and not queue.traits.supports_global_prefetch:
            raise not_implemented(f"queue '{queue.name}' in vhost '{queue.vhost_name}' does not support global qos")
        _check_consumer_limit(channel)
        tag = tag or generate_name("amq.ctag")
        prefetch = channel.default_prefetch
        if isinstance(queue, StreamQueue):
            reader = ChannelStreamConsumer(channel, queue, tag, exclusive, prefetch, arguments)
            queue.add_consumer(reader, given.place, given.name, given.wanted)
            channel.consumers[tag] = reader
            tell_started(reader)
        else:
            consumer = ChannelConsumer(channel, queue, tag, no_ack, exclusive, given.priority, prefetch, arguments)
            channel.consumers[tag] = consumer
            if given.timeout_ms is not None and not no_ack:
                channel.unacked.deadlines[consumer] = AckDeadline(channel, consumer, given.timeout_ms)
            queue.add_consumer(consumer)
            tell_started(consumer)
    if not nowait:
        channel.send(_CONSUME_OK, tag)


def _consume_replies(channel: Channel, tag: str, no_ack: bool) -> str:
    if channel.reply_consumer is not None:
        raise precondition_failed("reply consumer already set")
    if not no_ack:
        raise precondition_failed("reply consumer cannot acknowledge")
    channel.reply_consumer = ReplyConsumer(
        channel.host, channel.number, channel.unacked, tag or generate_name("amq.ctag")
    )
    return channel.reply_consumer.tag


def _check_stream_consumer(channel: Channel, queue: Queue, no_ack: bool) -> None:
    """Refuse a consumer of a stream without a prefetch limit, or without acknowledgements."""
    where = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
    if not channel.default_prefetch:
        # The quotes are RabbitMQ's.
        raise precondition_failed(f"consumer prefetch count is not set for '{where}'")
    if no_ack:
        raise not_implemented(f"automatic acknowledgement not supported by stream queues {where}")


def _check_consumer_limit(channel: Channel) -> None:
    limit = channel.host.consumer_max
    if limit is not None and len(channel.consumers) >= limit:
        raise ConnectionFault(ReplyCode.NOT_ALLOWED, f"reached maximum ({limit}) of consumers per channel")


def cancel(channel: Channel, tag: str, nowait: bool) -> None:
    """Cancel a consumer; an unknown tag is ignored. Its unacknowledged messages stay outstanding."""
    consumer = channel.consumers.pop(tag, None)
    if not nowait:
        channel.send(_CANCEL_OK, tag)
    if consumer is not None:
        channel.shared_prefetch.remove(consumer)
        tell_ended(consumer)
        consumer.queue.remove_consumer(consumer)
    elif channel.reply_consumer is not None and channel.reply_consumer.tag == tag:
        channel.cancel_replies()


def get(channel: Channel, ticket: int, queue_name: str, no_ack: bool) -> None:
    """Send the message at the head of a queue (basic.get).

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
        Unfinished: So many messages behind it have expired that counting those that are left takes longer than a time
            slice.
    """
    queue = queues.open_for_get(channel.host.principal, channel.queue_name(queue_name), channel.host)
    holder = None if no_ack else channel.unacked.get_holder(queue)
    entry = queues.get(queue, holder, channel.counters)
    if entry is None:
        if holder is not None:
            channel.unacked.remove_get_holder(holder)
        channel.send(_GET_EMPTY, "")
        return
    _, message, redelivered = entry
    if channel.tracer is not None:
        channel.tracer.delivered(channel.origin, queue.name, [entry])
    tag = channel.unacked.take_tag() if holder is None else channel.unacked.hold(holder, entry)
    timeout_ms = queue.settings.consumer_timeout
    if holder is not None and timeout_ms is not None and holder not in channel.unacked.deadlines:
        channel.unacked.deadlines[holder] = AckDeadline(channel, holder, timeout_ms)
    if queue.store.ready_count and not queue.prepare(channel.vhost.turn.slice()):
        _answer_later(channel, queue, (tag, redelivered), message)
    send_message(channel.host, channel.number, _GET_OK, (tag, redelivered), message, (queue.ready_count(),))


def _answer_later(channel: Channel, queue: Queue, first: tuple[int, bool], message: Message) -> None:
    """Send a message that was got when it is known how many are left.

    Raises:
        Unfinished: Always.
    """

    def answer() -> bool:
        if not queue.deleted and not queue.prepare(channel.vhost.turn.slice()):
            return False
        if channel.state is ChannelState.OPEN:
            left = 0 if queue.deleted else queue.ready_count()
            send_message(channel.host, channel.number, _GET_OK, first, message, (left,))
        return True

    raise Unfinished(answer, is_handled=True)


def acknowledge_run(channel: Channel, tags: list[int]) -> None:
    """Acknowledge messages one by one (basic.ack with multiple=false, many in a row).

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) for a tag that is not outstanding; those before it are
            acknowledged.
    """
    held = channel.unacked.held
    known = tags
    unknown: int | None = None
    if len(tags) == 1 and tags[0] in held:
        # As with most clients that take one message after the other.
        pass
    elif not all(map(held.__contains__, tags)) or len(set(tags)) != len(tags):
        known = []
        seen: set[int] = set()
        for tag in tags:
            if tag in held and tag not in seen:
                seen.add(tag)
                known.append(tag)
            elif not channel.unacked.forget_expired(tag):
                unknown = tag
                break
    _settle(channel, known, "acknowledge", individually=True)
    if unknown is not None:
        raise precondition_failed(f"unknown delivery tag {unknown}")


def acknowledge(channel: Channel, tag: int, multiple: bool) -> None:
    """Acknowledge one message, or all up to a delivery tag.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) for a tag that is not outstanding.
    """
    _settle(channel, channel.unacked.resolve(tag, multiple), "acknowledge")


def negative_acknowledge(channel: Channel, tag: int, multiple: bool, requeue: bool) -> None:
    """Requeue or reject one message, or all up to a delivery tag.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) for a tag that is not outstanding.
    """
    _settle(channel, channel.unacked.resolve(tag, multiple), "requeue" if requeue else "reject")


def reject(channel: Channel, tag: int, requeue: bool) -> None:
    """Requeue or reject one message.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406) for a tag that is not outstanding.
    """
    _settle(channel, channel.unacked.resolve(tag, False), "return_failed" if requeue else "reject")


def _settle(channel: Channel, tags: list[int], outcome: Outcome, individually: bool = False) -> None:
    """Settle messages; very many in parts.

    Raises:
        Unfinished: Some are left, or not requeued yet.
    """
    if not tags:
        return
    if channel.transaction is not None:
        channel.transaction.hold_settlement(tags, outcome)
        return
    unacked, step = channel.unacked, _SETTLE_STEP
    if individually or outcome in ("requeue", "return_failed") or len(tags) <= step:
        _await_returns(channel, unacked.settle_tags(tags, outcome, individually))
        return
    _settle_in_parts(unacked, [tags[at : at + step] for at in range(0, len(tags), step)], outcome)


def _settle_in_parts(unacked: Unacked, parts: list[list[int]], outcome: Outcome) -> None:
    """Settle a part of many messages.

    Raises:
        Unfinished: The other parts are left.
    """
    left = iter(parts)
    unacked.settle_tags(next(left), outcome)

    def settle_part() -> bool:
        part = next(left, None)
        if part is not None:
            unacked.settle_tags(part, outcome)
        return part is None

    raise Unfinished(settle_part, is_handled=True)


def _await_returns(channel: Channel, queues: list[Queue]) -> None:
    """Handle no later event of the connection until queues have requeued their messages: it must not overtake them.

    Raises:
        Unfinished: There are such queues.
    """
    if queues:
        raise _returning(channel, queues)


def _returning(channel: Channel, queues: list[Queue]) -> Unfinished:
    """Return the work of requeueing the messages of queues. A function of its own: it needs a closure, acks do not."""
    new_slice = channel.host.vhost.turn.slice
    return Unfinished(lambda: all(queue.return_some(new_slice()) for queue in queues), is_handled=True)


def recover(channel: Channel, requeue: bool) -> None:
    """Requeue all unacknowledged messages; recover-ok is sent before they are delivered again.

    Raises:
        ConnectionFault: NOT_IMPLEMENTED (540) for requeue=false; INTERNAL_ERROR (541) with messages of a stream.
    """
    _check_recover(channel, requeue)
    channel.send(_RECOVER_OK)
    _await_returns(channel, channel.unacked.requeue_all())


def recover_async(channel: Channel, requeue: bool) -> None:
    """Requeue all unacknowledged messages without a reply.

    Raises:
        ConnectionFault: NOT_IMPLEMENTED (540) for requeue=false.
    """
    _check_recover(channel, requeue)
    _await_returns(channel, channel.unacked.requeue_all())


def _check_recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise not_implemented("requeue=false")
    if channel.unacked.has_kept():
        # As in RabbitMQ: messages of streams cannot be requeued.
        raise ConnectionFault(ReplyCode.INTERNAL_ERROR)


METHODS: Final = {
    "basic.qos": qos,
    "basic.consume": consume,
    "basic.cancel": cancel,
    "basic.get": get,
    "basic.ack": acknowledge,
    "basic.nack": negative_acknowledge,
    "basic.reject": reject,
    "basic.recover": recover,
    "basic.recover-async": recover_async,
}
