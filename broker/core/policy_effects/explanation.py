"""Explanation of the effective settings of a queue, and its fill level."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from leveret.broker.core.definitions.exporting import policy_value
from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.policies import VirtualHostPolicies
from leveret.policies.explanation import Source, explain_setting, explain_settings, ineffective_policies
from leveret.policies.keys import KEYS
from leveret.policies.policy import Policy
from leveret.protocol.field_table import find, plain_values

_AT_LIMIT: Final = {
    "drop-head": "the oldest messages are dropped",
    "reject-publish": "new messages are refused",
    "reject-publish-dlx": "new messages are refused and dead-lettered",
}
_STREAM_AT_LIMIT: Final = "the oldest segments are removed"


def explain_queue(queue: Queue, policies: VirtualHostPolicies) -> dict[str, Any]:
    """Return the effective settings of a queue with their sources, and its fill level.

    Args:
        queue: The queue.
        policies: The policies of its virtual host.
    Returns:
        A JSON object: applied and skipped policies, every setting with its source, the dead-letter exchange if it does
        not exist, and the fill level.
    """
    policy, operator_policy = queue.policy, queue.operator_policy
    # Applies eviction, expiry and deliveries that are due.
    queue.ready_count()
    settings = explain_settings(
        queue.queue_type,
        plain_values(queue.arguments),
        {} if policy is None else policy.definition,
        {} if operator_policy is None else operator_policy.definition,
    )
    return {
        "name": queue.name,
        "vhost": queue.vhost_name,
        "type": queue.queue_type,
        "arguments": table_to_json(queue.arguments),
        "policy": _describe(policy),
        "operator_policy": _describe(operator_policy),
        "passed_over": [
            {"kind": kind, "name": other.name, "reason": reason}
            for kind, table in (("policy", policies.policies), ("operator policy", policies.operator_policies))
            for other, reason in ineffective_policies(table.values(), queue.name, queue.queue_type)
        ],
        "settings": [asdict(setting) for setting in settings],
        "in_force": {setting.key: setting.in_force for setting in settings if setting.in_force is not None},
        "missing_exchange": policies.missing_letter_exchange(queue),
        "fill": describe_fill(queue),
    }


def describe_fill(queue: Queue) -> dict[str, Any]:
    """Return the fill level of a queue with its limits and their sources; None where there is no limit.

    Ready messages count, those that wait for their retry, and unacked ones if ``length_counts`` is ``all``; of their
    bytes only the bodies. Of a stream the files count.
    """
    settings = queue.settings
    counted, counted_bytes = _counted(queue)
    by_count, by_bytes = _percent(counted, settings.max_length), _percent(counted_bytes, settings.max_length_bytes)
    full = _larger(by_count, by_bytes)
    at_limit = _STREAM_AT_LIMIT if queue.traits.keeps_messages else _AT_LIMIT[queue.traits.overflow(settings)]
    return {
        "length_counts": settings.length_counts,
        "messages_counted": counted,
        "message_bytes_counted": counted_bytes,
        "messages_ready": queue.store.ready_count,
        "max_length": settings.max_length,
        "max_length_source": _source(queue, "max-length", settings.max_length),
        "messages_percent": by_count,
        "message_bytes_ready": queue.store.ready_bytes,
        "max_length_bytes": settings.max_length_bytes,
        "max_length_bytes_source": _source(queue, "max-length-bytes", settings.max_length_bytes),
        "bytes_percent": by_bytes,
        "percent": full,
        "overflow": settings.overflow,
        "at_limit": None if full is None else at_limit,
    }


def fill_percent(queue: Queue) -> float | None:
    """Return the fill level in percent of the limit that is closest to being reached.

    Returns:
        None without limits; also for a stream, as removing the oldest messages is what its limits are for.
    """
    settings = queue.settings
    if queue.traits.keeps_messages:
        return None
    counted, counted_bytes = _counted(queue)
    return _larger(_percent(counted, settings.max_length), _percent(counted_bytes, settings.max_length_bytes))


def _counted(queue: Queue) -> tuple[int, int]:
    """Return the number of messages that count for the limits, and the bytes of their bodies."""
    store, contents = queue.store, queue.contents
    if queue.traits.keeps_messages:
        return store.ready_count, queue.figures().disk_bytes
    count, body_bytes = store.ready_count + contents.delayed_count, store.ready_bytes + contents.delayed_bytes
    if queue.settings.length_counts != "all":
        return count, body_bytes
    return count + queue.unacked_count, body_bytes + queue.delivery.unacked_bytes


def _source(queue: Queue, name: str, in_force: int | None) -> Source | None:
    """Return the source of a limit."""
    if in_force is None:
        return None
    key = KEYS[name]
    argument = find(queue.arguments, key.argument)
    values = [
        None if policy is None else policy.definition.get(name) for policy in (queue.policy, queue.operator_policy)
    ]
    return explain_setting(key, queue.queue_type, None if argument is None else argument.value, *values).source


def _percent(used: int, limit: int | None) -> float | None:
    if limit is None:
        return None
    return round(100 * used / limit, 1) if limit else 100.0


def _larger(a: float | None, b: float | None) -> float | None:
    """Return the larger of two values, of which either may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _describe(policy: Policy | None) -> dict[str, Any] | None:
    return None if policy is None else {"name": policy.name, **policy_value(policy)}
