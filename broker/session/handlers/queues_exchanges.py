"""Methods of classes queue and exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.topology import strip_line_ends
from leveret.broker.operations import exchanges, queues
from leveret.broker.operations.exchanges import Ends
from leveret.broker.session.channel import REPLY_QUEUE, Channel
from leveret.broker.unfinished import Unfinished
from leveret.protocol.faults import access_refused, not_found
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX

_DECLARE_OK: Final = INDEX["queue.declare-ok"]
_BIND_OK: Final = INDEX["queue.bind-ok"]
_UNBIND_OK: Final = INDEX["queue.unbind-ok"]
_PURGE_OK: Final = INDEX["queue.purge-ok"]
_DELETE_OK: Final = INDEX["queue.delete-ok"]
_EXCHANGE_DECLARE_OK: Final = INDEX["exchange.declare-ok"]
_EXCHANGE_DELETE_OK: Final = INDEX["exchange.delete-ok"]
_EXCHANGE_BIND_OK: Final = INDEX["exchange.bind-ok"]
_EXCHANGE_UNBIND_OK: Final = INDEX["exchange.unbind-ok"]


def declare_queue(
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
        queue.renew_expiry()
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


def bind_queue(
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
    ends, key = _queue_ends(channel, queue_name, exchange_name, routing_key)
    bound = exchanges.bind(channel.host.principal, ends, key, arguments, channel.host)
    _give_history(channel, bound.history)
    if not nowait:
        channel.send(_BIND_OK)


def unbind_queue(
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
    ends, key = _queue_ends(channel, queue_name, exchange_name, routing_key)
    exchanges.unbind(channel.host.principal, ends, key, arguments, channel.host)
    channel.send(_UNBIND_OK)


def _queue_ends(channel: Channel, queue_name: str, exchange_name: str, routing_key: str) -> tuple[Ends, str]:
    """Return the ends of a binding and the routing key, with defaults filled in."""
    name = strip_line_ends(channel.queue_name(queue_name))
    if name.startswith(REPLY_QUEUE):
        raise access_refused("cannot bind or unbind to a volatile (direct reply-to) queue")
    # If queue and routing key are empty, both are the name of the last queue (spec, queue.bind).
    key = name if not queue_name and not routing_key else routing_key
    return Ends(strip_line_ends(exchange_name), name, to_queue=True), key


def purge_queue(channel: Channel, ticket: int, queue_name: str, nowait: bool) -> None:
    """Drop all ready messages of a queue.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    purged = queues.purge(channel.host.principal, channel.queue_name(queue_name), channel.host)
    if not nowait:
        channel.send(_PURGE_OK, purged)


def delete_queue(channel: Channel, ticket: int, queue_name: str, if_unused: bool, if_empty: bool, nowait: bool) -> None:
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


# -- exchanges --------------------------------------------------------------------------------------------


def declare_exchange(
    channel: Channel,
    ticket: int,
    name: str,
    type_name: str,
    passive: bool,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Declare an exchange, or with passive=true check whether it exists.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
    """
    principal = channel.host.principal
    if passive:
        exchanges.check_exists(principal, name)
    else:
        exchanges.declare(principal, name, type_name, durable, auto_delete, internal, arguments)
    if not nowait:
        channel.send(_EXCHANGE_DECLARE_OK)


def delete_exchange(channel: Channel, ticket: int, name: str, if_unused: bool, nowait: bool) -> None:
    """Delete an exchange and its bindings; an unknown name is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), PRECONDITION_FAILED (406) with if-unused if it is in use.
    """
    exchanges.delete(channel.host.principal, strip_line_ends(name), if_unused)
    if not nowait:
        channel.send(_EXCHANGE_DELETE_OK)


def bind_exchange(
    channel: Channel,
    ticket: int,
    destination: str,
    source: str,
    routing_key: str,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Bind an exchange to another one.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), PRECONDITION_FAILED (406).
        Unfinished: The binding gets a long history.
    """
    ends = _exchange_ends(source, destination)
    _give_history(channel, exchanges.bind(channel.host.principal, ends, routing_key, arguments).history)
    if not nowait:
        channel.send(_EXCHANGE_BIND_OK)


def unbind_exchange(
    channel: Channel,
    ticket: int,
    destination: str,
    source: str,
    routing_key: str,
    nowait: bool,
    arguments: FieldTable,
) -> None:
    """Delete a binding between exchanges; an unknown binding is ignored.

    Raises:
        ChannelFault: ACCESS_REFUSED (403).
    """
    exchanges.unbind(channel.host.principal, _exchange_ends(source, destination), routing_key, arguments)
    if not nowait:
        channel.send(_EXCHANGE_UNBIND_OK)


def _exchange_ends(source: str, destination: str) -> Ends:
    return Ends(strip_line_ends(source), strip_line_ends(destination), to_queue=False)


def _give_history(channel: Channel, history: Iterator[None]) -> None:
    """Run the steps that give a new binding its history; see Bound.

    Raises:
        Unfinished: It takes longer than a time slice. The method is handled again then, and finds its binding.
    """
    new_slice = channel.host.vhost.turn.slice

    def run() -> bool:
        time_slice = new_slice()
        return all(not time_slice.is_over() for _ in history)

    if not run():
        raise Unfinished(run)


METHODS: Final = {
    "queue.declare": declare_queue,
    "queue.bind": bind_queue,
    "queue.unbind": unbind_queue,
    "queue.purge": purge_queue,
    "queue.delete": delete_queue,
    "exchange.declare": declare_exchange,
    "exchange.delete": delete_exchange,
    "exchange.bind": bind_exchange,
    "exchange.unbind": unbind_exchange,
}
