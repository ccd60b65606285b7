"""Methods of class queue."""

from __future__ import annotations

from typing import Final

from leveret.broker.core.names import strip_line_ends
from leveret.broker.core.queues.queue import Queue
from leveret.broker.operations import bindings, queues
from leveret.broker.operations.bindings import Ends
from leveret.broker.session.channel import Channel
from leveret.broker.session.direct_reply import REPLY_QUEUE
from leveret.broker.session.history import give_history
from leveret.protocol.faults import access_refused, not_found
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX

_DECLARE_OK: Final = INDEX["queue.declare-ok"]
_BIND_OK: Final = INDEX["queue.bind-ok"]
_UNBIND_OK: Final = INDEX["queue.unbind-ok"]
_PURGE_OK: Final = INDEX["queue.purge-ok"]
_DELETE_OK: Final = INDEX["queue.delete-ok"]


def declare(
    channel: Channel,
    ticket: int,
    name: str,
    passive: bool,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Declare a queue, or with passive=true check whether it exists.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_IMPLEMENTED (540) for unsupported queue types.
    """
    host = channel.host
    name = strip_line_ends(name)
    if name.startswith(REPLY_QUEUE):
        _declare_reply_queue(channel, name, nowait)
        return
    if passive:
        queue = queues.find(host.principal, name, host)
    else:
        owner = host if exclusive else None
        queue = queues.declare(host.principal, name, durable, auto_delete, arguments, owner)
    channel.last_queue = queue.name
    if not nowait:
        # The declaration counts as a use of the queue only if the reply reads its message count.
        queue.expiry.renew()
        channel.send(_DECLARE_OK, queue.name, queue.ready_count(), _consumer_count(queue))


def _consumer_count(queue: Queue) -> int:
    if queue.traits.keeps_messages:
        # As in RabbitMQ.
        return 0
    count = len(queue.consumers)
    return min(count, 1) if queue.consumers.single_active and not queue.traits.counts_waiting_consumers else count


def _declare_reply_queue(channel: Channel, name: str, nowait: bool) -> None:
    """Answer the declaration of direct reply-to: the pseudo-queue always exists, a reply name while it is consumed."""
    if name != REPLY_QUEUE and name not in channel.vhost.replies:
        raise not_found(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    channel.last_queue = name
    if not nowait:
        channel.send(_DECLARE_OK, name, 0, 1)


def bind(
    channel: Channel,
    ticket: int,
    queue_name: str,
    exchange_name: str,
    routing_key: str,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Bind a queue to an exchange.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
        Unfinished: The binding gets a long history.
    """
    ends, key = _read_ends(channel, queue_name, exchange_name, routing_key)
    bound = bindings.bind(channel.host.principal, ends, key, arguments, channel.host)
    give_history(channel, bound.history)
    if not nowait:
        channel.send(_BIND_OK)


def unbind(
    channel: Channel,
    ticket: int,
    queue_name: str,
    exchange_name: str,
    routing_key: str,
    arguments: FieldTable,
) -> None:
    """Delete a binding; an unknown binding is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405).
    """
    ends, key = _read_ends(channel, queue_name, exchange_name, routing_key)
    bindings.unbind(channel.host.principal, ends, key, arguments, channel.host)
    channel.send(_UNBIND_OK)


def _read_ends(channel: Channel, queue_name: str, exchange_name: str, routing_key: str) -> tuple[Ends, str]:
    """Return the ends of a binding and the routing key, with defaults filled in."""
    name = strip_line_ends(channel.queue_name(queue_name))
    if name.startswith(REPLY_QUEUE):
        raise access_refused("cannot bind or unbind to a volatile (direct reply-to) queue")
    # If queue and routing key are empty, both are the name of the last queue (spec, queue.bind).
    key = name if not queue_name and not routing_key else routing_key
    return Ends(strip_line_ends(exchange_name), name, to_queue=True), key


def purge(channel: Channel, ticket: int, queue_name: str, nowait: bool) -> None:
    """Drop all ready messages of a queue.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    purged = queues.purge(channel.host.principal, channel.queue_name(queue_name), channel.host)
    if not nowait:
        channel.send(_PURGE_OK, purged)


def delete(channel: Channel, ticket: int, queue_name: str, if_unused: bool, if_empty: bool, nowait: bool) -> None:
    """Delete a queue; an unknown name is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406) with if-unused
            if it is in use, or with if-empty if it is not empty.
    """
    name, host = strip_line_ends(channel.queue_name(queue_name)), channel.host

    def answer(ready: int) -> None:
        # It precedes the cancellations of consumers on the same channel.
        if not nowait:
            channel.send(_DELETE_OK, ready)

    queues.delete(host.principal, name, if_unused, if_empty, host, answer)


METHODS: Final = {
    "queue.declare": declare,
    "queue.bind": bind,
    "queue.unbind": unbind,
    "queue.purge": purge,
    "queue.delete": delete,
}
