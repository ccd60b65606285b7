"""Checks of the arguments of queues and consumers. Refusals are as Erlang prints them, because clients see that text.

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/queues#optional-arguments
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from leveret.policies.policy_keys import ARGUMENTS, MAX_TTL_MS
from leveret.policies.stream_arguments import consumer_name_error, stream_filter_error, stream_offset_error
from leveret.policies.value_checks import Values, integer

#: What is compared first when a stream is declared again.
_STREAM_FIRST: Final = ("x-max-length-bytes", "x-queue-type")
#: The largest x-stream-max-segment-size-bytes, and its default.
MAX_STREAM_SEGMENT_BYTES: Final = 3_000_000_000
DEFAULT_STREAM_SEGMENT_BYTES: Final = 500_000_000

QUEUE_TYPES: Final = frozenset(("classic", "quorum", "stream"))


def known_arguments(queue_type: str) -> tuple[str, ...]:
    """Return the names of the arguments that a queue type supports, in the order in which RabbitMQ compares them."""
    names = tuple(name for name, row in ARGUMENTS.items() if row.takes_argument(queue_type))
    if queue_type == "stream":
        # The only type with another order.
        rest = [name for name in names if name not in _STREAM_FIRST]
        return (*_STREAM_FIRST, *rest)
    return names


def compared_arguments(queue_type: str) -> tuple[str, ...]:
    """Return those of known_arguments() that are compared when a queue is declared again."""
    return tuple(name for name in known_arguments(queue_type) if ARGUMENTS[name].is_compared)


def queue_type_error(type_name: str, value: Any) -> str | None:
    """Return why a value is not a queue type; None if it is one."""
    return ARGUMENTS["x-queue-type"].values.argument_error(type_name, value)


def unsupported_argument(queue_type: str, names: Iterable[str]) -> str | None:
    """Return the first of these arguments that only other queue types support; None if there is none."""
    for name in names:
        row = ARGUMENTS.get(name)
        if row is not None and not row.takes_argument(queue_type):
            return name
    return None


def argument_error(name: str, values: Mapping[str, tuple[str, Any]]) -> str | None:
    """Return why an argument is refused; None if it is valid or unknown.

    Args:
        values: Type name and value of all arguments of the declaration.
    """
    type_name, value = values[name]
    row = ARGUMENTS.get(name)
    refusal = None
    if row is not None and row.is_checked:
        refusal = (row.argument_values or row.values).argument_error(type_name, value)
    if refusal is None and name == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in values:
        refusal = "routing_key_but_no_dlx_defined"
    return refusal


#: Takes the value's type name and the value; returns why it is refused, or None.
Check: TypeAlias = Callable[[str, Any], str | None]

_CLASSIC: Final = frozenset(("classic",))
_STREAM: Final = frozenset(("stream",))
_QUEUES: Final = frozenset(("classic", "quorum"))
#: Arguments of consumers: name, check, and the queue types that support it.
_CONSUMERS: Final[tuple[tuple[str, Check, frozenset[str]], ...]] = (
    ("x-priority", integer().argument_error, _QUEUES),
    ("x-cancel-on-ha-failover", Values("boolean").argument_error, _CLASSIC),
    ("x-consumer-timeout", integer(1, MAX_TTL_MS).argument_error, _QUEUES),
    ("x-stream-offset", stream_offset_error, _STREAM),
    ("x-stream-consumer-name", consumer_name_error, _STREAM),
    ("x-stream-filter", stream_filter_error, _STREAM),
    ("x-stream-match-unfiltered", Values("boolean").argument_error, _STREAM),
)


def refuse_consumer(queue_type: str, values: Mapping[str, tuple[str, Any]]) -> tuple[str, str | None] | None:
    """Return the argument for which a consumer is refused, and the reason; None if all are valid.

    The reason is None for an argument of other queue types.

    Args:
        queue_type: Type of the queue to consume from.
        values: Type name and value by argument, in the order in which they were sent.
    """
    for name, check, queue_types in _CONSUMERS:
        if name in values and queue_type in queue_types:
            refusal = check(*values[name])
            if refusal is not None:
                return name, refusal
    unsupported = {name for name, _, queue_types in _CONSUMERS if queue_type not in queue_types}
    return next(((name, None) for name in values if name in unsupported), None)
