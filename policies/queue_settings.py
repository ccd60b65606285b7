"""Effective settings of a queue: arguments, policy and operator policy merged; and what they say on delayed returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.policies.policy_keys import KEYS, Merge
from leveret.policies.value_checks import ALL, FAILED, LONGEST, RETURNED, format_delay, parse_steps


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
    # Only a delivery-limit may be negative, which is no limit.
    if not is_number or argument < 0:
        return policy
    return argument if policy < 0 else min(argument, policy)


def effective_settings(queue_type: str, arguments: Mapping[str, Any], definition: Mapping[str, Any]) -> QueueSettings:
    """Merge arguments and policies.

    Args:
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


@dataclass(frozen=True, slots=True)
class DelayedRetry:
    """How long a message waits that returns to its queue: the keys delayed-retry-type, -min, -max and -steps.

    Source: RabbitMQ 4.3 for quorum queues; delayed-retry-steps is our own.

    Args:
        kind: ``all``, ``failed`` or ``returned``.
        least: Delay of the first retry in milliseconds; 0 if there are steps.
        most: Longest delay in milliseconds; 0 if there are steps.
        steps: Delays by the number of returns, in milliseconds; the last one is repeated. Empty: the delay is `least`
            times the delivery count.
    """

    kind: str
    least: int
    most: int
    steps: tuple[int, ...] = ()

    def delay(self, failed: bool, count: int, returns: int) -> int:
        """Return for how many milliseconds a message waits; 0 if it returns at once.

        Args:
            failed: Whether it was rejected, or its channel has ended.
            count: Its delivery count, after this return.
            returns: How often it has returned, whatever the reason, this return included.
        """
        if self.kind != ALL and failed is not (self.kind == FAILED):
            return 0
        if self.steps:
            return self.steps[min(max(returns, 1), len(self.steps)) - 1]
        return min(self.least * max(1, count), self.most)

    def __str__(self) -> str:
        if self.steps:
            return f"{self.kind} (steps: {', '.join(map(format_delay, self.steps))})"
        return f"{self.kind} (min: {self.least}ms, max: {self.most}ms)"


def read_retry(settings: QueueSettings) -> DelayedRetry | None:
    """Return the delays in force; None if there are none. As in RabbitMQ, arguments may have any value."""
    steps = parse_steps(settings.delayed_retry_steps) or ()
    kind = settings.delayed_retry_type
    if kind is None and steps:
        kind = ALL
    if kind not in (ALL, FAILED, RETURNED):
        return None
    if steps:
        return DelayedRetry(kind, 0, 0, steps)
    least = _positive(settings.delayed_retry_min)
    if not least:
        return None
    return DelayedRetry(kind, least, _positive(settings.delayed_retry_max) or least)


def _positive(value: Any) -> int:
    """Return a positive integer; 0 for anything else."""
    is_positive = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return min(value, LONGEST) if is_positive else 0
