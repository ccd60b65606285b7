"""What is in force on a queue: its arguments, its policy and its operator policy taken together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leveret.policies.keys import KEYS, Merge


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Effective settings of one queue. None: not set.

    Args:
        expires: Milliseconds without use after which the queue is deleted, 1 or more.
        dead_letter_exchange: Name of the exchange that gets what the queue drops.
        dead_letter_routing_key: Replaces the messages' own routing keys on the way there.
        message_ttl: Milliseconds that a message may wait, 0 or more.
        max_length: Ready messages that may wait, 0 or more.
        max_length_bytes: Body bytes of ready messages that may wait, 0 or more.
        overflow: ``drop-head``, ``reject-publish`` or ``reject-publish-dlx``.
        queue_mode: ``default`` or ``lazy``.
        delivery_limit: Redeliveries that a message may have, on quorum queues.
        dead_letter_strategy: ``at-most-once`` or ``at-least-once``, on quorum queues.
    """

    expires: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    message_ttl: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    queue_mode: str = "default"
    delivery_limit: int | None = None
    dead_letter_strategy: str = "at-most-once"


def resolve_setting(name: str, queue_type: str, argument: Any, policy: Any) -> Any:
    """The value in force for one key.

    Args:
        name: A policy key.
        queue_type: Type of the queue.
        argument: Value of the argument; None without one.
        policy: Value in the merged policies; None without one.
    """
    if argument is None or policy is None:
        return policy if argument is None else argument
    merge = KEYS[name].merge_for(queue_type)
    if merge is Merge.MIN:
        return _least(argument, policy)
    return argument if merge is Merge.ARGUMENT else policy


def _least(argument: Any, policy: Any) -> Any:
    """The smaller of both, as Erlang orders terms: some arguments take any value, and numbers come first."""
    is_number = isinstance(argument, int | float) and not isinstance(argument, bool)
    return min(argument, policy) if is_number else policy


def effective_settings(queue_type: str, arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> QueueSettings:
    """Take arguments and policies together.

    Args:
        queue_type: Type of the queue.
        arguments: Value by argument name, strings as str.
        definition: Policy and operator policy, merged.
    """
    values = {}
    for field in QueueSettings.__dataclass_fields__:
        name = field.replace("_", "-")
        key = KEYS[name]
        if queue_type not in key.queue_types:
            continue
        value = resolve_setting(name, queue_type, arguments.get(key.argument), definition.get(name))
        if value is not None:
            values[field] = value
    return QueueSettings(**values)
