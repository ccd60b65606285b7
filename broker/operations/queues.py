"""Declares, deletes and purges queues, opens them for reading, and reads the arguments and names of their consumers.

In all functions ``owner`` is the connection, which may use its exclusive queues; it is None over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.declaration_checks import check_not_locked, check_unreserved
from leveret.broker.core.queues.queue import Holder, Queue, QueueDeclaration
from leveret.broker.core.queues.stream_queue import StreamFilter, StreamQueue
from leveret.broker.core.vhosts.event_fields import counted_fields
from leveret.broker.core.vhosts.topology import generate_name, strip_line_ends
from leveret.broker.operations.principal import Principal
from leveret.policies.policy_keys import refuse_consumer
from leveret.policies.stream_arguments import (
    StreamPlace,
    consumer_name_error,
    read_stream_filter,
    read_stream_offset,
)
from leveret.protocol.faults import ChannelFault, not_found, not_implemented, precondition_failed, resource_locked
from leveret.protocol.field_table import TYPE_NAMES, FieldTable
from leveret.storage.interface import Entry

# -- declaring --------------------------------------------------------------------------------------------


def declare(
    principal: Principal,
    name: str,
    durable: bool,
    auto_delete: bool,
    arguments: FieldTable,
    owner: object | None = None,
) -> Queue:
    """Declare a queue. Without a name it gets a generated one.

    Args:
        owner: The connection if the queue is exclusive, else None.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
        ConnectionFault: NOT_IMPLEMENTED (540) for unsupported queue types.
    """
    name = strip_line_ends(name)
    server_named = not name
    if server_named:
        name = principal.generated = principal.generated or generate_name("amq.gen")
    else:
        check_unreserved(name)
    principal.check("configure", "queue", name)
    declaration = QueueDeclaration(name, durable, auto_delete, owner, arguments, server_named)
    queue = principal.vhost.declare_queue(declaration, partial(_check_dead_letters, principal, name))
    principal.generated = ""
    return queue


def _check_dead_letters(principal: Principal, name: str, exchange: str) -> None:
    """Require the permissions for a dead-letter exchange: read on the queue, write on the exchange."""
    principal.check("read", "queue", name)
    principal.check("write", "exchange", exchange)


def find(principal: Principal, name: str, owner: object | None = None) -> Queue:
    """Find a queue on which the principal has any permission (passive declaration).

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    principal.check_any("queue", name)
    return principal.vhost.queue(name, owner)


# -- deleting ---------------------------------------------------------------------------------------------


def delete(
    principal: Principal,
    name: str,
    if_unused: bool,
    if_empty: bool,
    owner: object | None = None,
    accepted: Callable[[int], None] = lambda ready: None,
) -> None:
    """Delete a queue; an unknown name is accepted. One that could not be restored is deleted with its messages.

    Args:
        if_unused: Refuse a queue with consumers.
        if_empty: Refuse a queue with messages that are ready or wait for their retry, and one that could not be
            restored.
        owner: The connection; None over HTTP.
        accepted: Called before the deletion, which cancels consumers, with the number of these messages.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), RESOURCE_LOCKED (405), PRECONDITION_FAILED (406) for a condition.
        ConnectionFault: NOT_IMPLEMENTED (540) for a condition that the queue type does not support.
    """
    vhost = principal.vhost
    principal.check("configure", "queue", name)
    queue = vhost.queues.get(name)
    if queue is None:
        if if_empty and vhost.unrestored.has("queue", name):
            raise _not_deleted(principal, name, "not empty")
        vhost.unrestored.delete("queue", name)
        accepted(0)
        return
    check_not_locked(queue, owner)
    if (if_unused or if_empty) and not queue.traits.supports_conditional_delete:
        raise not_implemented(
            f"cannot delete queue '{name}' in vhost '{vhost.name}'. queue.delete operations with"
            f" {'if-unused' if if_unused else 'if-empty'} flag set are not supported by {queue.queue_type} queues"
        )
    if queue.traits.keeps_messages:
        # As in RabbitMQ, a stream is deleted whatever the conditions, and the answer counts no messages.
        accepted(0)
        vhost.delete_queue(queue)
        return
    ready = queue.ready_count() + queue.delayed_count + queue.backing.unreadable_count
    if if_empty and ready:
        raise _not_deleted(principal, name, "not empty")
    if if_unused and len(queue.consumers):
        raise _not_deleted(principal, name, "in use")
    accepted(ready)
    vhost.delete_queue(queue)


