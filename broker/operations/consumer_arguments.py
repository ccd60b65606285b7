"""Checks and reads the arguments of consumers."""

from __future__ import annotations

from typing import Any, NamedTuple

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_readers import StreamFilter
from leveret.policies.argument_checks import refuse_consumer
from leveret.policies.stream_arguments import StreamPlace, read_stream_filter, read_stream_offset
from leveret.protocol.faults import precondition_failed
from leveret.protocol.field_table import TYPE_NAMES, FieldTable


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
    return ConsumerArguments(int(priority), timeout_ms, place, consumer_name.decode(), _read_filter(values))


def _read_filter(values: dict[str, tuple[str, Any]]) -> StreamFilter | None:
    wanted = read_stream_filter(*values["x-stream-filter"]) if "x-stream-filter" in values else None
    if wanted is None:
        return None
    return StreamFilter(wanted, bool(values.get("x-stream-match-unfiltered", ("", False))[1]))
