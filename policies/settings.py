"""Effective settings of a queue: arguments, policy and operator policy merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.policies.keys import KEYS, Merge


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Effective settings of a queue; None if not set.

    Args:
        expires: Milliseconds without use after which the queue is deleted, 1 or more.
        dead_letter_exchange: Name of the exchange that gets dropped messages.
        dead_letter_routing_key: Routing key of dead letters; None for their own routing keys.
        message_ttl: Milliseconds after which a waiting message expires, 0 or more.
        max_length: Maximum number of messages, 0 or more.
        max_length_bytes: Maximum size of their bodies in bytes, 0 or more.
        overflow: ``drop-head``, ``reject-publish`` or ``reject-publish-dlx``.
        length_counts: ``ready`` or ``all``: whether the limits count unacked messages, too.
        queue_mode: ``default`` or ``lazy``.
        consumer_timeout: Milliseconds after which a consumer with an unacked delivery is cancelled, 1 or more.
        delivery_limit: Maximum number of redeliveries of a message, on quorum queues. As in RabbitMQ, an argument
            may be of any type.
        redelivery_limit: Maximum number of returns of a message, whatever the reason, 0 or more.
        delayed_retry_type: Which returned messages wait; see read_retry(). As in RabbitMQ, these arguments may be of
            any type.
        delayed_retry_min: Shortest delay in milliseconds.
        delayed_retry_max: Longest delay in milliseconds.
        delayed_retry_steps: Delays by the number of returns, for example ``1s,10s,1m``; comes before min and max.
        dead_letter_strategy: ``at-most-once`` or ``at-least-once``, on quorum queues.
        x_message_deduplication: See drops_duplicates. As in RabbitMQ, an argument may be of any type.
        max_age: Age after which a stream removes segments, such as ``7D``.
    """

    expires: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None
    message_ttl: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str = "drop-head"
    length_counts: str = "ready"
    queue_mode: str = "default"
    consumer_timeout: int | None = None
    delivery_limit: Any = None
    redelivery_limit: int | None = None
    delayed_retry_type: Any = None
    delayed_retry_min: Any = None
    delayed_retry_max: Any = None
    delayed_retry_steps: Any = None
    dead_letter_strategy: str = "at-most-once"
    x_message_deduplication: Any = None
    max_age: str | None = None

    @property
    def drops_duplicates(self) -> bool:
        """Whether a classic queue drops duplicates: unless the value is False."""
        return self.x_message_deduplication is not None and self.x_message_deduplication is not False


#: The settings of a queue without arguments and policies.
DEFAULT_SETTINGS: Final = QueueSettings()


def resolve_setting(name: str, queue_type: str, argument: Any, policy: Any) -> Any:
    """Return the effective value of one key.

    Args:
        name: A policy key.
        queue_type: Type of the queue.
        argument: Value of the queue argument; None without one.
        policy: Value in the merged policies; None without one.
    """
    if argument is None or policy is None:
        return policy if argument is None else argument
    merge = KEYS[name].merge_for(queue_type)
    if merge is Merge.MIN:
        return _least(argument, policy)
    return argument if merge is Merge.ARGUMENT else policy


def _least(argument: Any, policy: Any) -> Any:
    """Return the smaller value in Erlang's term order, where numbers come first: some arguments take any value."""
    is_number = isinstance(argument, int | float) and not isinstance(argument, bool)
    # Only x-delivery-limit may be negative, which is no limit.
    return min(argument, policy) if is_number and argument >= 0 else policy


def effective_settings(queue_type: str, arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> QueueSettings:
    """Merge arguments and policies.

    Args:
        queue_type: Type of the queue.
        arguments: Value by argument name, strings as str.
        definition: Merged definition of policy and operator policy.
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