def _not_deleted(principal: Principal, name: str, state: str) -> Exception:
    return precondition_failed(f"queue '{name}' in vhost '{principal.vhost.name}' {state}")


# -- reading ----------------------------------------------------------------------------------------------


def open_for_reading(principal: Principal, name: str, owner: object | None = None) -> Queue:
    """Find a queue that the principal may read from.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
    """
    principal.check("read", "queue", name)
    return principal.vhost.queue(name, owner)


def open_for_browse(principal: Principal, name: str) -> Queue:
    """Find a queue whose messages the principal may look at; it may be exclusive to a connection.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404).
    """
    principal.check("read", "queue", name)
    queue = principal.vhost.queues.get(name)
    return principal.vhost.queue(name, None) if queue is None else queue


def open_for_get(principal: Principal, name: str, owner: object | None = None) -> ClassicQueue:
    """Find a queue whose messages the principal may get.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405) for an exclusive queue, and for a
            type of queue that keeps its messages for the single active consumer.
        ConnectionFault: NOT_IMPLEMENTED (540) for a stream.
    """
    queue = _refuse_stream(open_for_reading(principal, name, owner), "basic.get")
    _refuse_single_active(queue)
    return queue


def open_for_move(principal: Principal, source_name: str, target_name: str) -> tuple[ClassicQueue, Queue]:
    """Find two queues between which the principal may move messages.

    Raises:
        ChannelFault: As open_for_get(), for either queue.
    """
    principal.check("read", "queue", source_name)
    principal.check("write", "queue", target_name)
    source = open_for_get(principal, source_name)
    target = principal.vhost.queue(target_name, None)
    _refuse_single_active(target)
    return source, target


def open_for_removal(principal: Principal, name: str, queue_id: int) -> ClassicQueue:
    """Find a queue of which the principal may delete single messages.

    Args:
        queue_id: Its number on disk, as a reader of the data directory has seen it.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405). PRECONDITION_FAILED (406): the queue
            has another number.
        ConnectionFault: NOT_IMPLEMENTED (540) for a stream.
    """
    queue = _refuse_stream(open_for_reading(principal, name), "deleting messages is")
    if queue.backing.qid != queue_id:
        where = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
        if queue.backing.qid is None:
            raise precondition_failed(f"{where} is in memory, so its messages have no keys")
        raise precondition_failed(
            f"{where} has the queue_id {queue.backing.qid}, the keys have {queue_id}: they are of another queue, or of"
            " one of this name that was deleted since"
        )
    return queue


def _refuse_stream(queue: Queue, method: str) -> ClassicQueue:
    """Refuse a method that takes messages out of a queue, if it is a stream."""
    if not isinstance(queue, ClassicQueue):
        where = f"queue '{queue.name}' in vhost '{queue.vhost_name}'"
        raise not_implemented(f"{method} not supported by stream queues {where}")
    return queue


def _refuse_single_active(queue: Queue) -> None:
    if queue.consumers.single_active and not queue.traits.allows_get_with_single_active:
        raise resource_locked(
            f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost_name}'. basic.get operations"
            f" are not supported by {queue.queue_type} queues with single active consumer"
        )


def get(queue: ClassicQueue, holder: Holder | None, counters: ChannelCounters) -> Entry | None:
    """Take the message at the head of a queue, and count it.

    Args:
        queue: The queue; see open_for_get().
        holder: Holds the message until it is settled; None if it needs no acknowledgement.
    Returns:
        The message; None if the queue is empty.
    """
    entry = queue.get(holder)
    if entry is None:
        counters.get_empty += 1
        return None
    if holder is None:
        counters.get_no_ack += 1
    else:
        counters.get += 1
    counters.redeliver += entry[2]
    return entry


def purge(principal: Principal, name: str, owner: object | None = None) -> int:
    """Drop the ready messages of a queue; return their number.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404), RESOURCE_LOCKED (405).
        ConnectionFault: NOT_IMPLEMENTED (540) for a stream.
    """
    queue = _refuse_stream(open_for_reading(principal, name, owner), "queue.purge")
    purged = queue.purge()
    principal.vhost.events.tell("queue.purged", counted_fields, queue, purged)
    return purged


