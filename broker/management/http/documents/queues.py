"""Queues as JSON."""

from __future__ import annotations

from typing import Any, Final, cast

from leveret.broker.core.clients import ClientConsumer, ClientIdentity
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.message_stores.backing import StoreFigures
from leveret.broker.core.queues.ages import oldest_ready_age, oldest_unacked_age
from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.queues.delivery_count import delivery_limit
from leveret.broker.core.queues.explanation import describe_fill
from leveret.broker.core.queues.limits import UNBOUNDED
from leveret.broker.core.queues.queue import Queue, withheld_bytes, withheld_count
from leveret.broker.core.queues.queued_values import VALUE_BYTES
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.vhost_policies.policies import effective_definition
from leveret.broker.management.http.documents.clients import connection_details, consumer_document
from leveret.broker.management.http.documents.fields import PROCESS, iso_time
from leveret.broker.management.http.documents.losses import loss_stats
from leveret.broker.management.http.statistics import Rates, delivery_numbers, message_stats, numbers
from leveret.policies.dead_letter import REASONS
from leveret.policies.keys import KEYS
from leveret.policies.retry import read_retry
from leveret.policies.settings import resolve_setting
from leveret.protocol.field_table import find, plain_values
from leveret.protocol.properties import Properties
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import ReturnsStore

_FIELDS: Final = QueueCounters.FIELDS
_LENGTHS: Final = numbers(
    _FIELDS,
    "messages_ready",
    "messages_unacknowledged",
    messages=("messages_ready", "messages_unacknowledged"),
)
_MESSAGES: Final = (numbers(_FIELDS, "publish"), delivery_numbers(_FIELDS), numbers(_FIELDS, "drop", "refuse"))
_PUBLISH: Final = (_FIELDS.index("publish"),)
_DELIVER: Final = delivery_numbers(_FIELDS)["deliver_get"]
_ACK: Final = (_FIELDS.index("ack"),)

#: Reasons why messages leave a queue without being acknowledged.
_DROPS: Final = (*REASONS, "purged")
#: The field delta of a queue with nothing on disk.
_NO_DELTA: Final = ["delta", "undefined", 0, 0, "undefined"]


def short_queue(queue: Queue, node: str) -> dict[str, Any]:
    """Return a queue as it was declared."""
    document = {
        "name": queue.name,
        "vhost": queue.vhost_name,
        "type": queue.queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": table_to_json(queue.arguments),
        "node": node,
    }
    if queue.queue_type != "classic":
        document |= {"leader": node, "members": [node], "online": [node]}
    return document


def queue_without_stats(queue: Queue, node: str, with_totals: bool) -> dict[str, Any]:
    """Return a queue without statistics, optionally with its message counts."""
    document = {**short_queue(queue, node), "state": "running" if with_totals else "live"}
    if queue.policy is not None:
        document["policy"] = queue.policy.name
    if with_totals:
        ready, unacknowledged = queue.store.ready_count, queue.unacked_count
        document["messages"] = ready + unacknowledged + withheld_count(queue)
        document["messages_ready"] = ready
        document["messages_unacknowledged"] = unacknowledged
    return document


def queue_document(queue: Queue, node: str, rates: Rates) -> dict[str, Any]:
    """Return a queue with all fields except its consumers."""
    if isinstance(queue, StreamQueue):
        return stream_document(queue, node, rates)
    counters, figures = queue.counters, queue.figures()
    row = counters.row(queue.store.ready_count, queue.unacked_count)
    document = {
        **short_queue(queue, node),
        "state": "running",
        **_policies(queue),
        **_consumers(queue),
        **_sizes(queue, figures),
        **_delays(queue),
        **PROCESS,
        "memory": figures.memory,
        "dropped": {reason: counters.dropped[reason] for reason in _DROPS},
        "dead_lettered": {reason: counters.dead_lettered[reason] for reason in REASONS},
        "dead_letters_lost": {reason: counters.dead_letters_lost[reason] for reason in REASONS},
        "refused": counters.refused,
        "refused_told": counters.refused_told,
        "deduplicated": counters.deduplicated,
        "fill": _fill(queue),
        "storage": _storage(queue, figures),
        "oldest_ready_age": _rounded(oldest_ready_age(queue)),
        "oldest_unacked_age": _rounded(oldest_unacked_age(queue)),
    }
    rates.add_to(document, _LENGTHS, row, counters, "lengths")
    document["messages"] += withheld_count(queue)
    stats = message_stats(rates, _MESSAGES, row, counters)
    if stats:
        document["message_stats"] = stats
    lost = loss_stats(counters, rates, queue.retained_count)
    if lost:
        document["loss_stats"] = lost
    if queue.owner is not None:
        document["owner_pid_details"] = connection_details(cast("ClientIdentity", queue.owner))
    if queue.queue_type == "quorum":
        document |= {"open_files": {node: figures.segments}, "messages_dlx": queue.retained_count}
        document |= {"message_bytes_dlx": queue.outbox.retained_bytes, "delivery_limit": _delivery_limit(queue)}
    else:
        document |= _classic(queue, figures, rates, node)
        if counters.idle_since:
            document["idle_since"] = iso_time(counters.idle_since)
    return document


