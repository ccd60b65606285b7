"""What is in force on a queue and why, and how full it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from broker.core.export import policy_value
from broker.core.json_tables import table_to_json
from policies.explanation import explain_settings, passed_over
from policies.policy import Policy
from protocol.field_table import plain_values

if TYPE_CHECKING:
    from broker.core.policies import VirtualHostPolicies
    from broker.core.queues.queue import Queue

_AT_LIMIT: Final = {
    "drop-head": "the oldest messages are dropped",
    "reject-publish": "new messages are refused",
    "reject-publish-dlx": "new messages are refused and dead-lettered",
}


def explain_queue(queue: Queue, policies: VirtualHostPolicies) -> dict[str, Any]:
    """Explain one queue.

    Args:
        queue: The queue.
        policies: Those of its virtual host.
    Returns:
        What JSON can hold: policies in force and passed over, every setting with its reason, how full the queue is.
    """
    policy, operator_policy = queue.policy, queue.operator_policy
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
            for other, reason in passed_over(table.values(), queue.name, queue.queue_type)
        ],
        "settings": [asdict(setting) for setting in settings],
        "in_force": {setting.key: setting.in_force for setting in settings if setting.in_force is not None},
        "fill": describe_fill(queue),
    }


def describe_fill(queue: Queue) -> dict[str, Any]:
    """How full a queue is, against the limits in force; None where there is no limit."""
    ready, settings = queue.ready_count(), queue.settings
    ready_bytes = queue.store.ready_bytes
    shares = [_percent(ready, settings.max_length), _percent(ready_bytes, settings.max_length_bytes)]
    full = max((share for share in shares if share is not None), default=None)
    return {
        "messages_ready": ready,
        "max_length": settings.max_length,
        "messages_percent": shares[0],
        "message_bytes_ready": ready_bytes,
        "max_length_bytes": settings.max_length_bytes,
        "bytes_percent": shares[1],
        "percent": full,
        "overflow": settings.overflow,
        "at_limit": None if full is None else _AT_LIMIT[settings.overflow],
    }


def _percent(used: int, limit: int | None) -> float | None:
    if limit is None:
        return None
    return round(100 * used / limit, 1) if limit else 100.0


def _describe(policy: Policy | None) -> dict[str, Any] | None:
    return None if policy is None else {"name": policy.name, **policy_value(policy)}
