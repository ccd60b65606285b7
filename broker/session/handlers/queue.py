"""Methods of class queue."""

from __future__ import annotations

from functools import partial
from typing import Final

from leveret.broker.core.exchanges.bindings import Binding
from leveret.broker.core.names import generate_name, strip_line_ends
from leveret.broker.core.queues.declaration import QueueDeclaration, check_locked, check_unreserved
from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.channel import Channel
from leveret.broker.session.direct_reply import REPLY_QUEUE
from leveret.protocol.faults import access_refused, not_found, not_implemented, precondition_failed
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
    host, vhost = channel.host, channel.vhost
    name = strip_line_ends(name)
    if name.startswith(REPLY_QUEUE):
        _declare_reply_queue(channel, name, nowait)
        return
    if passive:
        host.authorization.check_any("queue", name)
        queue = vhost.queue(name, host)
    else:
        server_named = not name
        if server_named:
            name = generate_name("amq.gen")
        else:
            check_unreserved(name)
        host.authorization.check("configure", "queue", name)
        owner = host if exclusive else None
        declaration = QueueDeclaration(name, durable, auto_delete, owner, host, arguments, server_named)
        queue = vhost.declare_queue(declaration, partial(_check_dead_letter_permissions, channel, name))
    channel.last_queue = name
    if not nowait:
        # The declaration counts as a use of the queue only if the reply reads its message count.
        queue.expiry.renew()
        channel.send(_DECLARE_OK, name, queue.ready_count(), _consumer_count(queue))


def _consumer_count(queue: Queue) -> int:
    count = len(queue.consumers)
    return min(count, 1) if queue.consumers.single_active and not queue.traits.counts_waiting_consumers else count


def _declare_reply_queue(channel: Channel, name: str, nowait: bool) -> None:
    """Answer the declaration of direct reply-to: the pseudo-queue always exists, a reply name while it is consumed."""
    if name != REPLY_QUEUE and name not in channel.vhost.replies:
        raise not_found(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    channel.last_queue = name
    if not nowait:
        channel.send(_DECLARE_OK, name, 0, 1)


def _check_dead_letter_permissions(channel: Channel, name: str, dead_letter_exchange: str) -> None:
    channel.host.authorization.check("read", "queue", name)
    channel.host.authorization.check("write", "exchange", dead_letter_exchange)


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
    """
    name, key = _check_ends(channel, queue_name, exchange_name, routing_key)
    topology = channel.vhost.topology
    exchange = topology.exchange(strip_line_ends(exchange_name))
    topology.bind(exchange, channel.vhost.queue(name, channel.host), key, arguments)
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
    name, key = _check_ends(channel, queue_name, exchange_name, routing_key)
    exchange = channel.vhost.topology.exchanges.get(strip_line_ends(exchange_name))
    queue = channel.vhost.queues.get(name)
    if exchange is not None and queue is not None:
        # As in RabbitMQ, an exclusive queue is locked only for existing bindings.
        if Binding(exchange, queue, key, arguments).identity in exchange.bindings:
            check_locked(queue, channel.host)
        channel.vhost.topology.unbind(exchange, queue, key, arguments)
    channel.send(_UNBIND_OK)


def _check_ends(channel: Channel, queue_name: str, exchange_name: str, routing_key: str) -> tuple[str, str]:
    """Check the permissions on both ends; return queue name and routing key with defaults filled in."""
    authorization = channel.host.authorization
    name = strip_line_ends(channel.queue_name(queue_name))
    # If queue and routing key are empty, both are the name of the last queue (spec, queue.bind).
    key = name if not queue_name and not routing_key else routing_key
    exchange_name = strip_line_ends(exchange_name)
    if name.startswith(REPLY_QUEUE):
        raise access_refused("cannot bind or unbind to a volatile (direct reply-to) queue")
    authorization.check("write", "queue", name)
    channel.vhost.topology.refuse_default(exchange_name)
    authorization.check("read", "exchange", exchange_name)
    authorization.check_topic_binding(exchange_name, key)
    return name, key


def purge(channel: Channel, ticket: int, queue_name: str, nowait: bool) -> None:
    """Drop all ready messages of a queue.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    name = channel.queue_name(queue_name)
    channel.host.authorization.check("read", "queue", name)
    purged = channel.vhost.queue(name, channel.host).purge()
    if not nowait:
        channel.send(_PURGE_OK, purged)


def delete(channel: Channel, ticket: int, queue_name: str, if_unused: bool, if_empty: bool, nowait: bool) -> None:
    """Delete a queue; an unknown name is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406) with if-unused
            if it is in use, or with if-empty if it is not empty.
    """
    name = strip_line_ends(channel.queue_name(queue_name))
    vhost = channel.vhost
    channel.host.authorization.check("configure", "queue", name)
    queue = vhost.queues.get(name)
    if queue is None:
        if if_empty and vhost.unrestored.has("queue", name):
            raise precondition_failed(f"queue '{name}' in vhost '{vhost.name}' not empty")
        vhost.unrestored.delete("queue", name)
        if not nowait:
            channel.send(_DELETE_OK, 0)
        return
    check_locked(queue, channel.host)
    _check_conditions(queue, if_unused, if_empty)
    ready = queue.ready_count()
    if if_empty and ready:
        raise precondition_failed(f"queue '{name}' in vhost '{vhost.name}' not empty")
    if if_unused and len(queue.consumers):
        raise precondition_failed(f"queue '{name}' in vhost '{vhost.name}' in use")
    # The reply precedes the cancellations of consumers on the same channel.
    if not nowait:
        channel.send(_DELETE_OK, ready)
    vhost.delete_queue(queue)


def _check_conditions(queue: Queue, if_unused: bool, if_empty: bool) -> None:
    flag = "if-empty" if if_empty else "if-unused" if if_unused else None
    if flag is not None and not queue.traits.supports_conditional_delete:
        raise not_implemented(
            f"cannot delete queue '{queue.name}' in vhost '{queue.vhost_name}'. queue.delete operations with {flag}"
            f" flag set are not supported by {queue.queue_type} queues"
        )


METHODS: Final = {
    "queue.declare": declare,
    "queue.bind": bind,
    "queue.unbind": unbind,
    "queue.purge": purge,
    "queue.delete": delete,
}