def stream_document(queue: StreamQueue, node: str, rates: Rates) -> dict[str, Any]:
    """Return a stream with all fields except its consumers.

    The fields are those of RabbitMQ, and ``stream``, ``storage`` and ``effective_arguments``.
    """
    counters, figures = queue.counters, queue.figures()
    row = counters.row(queue.store.ready_count, 0)
    count = len(queue.consumers)
    document = {
        **short_queue(queue, node),
        "state": "running",
        **_policies(queue),
        "consumers": count,
        "readers": {node: count},
        **PROCESS,
        "memory": figures.memory,
        "storage": _storage(queue, figures),
        "stream": _stream(queue, figures),
    }
    rates.add_to(document, _LENGTHS, row, counters, "lengths")
    stats = message_stats(rates, _MESSAGES, row, counters)
    if stats:
        document["message_stats"] = stats
    return document


def _stream(queue: StreamQueue, figures: StoreFigures) -> dict[str, Any]:
    """Return what only streams have: offsets, limits, and what these have removed since the start of the broker."""
    first, end = queue.stream.offsets
    settings = queue.settings
    return {
        "first_offset": first if end > first else None,
        "last_offset": end - 1 if end > first else None,
        "next_offset": end,
        "oldest": figures.oldest // 1000 or None,
        "segment_bytes": queue.backing.stream_segment_bytes,
        "max_length_bytes": settings.max_length_bytes,
        "max_age": settings.max_age,
        "removed_by_retention": queue.counters.outlived,
    }


def single_queue_document(queue: Queue, node: str, rates: Rates, consumer_timeout: int | None) -> dict[str, Any]:
    """Return a queue with all fields."""
    consumers = cast("list[ClientConsumer]", list(queue.consumers))
    return {
        **queue_document(queue, node, rates),
        "consumer_details": [consumer_document(consumer, node, consumer_timeout) for consumer in consumers],
        "deliveries": [],
        "incoming": [],
    }


def effective_arguments(queue: Queue) -> dict[str, Any]:
    """Return the effective settings of a queue as arguments: its arguments, policy and operator policy combined."""
    definition = effective_definition(queue.policy, queue.operator_policy)
    if not definition and not queue.arguments:
        return {}
    arguments = plain_values(queue.arguments)
    in_force = {}
    for name, key in KEYS.items():
        if queue.queue_type in key.queue_types:
            value = resolve_setting(name, queue.queue_type, arguments.get(key.argument), definition.get(name))
            if value is not None:
                in_force[key.argument] = value
    return in_force


def _policies(queue: Queue) -> dict[str, Any]:
    policy, operator_policy = queue.policy, queue.operator_policy
    return {
        "policy": None if policy is None else policy.name,
        "operator_policy": None if operator_policy is None else operator_policy.name,
        "effective_policy_definition": effective_definition(policy, operator_policy),
        "effective_arguments": effective_arguments(queue),
    }


def _consumers(queue: Queue) -> dict[str, Any]:
    consumers = queue.consumers
    count = len(consumers)
    capacity = queue.counters.capacity if count else 0
    active = consumers.active
    if queue.queue_type == "quorum":
        tags = {"single_active_consumer_ctag": None if active is None else active.tag}
    else:
        exclusive = next(iter(consumers)).tag if consumers.exclusive else None
        tags = {
            "single_active_consumer_tag": None if active is None else active.tag,
            "exclusive_consumer_tag": exclusive,
        }
    return {"consumers": count, "consumer_capacity": capacity, "consumer_utilisation": capacity, **tags}


def _sizes(queue: Queue, figures: StoreFigures) -> dict[str, Any]:
    ready = queue.store.ready_bytes
    return {
        "message_bytes": ready + queue.delivery.unacked_bytes + withheld_bytes(queue),
        "message_bytes_ready": ready,
        "message_bytes_unacknowledged": queue.delivery.unacked_bytes,
        "message_bytes_ram": figures.message_bytes_ram,
        "message_bytes_persistent": figures.message_bytes_persistent,
        "messages_ram": figures.messages_ram,
        "messages_persistent": figures.messages_persistent,
    }


