"""Queue and consumer arguments, and the values that they take.

The rows are in the order in which RabbitMQ checks the arguments; those that it does not have are last. A row's check
returns the reason for a refusal as Erlang prints it, because clients see that text.

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/queues#optional-arguments
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leveret.policies.ages import age_seconds
from leveret.policies.retry_values import parse_steps
from leveret.policies.stream_filter import stream_filter_error
from leveret.policies.stream_offset import consumer_name_error, stream_offset_error
from leveret.policies.values import Values, integer, one_of

#: Names of AMQP's integer types in error texts.
INTEGER_TYPES: Final = frozenset(("byte", "unsignedbyte", "short", "unsignedshort", "signedint", "unsignedint", "long"))
#: Ten years of 365 days, the largest TTL in milliseconds.
MAX_TTL_MS: Final = 315_360_000_000

#: Takes the value's type name and the value; returns why it is refused, or None.
Check: TypeAlias = Callable[[str, Any], str | None]


@dataclass(frozen=True, slots=True)
class Argument:
    """A queue or consumer argument.

    Args:
        name: Name, with ``x-``.
        check: Checks type and range.
        queue_types: Queue types that support it.
        values: Values that forms offer; None for those of the policy key of the same name.
        summary: Its purpose in one sentence; empty for that of the policy key of the same name.
        compared: Whether declaring the queue again compares it.
    """

    name: str
    check: Check
    queue_types: frozenset[str]
    values: Values | None = None
    summary: str = ""
    compared: bool = True


def _integer(type_name: str, value: Any) -> str | None:
    return None if type_name in INTEGER_TYPES else f'"expected integer, got {type_name}"'


def _non_negative(type_name: str, value: Any) -> str | None:
    refusal = _integer(type_name, value)
    if refusal is None and value < 0:
        refusal = f"{{value_negative,{value}}}"
    return refusal


def _ttl(type_name: str, value: Any) -> str | None:
    refusal = _non_negative(type_name, value)
    if refusal is None and value > MAX_TTL_MS:
        refusal = f"{{value_too_large,{value}}}"
    return refusal


def _expires(type_name: str, value: Any) -> str | None:
    return _positive(type_name, value) or _ttl(type_name, value)


def _positive(type_name: str, value: Any) -> str | None:
    refusal = _non_negative(type_name, value)
    return "{value_zero,0}" if refusal is None and value == 0 else refusal


def _max_priority(type_name: str, value: Any) -> str | None:
    refusal = _non_negative(type_name, value)
    if refusal is None and value > 255:
        refusal = f"{{max_value_exceeded,{value}}}"
    return refusal


def _of_type(wanted: str) -> Check:
    def check(type_name: str, value: Any) -> str | None:
        return None if type_name == wanted else f"{{unacceptable_type,{type_name}}}"

    return check


def _one_of(values: frozenset[Any], refusal: str, wanted: str = "longstr") -> Check:
    """Return a check for one of some strings; the refusal may contain the value as ``%s``."""
    is_wanted = _of_type(wanted)

    def check(type_name: str, value: Any) -> str | None:
        wrong_type = is_wanted(type_name, value)
        if wrong_type is None and value not in values:
            shown = value.decode("utf-8", "surrogateescape")
            return refusal % shown if "%s" in refusal else refusal
        return wrong_type

    return check


def _max_age(type_name: str, value: Any) -> str | None:
    refusal = _of_type("longstr")(type_name, value)
    if refusal is None and age_seconds(value.decode("latin-1")) is None:
        # RabbitMQ closes the connection if there is no digit in front.
        refusal = "invalid_max_age"
    return refusal


def _queue_version(type_name: str, value: Any) -> str | None:
    refusal = _non_negative(type_name, value)
    if refusal is None and value not in (1, 2):
        refusal = f"\"unsupported queue version '{value}'\""
    return refusal


def _delays(type_name: str, value: Any) -> str | None:
    if type_name != "longstr":
        return f"{{unacceptable_type,{type_name}}}"
    text = value.decode("utf-8", "surrogateescape")
    return None if parse_steps(text) else f"\"expected delays such as 1s,10s,1m, got '{text}'\""


def _accept(type_name: str, value: Any) -> str | None:
    return None


_CLASSIC: Final = frozenset(("classic",))
_QUORUM: Final = frozenset(("quorum",))
_STREAM: Final = frozenset(("stream",))
_QUEUES: Final = _CLASSIC | _QUORUM
_REPLICATED: Final = _QUORUM | _STREAM

_ROWS: Final = (
    Argument("x-expires", _expires, _QUEUES, integer(1, MAX_TTL_MS, "milliseconds")),
    Argument("x-message-ttl", _ttl, _QUEUES, integer(0, MAX_TTL_MS, "milliseconds")),
    Argument("x-dead-letter-exchange", _of_type("longstr"), _QUEUES),
    Argument("x-dead-letter-routing-key", _of_type("longstr"), _QUEUES),
    Argument(
        "x-dead-letter-strategy",
        _one_of(frozenset((b"at-most-once", b"at-least-once")), "invalid_dlx_strategy"),
        _QUORUM,
    ),
    Argument("x-max-length", _non_negative, _QUEUES),
    Argument("x-max-length-bytes", _non_negative, _QUEUES | _STREAM),
    Argument("x-max-in-memory-length", _non_negative, _QUORUM),
    Argument("x-max-in-memory-bytes", _non_negative, _QUORUM),
    Argument(
        "x-max-priority",
        _max_priority,
        _CLASSIC,
        integer(0, 255),
        "Highest priority that the queue distinguishes; messages of higher priority are delivered first.",
    ),
    Argument(
        "x-overflow",
        _one_of(frozenset((b"drop-head", b"reject-publish", b"reject-publish-dlx")), "invalid_overflow"),
        _QUEUES,
    ),
    Argument(
        "x-queue-mode",
        _one_of(frozenset((b"default", b"lazy")), "\"unsupported queue mode '%s'\""),
        _CLASSIC,
    ),
    Argument("x-queue-version", _queue_version, _CLASSIC),
    Argument(
        "x-single-active-consumer",
        _of_type("bool"),
        _QUEUES,
        Values("boolean"),
        "Only one consumer at a time gets messages; when it is cancelled, the next one takes over.",
    ),
    Argument("x-delivery-limit", _accept, _QUORUM),
    Argument("x-max-age", _max_age, _STREAM),
    Argument("x-stream-max-segment-size-bytes", _non_negative, _STREAM),
    Argument(
        "x-initial-cluster-size",
        _positive,
        _STREAM,
        integer(1, unit="nodes"),
        "Accepted for compatibility with RabbitMQ; no effect, as there is one node.",
    ),
    Argument(
        "x-quorum-initial-group-size",
        _positive,
        _QUORUM,
        integer(1, unit="nodes"),
        "Accepted for compatibility with RabbitMQ; no effect, as there is one node.",
    ),
    Argument(
        "x-queue-leader-locator",
        _one_of(frozenset((b"client-local", b"balanced", b"random", b"least-leaders")), "invalid_queue_locator_arg"),
        _REPLICATED,
    ),
    Argument(
        "x-queue-type",
        _accept,
        _QUEUES | _STREAM,
        one_of("classic", "quorum", "stream"),
        "Type of the queue; classic by default.",
    ),
    Argument(
        "x-queue-master-locator",
        _accept,
        _CLASSIC,
        one_of("client-local", "min-masters", "random"),
        "Accepted for compatibility with RabbitMQ; no effect, as there is one node.",
    ),
    # Not in RabbitMQ 3.10; 4.3 has the timeout for quorum queues.
    Argument("x-consumer-timeout", _expires, _QUEUES, integer(1, MAX_TTL_MS, "milliseconds")),
    Argument("x-length-counts", _one_of(frozenset((b"ready", b"all")), "invalid_length_counts"), _QUEUES),
    Argument("x-redelivery-limit", _non_negative, _QUEUES),
    # As in RabbitMQ 4.3, which has them for quorum queues, wrong values mean that nothing is delayed.
    Argument("x-delayed-retry-type", _accept, _QUEUES),
    Argument("x-delayed-retry-min", _accept, _QUEUES),
    Argument("x-delayed-retry-max", _accept, _QUEUES),
    Argument("x-delayed-retry-steps", _delays, _QUEUES),
    # Of RabbitMQ's plugin rabbitmq_message_deduplication, which neither checks nor compares it.
    Argument(
        "x-message-deduplication",
        _accept,
        _QUEUES | _STREAM,
        Values("boolean"),
        "Drops a message if the value of its header x-deduplication-header is in the queue; classic queues only.",
        compared=False,
    ),
)

ARGUMENTS: Final[Mapping[str, Argument]] = {row.name: row for row in _ROWS}

#: What is compared first when a stream is declared again.
_STREAM_FIRST: Final = ("x-max-length-bytes", "x-queue-type")
#: The largest x-stream-max-segment-size-bytes, and its default.
MAX_STREAM_SEGMENT_BYTES: Final = 3_000_000_000
DEFAULT_STREAM_SEGMENT_BYTES: Final = 500_000_000

QUEUE_TYPES: Final = frozenset(("classic", "quorum", "stream"))
_queue_type: Final = _one_of(frozenset(name.encode() for name in QUEUE_TYPES), "\"unsupported queue type '%s'\"")


def known_arguments(queue_type: str) -> tuple[str, ...]:
    """Return the names of the arguments that a queue type supports, in the order in which RabbitMQ compares them."""
    names = tuple(row.name for row in _ROWS if queue_type in row.queue_types)
    if queue_type == "stream":
        # The only type with another order.
        rest = [name for name in names if name not in _STREAM_FIRST]
        return (*_STREAM_FIRST, *rest)
    return names


def compared_arguments(queue_type: str) -> tuple[str, ...]:
    """Return those of known_arguments() that are compared when a queue is declared again."""
    return tuple(name for name in known_arguments(queue_type) if ARGUMENTS[name].compared)


def queue_type_error(type_name: str, value: Any) -> str | None:
    """Return why a value is not a queue type; None if it is one."""
    return _queue_type(type_name, value)


def unsupported_argument(queue_type: str, names: Iterable[str]) -> str | None:
    """Return the first of these arguments that only other queue types support; None if there is none."""
    for name in names:
        row = ARGUMENTS.get(name)
        if row is not None and queue_type not in row.queue_types:
            return name
    return None


def argument_error(name: str, values: Mapping[str, tuple[str, Any]]) -> str | None:
    """Return why an argument is refused; None if it is valid or unknown.

    Args:
        name: Name of the argument.
        values: Type name and value of all arguments of the declaration.
    """
    type_name, value = values[name]
    row = ARGUMENTS.get(name)
    refusal = row.check(type_name, value) if row else None
    if refusal is None and name == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in values:
        refusal = "routing_key_but_no_dlx_defined"
    return refusal


_CONSUMER_ROWS: Final = (
    Argument("x-priority", _integer, _QUEUES),
    Argument("x-cancel-on-ha-failover", _of_type("bool"), _CLASSIC),
    Argument("x-consumer-timeout", _expires, _QUEUES),
    Argument("x-stream-offset", stream_offset_error, _STREAM),
    Argument("x-stream-consumer-name", consumer_name_error, _STREAM),
    Argument("x-stream-filter", stream_filter_error, _STREAM),
    Argument("x-stream-match-unfiltered", _of_type("bool"), _STREAM),
)


def refuse_consumer(queue_type: str, values: Mapping[str, tuple[str, Any]]) -> tuple[str, str | None] | None:
    """Return the argument for which a consumer is refused, and the reason; None if all are valid.

    The reason is None for an argument of other queue types.

    Args:
        queue_type: Type of the queue to consume from.
        values: Type name and value by argument, in the order in which they were sent.
    """
    for row in _CONSUMER_ROWS:
        if row.name in values and queue_type in row.queue_types:
            refusal = row.check(*values[row.name])
            if refusal is not None:
                return row.name, refusal
    unsupported = {row.name for row in _CONSUMER_ROWS if queue_type not in row.queue_types}
    return next(((name, None) for name in values if name in unsupported), None)
