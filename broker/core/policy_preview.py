"""What a policy would do to the queues of a virtual host, found out without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from broker.core.policies import effective_definition
from policies.policy import Policy, winner
from policies.settings import QueueSettings, effective_settings
from protocol.field_table import plain_values

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue
    from broker.core.vhost import VirtualHost


@dataclass(frozen=True, slots=True)
class Drop:
    """What a queue would drop at once.

    Args:
        messages: How many.
        body_bytes: Bytes of their bodies, at the least where the number is an estimate.
        is_estimate: The number is worked out from the average size: the limit that bites is one of bytes.
    """

    messages: int
    body_bytes: int
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """What a policy would do to one queue whose name and type it matches.

    Args:
        queue: The queue.
        rival: Name of the policy of the same kind that is in force now and would give way, or that would stay in
            force; None if there is none.
        is_in_force: Whether the new policy would be in force.
        changes: Settings that would change: value before and after, by key.
        drop: What would go at once.
    """

    queue: Queue
    rival: str | None
    is_in_force: bool
    changes: dict[str, tuple[Any, Any]]
    drop: Drop


def preview_policy(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[Preview]:
    """Look at every queue that a policy would match.

    Args:
        vhost: Where it would be set.
        policy: The policy, new or in place of the one of its name.
        operator: Whether it is an operator policy.
    """
    table = {**vhost.policies.table(operator), policy.name: policy}
    for queue in list(vhost.queues.values()):
        if policy.matches(queue.name, queue.queue_type):
            yield _preview(queue, policy, winner(table.values(), queue.name, queue.queue_type), operator)


def _preview(queue: Queue, policy: Policy, first: Policy | None, operator: bool) -> Preview:
    current = queue.operator_policy if operator else queue.policy
    rival = None if current is None or current.name == policy.name else current.name
    if first is not policy:
        return Preview(queue, None if first is None else first.name, False, {}, Drop(0, 0, False))
    pair = (queue.policy, policy) if operator else (policy, queue.operator_policy)
    new = effective_settings(queue.queue_type, plain_values(queue.arguments), effective_definition(*pair))
    return Preview(queue, rival, True, _changes(queue.settings, new), _drop(queue, new))


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, tuple[Any, Any]]:
    changed = {}
    for field in QueueSettings.__dataclass_fields__:
        values = getattr(before, field), getattr(after, field)
        if values[0] != values[1]:
            changed[field.replace("_", "-")] = values
    return changed


def _drop(queue: Queue, new: QueueSettings) -> Drop:
    """What the queue would drop: limits shrink it under the overflow of before or the new one, as in RabbitMQ."""
    settings = replace(new, overflow=queue.settings.overflow)
    limits = next((made for made in map(queue.make_limits, (settings, new)) if not made.refuses), None)
    if limits is None or (new.max_length is None and new.max_length_bytes is None) or new == queue.settings:
        return Drop(0, 0, False)
    ready = queue.ready_count()
    size = queue.store.ready_bytes / ready if ready else 0.0
    by_count, excess = max(0, limits.excess_messages(queue.store)), max(0, limits.excess_bytes(queue.store))
    by_bytes = min(ready, -int(-excess // size)) if size else 0
    if by_bytes > by_count:
        return Drop(by_bytes, excess, True)
    return Drop(by_count, round(by_count * size), False)