def _delays(queue: Queue) -> dict[str, Any]:
    """Return the delays of returned messages, as RabbitMQ 4.3 shows them, and what waits."""
    retry = read_retry(queue.settings)
    waiting = queue.contents.waiting
    due = None if waiting is None else waiting.due_times()
    return {
        "delayed_retry": "disabled" if retry is None else str(retry),
        "messages_delayed": queue.contents.delayed_count,
        "message_bytes_delayed": queue.contents.delayed_bytes,
        # A message is never early, so times are rounded up.
        "next_delayed_at": None if due is None else -(-due[0] // 1000),
        "last_delayed_at": None if due is None else -(-due[1] // 1000),
    }


def _delivery_limit(queue: Queue) -> int | str:
    """Return the delivery limit in force on a quorum queue, as RabbitMQ 4 shows it."""
    limit = delivery_limit(queue.settings)
    return "unlimited" if limit == UNBOUNDED else limit


def _fill(queue: Queue) -> dict[str, Any] | None:
    settings = queue.settings
    is_limited = settings.max_length is not None or settings.max_length_bytes is not None
    return describe_fill(queue) if is_limited else None


def _storage(queue: Queue, figures: StoreFigures) -> dict[str, Any]:
    """Return the ready messages that are only on disk, the segments, and the time of the oldest segment."""
    ready_bytes_ram = figures.message_bytes_ram - queue.delivery.unacked_bytes
    return {
        "messages_disk": max(0, queue.store.ready_count - figures.messages_ready_ram),
        "message_bytes_disk": max(0, queue.store.ready_bytes - ready_bytes_ram),
        "segments": figures.segments,
        "segment_bytes": figures.disk_bytes,
        "oldest_segment": figures.oldest // 1000 or None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _classic(queue: Queue, figures: StoreFigures, rates: Rates, node: str) -> dict[str, Any]:
    """Return the fields that only classic queues have."""
    return {
        "messages_ready_ram": figures.messages_ready_ram,
        "messages_unacknowledged_ram": figures.messages_unacknowledged_ram,
        "messages_paged_out": figures.messages_paged_out,
        "message_bytes_paged_out": figures.message_bytes_paged_out,
        "head_message_timestamp": _head_timestamp(queue),
        "recoverable_slaves": None,
        "backing_queue_status": _backing_queue_status(queue, figures, rates, node),
    }


def _head_timestamp(queue: Queue) -> int | None:
    head = queue.store.peek() if queue.store.ready_count else None
    return None if head is None else Properties(head.envelope.header).timestamp()


def _backing_queue_status(queue: Queue, figures: StoreFigures, rates: Rates, node: str) -> dict[str, Any]:
    """Return the parts of a RabbitMQ queue: q3 and q4 are in memory, delta is on disk."""
    counters, ready, in_memory = queue.counters, queue.store.ready_count, figures.messages_ready_ram
    taken = max(0, counters.published - ready)
    on_disk = ready - in_memory
    is_lazy = queue.settings.queue_mode == "lazy"
    arguments = plain_values(queue.arguments)
    status = {
        "mode": queue.settings.queue_mode,
        "version": arguments.get("x-queue-version", 1),
        "len": ready,
        "q1": 0,
        "q2": 0,
        "q3": in_memory if is_lazy else 0,
        "q4": 0 if is_lazy else in_memory,
        "delta": ["delta", taken + in_memory, on_disk, 0, taken + ready] if on_disk else _NO_DELTA,
        "target_ram_count": "infinity",
        "next_seq_id": taken + ready,
        "next_deliver_seq_id": taken,
        "avg_ingress_rate": rates.rate(counters, _PUBLISH),
        "avg_egress_rate": rates.rate(counters, _DELIVER),
        "avg_ack_ingress_rate": rates.rate(counters, _DELIVER),
        "avg_ack_egress_rate": rates.rate(counters, _ACK),
    }
    values = queue.outbox.values
    if values.is_active:
        entries = len(values)
        info = {"bytes": entries * VALUE_BYTES, "entries": entries, "nodes": [node]}
        status["message_deduplication_cache_info"] = info
    priorities = find(queue.arguments, "x-max-priority")
    if priorities is not None and priorities.value:
        status["priority_lengths"] = {
            str(priority): _priority_length(queue, priority) for priority in range(priorities.value + 1)
        }
    return status


def _priority_length(queue: Queue, priority: int) -> int:
    """Return the number of ready messages of a priority, those included that have returned."""
    store = queue.store
    if not isinstance(store, PriorityStore):
        return 0
    levels = [priority, store.first_returned + priority] if isinstance(store, ReturnsStore) else [priority]
    return sum(store.levels[level].ready_count for level in levels if level in store.levels)
