"""Predicts the effect of a policy on the queues of a virtual host without applying it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue, retention_limits
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.core.vhost_policies.policies import effective_definition
from leveret.policies.policy import Policy, find_policy
from leveret.policies.settings import DEFAULT_SETTINGS, QueueSettings, effective_settings
from leveret.protocol.field_table import plain_values


@dataclass(frozen=True, slots=True)
class Drop:
    """Messages that a queue would drop at once.

    Args:
        messages: Number of messages.
        body_bytes: Sum of their body lengths in bytes; a lower bound if the number is an estimate.
        is_estimate: Whether the number is estimated from the average size, because a limit in bytes applies.
    """

    messages: int
    body_bytes: int
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Effect of a policy on one queue that it matches, or on which its current version is in force.

    Args:
        queue: The queue.
        rival: Name of the other policy of the same kind that it would replace, or that would be in force instead; None
            if there is none.
        is_in_force: Whether the new policy would be in force.
        changes: Settings that would change: values before and after, by key.
        drop: Messages that would be dropped at once.
        matches: Whether the new version matches; otherwise the rival or no policy would be in force.
        dead_letters_to: Existing exchange that would get the dropped messages; None if there is none.
        missing_exchange: The dead-letter exchange of the settings, if it does not exist; else None.
        after: The settings that the queue would have.
    """

    queue: Queue
    rival: str | None
    is_in_force: bool
    changes: dict[str, tuple[Any, Any]]
    drop: Drop
    matches: bool = True
    dead_letters_to: str | None = None
    missing_exchange: str | None = None
    after: QueueSettings = DEFAULT_SETTINGS


def preview_policy(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[Preview]:
    """Preview every queue that a policy would match, or on which its current version is in force.

    Args:
        vhost: The virtual host of the policy.
        policy: The new or changed policy.
        operator: Whether it is an operator policy.
    """
    table = {**vhost.policies.table(operator), policy.name: policy}
    for queue in list(vhost.queues.values()):
        current = queue.operator_policy if operator else queue.policy
        matches = policy.matches(queue.name, queue.queue_type)
        if matches or (current is not None and current.name == policy.name):
            first = find_policy(table.values(), queue.name, queue.queue_type)
            yield _preview(vhost, queue, policy, first, operator, matches)


def _preview(
    vhost: VirtualHost, queue: Queue, policy: Policy, first: Policy | None, operator: bool, matches: bool
) -> Preview:
    current = queue.operator_policy if operator else queue.policy
    rival = current if first is policy else first
    rival_name = None if rival is None or rival.name == policy.name else rival.name
    pair = (queue.policy, first) if operator else (first, queue.operator_policy)
    new = effective_settings(queue.queue_type, plain_values(queue.arguments), effective_definition(*pair))
    # Dropped messages are dead-lettered by the new settings.
    exchange, missing = new.dead_letter_exchange, None
    if exchange not in vhost.topology.exchanges:
        exchange, missing = None, exchange
    changes = _changes(queue.settings, new)
    return Preview(queue, rival_name, first is policy, changes, _drop(queue, new), matches, exchange, missing, new)


def _changes(before: QueueSettings, after: QueueSettings) -> dict[str, tuple[Any, Any]]:
    new = asdict(after)
    return {
        field.replace("_", "-"): (value, new[field]) for field, value in asdict(before).items() if value != new[field]
    }


def _drop(queue: Queue, new: QueueSettings) -> Drop:
    """Predict drops. As in RabbitMQ, new limits apply with the current overflow behaviour, or else with the new one."""
    if isinstance(queue, StreamQueue):
        removed = queue.stream.excess(*retention_limits(new, queue.host.timers.now()))
        return Drop(removed.messages, removed.body_bytes, False)
    settings = replace(new, overflow=queue.settings.overflow)
    both = [queue.traits.limits(each, queue.contents.unacked, queue.contents.waiting) for each in (settings, new)]
    limits = next((made for made in both if made is not None and not made.refuses), None)
    if limits is None or new == queue.settings:
        return Drop(0, 0, False)
    ready = queue.ready_count()
    size = queue.store.ready_bytes / ready if ready else 0.0
    by_count, excess = max(0, limits.excess_messages(queue.store)), max(0, limits.excess_bytes(queue.store))
    by_bytes = min(ready, -int(-excess // size)) if size else 0
    if by_bytes > by_count:
        return Drop(by_bytes, excess, True)
    return Drop(by_count, round(by_count * size), False)