# -- consuming --------------------------------------------------------------------------------------------


class ConsumerArguments(NamedTuple):
    """The arguments of a consumer.

    Attributes:
        priority: Its priority.
        timeout_ms: Its acknowledgement timeout in milliseconds; that of the queue if it has none of its own, and None
            if neither has one.
        place: Where it begins in a stream; None if it does not say.
        name: Its name in a stream; empty for none.
        wanted: Its filter in a stream; None for all messages.
    """

    priority: int
    timeout_ms: int | None
    place: StreamPlace | None
    name: str
    wanted: StreamFilter | None


def read_consumer_arguments(queue: Queue, arguments: FieldTable) -> ConsumerArguments:
    """Check and return the arguments of a consumer.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406): one of them is refused.
    """
    values: dict[str, tuple[str, Any]] = {}
    for key, field in arguments:
        values.setdefault(key, (TYPE_NAMES[field.kind], field.value))
    refused = refuse_consumer(queue.queue_type, values)
    if refused is not None:
        name, reason = refused
        why = f" of queue type rabbit_{queue.queue_type}_queue" if reason is None else f": {reason}"
        raise precondition_failed(f"invalid arg '{name}' for queue '{queue.name}' in vhost '{queue.vhost_name}'{why}")
    _, priority = values.get("x-priority", ("", 0))
    _, timeout_ms = values.get("x-consumer-timeout", ("", queue.settings.consumer_timeout))
    place = read_stream_offset(*values["x-stream-offset"]) if "x-stream-offset" in values else None
    consumer_name: bytes = values.get("x-stream-consumer-name", ("", b""))[1]
    timeout_ms = None if timeout_ms is None else int(timeout_ms)
    return ConsumerArguments(int(priority), timeout_ms, place, consumer_name.decode(), _read_stream_filter(values))


def _read_stream_filter(values: dict[str, tuple[str, Any]]) -> StreamFilter | None:
    wanted = read_stream_filter(*values["x-stream-filter"]) if "x-stream-filter" in values else None
    if wanted is None:
        return None
    return StreamFilter(wanted, bool(values.get("x-stream-match-unfiltered", ("", False))[1]))


# -- named consumers of streams: all need read permission --------------------------------------------------


def open_stream(principal: Principal, queue_name: str) -> StreamQueue:
    """Find a stream that the principal may read from.

    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404); PRECONDITION_FAILED (406) for another queue type.
    """
    queue = open_for_reading(principal, queue_name)
    if not isinstance(queue, StreamQueue):
        where = f"queue '{queue_name}' in vhost '{principal.vhost.name}'"
        raise precondition_failed(f"{where} is no stream: its consumers have no names")
    return queue


def set_consumer_name(stream: StreamQueue, name: str, place: StreamPlace) -> bool:
    """Set where a name goes on; return whether it is new.

    Raises:
        ChannelFault: PRECONDITION_FAILED (406): a consumer is active under the name, it is no valid name, or there are
            too many.
        ConnectionFault: RESOURCE_ERROR (506): it cannot be stored.
    """
    is_new = name not in stream.names.by_name
    if is_new:
        refusal = consumer_name_error("longstr", name.encode("utf-8", "surrogateescape"))
        if refusal is not None:
            raise precondition_failed(f"invalid consumer name: {refusal}")
    else:
        _check_unused(stream, name)
    stream.set_name(name, place)
    return is_new


def delete_consumer_name(stream: StreamQueue, name: str) -> None:
    """Delete a name.

    Raises:
        ChannelFault: NOT_FOUND (404); PRECONDITION_FAILED (406): a consumer is active under the name.
    """
    if name not in stream.names.by_name:
        raise unknown_consumer_name(stream, name)
    _check_unused(stream, name)
    stream.delete_name(name)


def unknown_consumer_name(stream: StreamQueue, name: str) -> ChannelFault:
    """Return the fault for an unknown name: NOT_FOUND (404)."""
    return not_found(f"no consumer name '{name}' in queue '{stream.name}' in vhost '{stream.vhost_name}'")


def _check_unused(stream: StreamQueue, name: str) -> None:
    if stream.names.by_name[name].active is not None:
        where = f"queue '{stream.name}' in vhost '{stream.vhost_name}'"
        raise precondition_failed(f"consumer name '{name}' of {where} in use: stop its consumers first")
