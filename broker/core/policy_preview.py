"""What a policy would do to the queues of a virtual host, found out without doing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leveret.broker.core.policies import effective_definition
from leveret.policies.policy import Policy, winner
from leveret.policies.settings import QueueSettings, effective_settings
from leveret.protocol.field_table import plain_values

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.core.vhost import VirtualHost


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
    """What a policy would do to one queue: one that it matches, or on which its earlier form is in force.

    Args:
        queue: The queue.
        rival: Name of the policy of the same kind that is in force now and would give way, or that would stay in
            force; None if there is none.
        is_in_force: Whether the new policy would be in force.
        changes: Settings that would change: value before and after, by key.
        drop: What would go at once.
        matches: Whether it matches; otherwise the queue would lose it, and have its rival or no policy.
        dead_letters_to: Exchange that would get what goes at once; None if there is none of that name.
    """

    queue: Queue
    rival: str | None
    is_in_force: bool
    changes: dict[str, tuple[Any, Any]]
    drop: Drop
    matches: bool = True
    dead_letters_to: str | None = None


def preview_policy(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[Preview]:
    """Look at every queue that a policy would match, or matched before it was changed.

    Args:
        vhost: Where it would be set.
        policy: The policy, new or in place of the one of its name.
        operator: Whether it is an operator policy.
    """
    table = {**vhost.policies.table(operator), policy.name: policy}
    for queue in list(vhost.queues.values()):
        current = queue.operator_policy if operator else queue.policy
        matches = policy.matches(queue.name, queue.queue_type)
        if matches or (current is not None and current.name == policy.name):
            first = winner(table.values(), queue.name, queue.queue_type)
            yield _preview(vhost, queue, policy, first, operator, matches)


def _preview(
    vhost: VirtualHost, queue: Queue, policy: Policy, first: Policy | None, operator: bool, matches: bool
) -> Preview:
    current = queue.operator_policy if operator else queue.policy
    rival = current if first is policy else first
    rival_name = None if rival is None or rival.name == policy.name else rival.name
    pair = (queue.policy, first) if operator else (first, queue.operator_policy)
    new = effective_settings(queue.queue_type, plain_values(queue.arguments), effective_definition(*pair))
    # Dead letters go where the new settings say.
    exchange = new.dead_letter_exchange if new.dead_letter_exchange in vhost.topology.exchanges else None
    changes = _changes(queue.settings, new)
    return Preview(queue, rival_name, first is policy, changes, _drop(queue, new), matches, exchange)


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
