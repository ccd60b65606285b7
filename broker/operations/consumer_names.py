"""The named consumers of streams: look at them, set where one goes on, delete one. All need read permission."""

from __future__ import annotations

from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.policies.stream_offset import StreamPlace, consumer_name_error
from leveret.protocol.faults import ChannelFault, not_found, precondition_failed


def open_stream(principal: Principal, queue_name: str) -> StreamQueue:
    """Find a stream that the principal may read from.

    Args:
        principal: Who asks.
        queue_name: Name of the stream.
    Raises:
        ChannelFault: ACCESS_REFUSED (403), NOT_FOUND (404); PRECONDITION_FAILED (406) for another queue type.
    """
    queue = queues.open_for_reading(principal, queue_name)
    if not isinstance(queue, StreamQueue):
        where = f"queue '{queue_name}' in vhost '{principal.vhost.name}'"
        raise precondition_failed(f"{where} is no stream: its consumers have no names")
    return queue


def set_place(stream: StreamQueue, name: str, place: StreamPlace) -> bool:
    """Set where a name goes on; return whether it is new.

    Args:
        stream: The stream.
        name: The name.
        place: The place of its next message.
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


def delete(stream: StreamQueue, name: str) -> None:
    """Delete a name.

    Raises:
        ChannelFault: NOT_FOUND (404); PRECONDITION_FAILED (406): a consumer is active under the name.
    """
    if name not in stream.names.by_name:
        raise unknown(stream, name)
    _check_unused(stream, name)
    stream.delete_name(name)


def unknown(stream: StreamQueue, name: str) -> ChannelFault:
    """Return the fault for an unknown name: NOT_FOUND (404)."""
    return not_found(f"no consumer name '{name}' in queue '{stream.name}' in vhost '{stream.vhost_name}'")


def _check_unused(stream: StreamQueue, name: str) -> None:
    if stream.names.by_name[name].active is not None:
        where = f"queue '{stream.name}' in vhost '{stream.vhost_name}'"
        raise precondition_failed(f"consumer name '{name}' of {where} in use: stop its consumers first")
