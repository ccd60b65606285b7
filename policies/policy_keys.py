"""The settings of queues and exchanges: each policy key and queue argument is one row.

Rows are in the order in which RabbitMQ checks the arguments of a queue; those that it does not have are last. They are
used by validation, merging, HTTP API, command line and documentation. Refusals of arguments are as Erlang prints them,
because clients see that text.

Source: RabbitMQ 3.10.8, observed; https://www.rabbitmq.com/docs/parameters#policies and
https://www.rabbitmq.com/docs/queues#optional-arguments for newer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias

from leveret.policies.stream_arguments import consumer_name_error, stream_filter_error, stream_offset_error
from leveret.policies.value_checks import TYPES, Values, integer, one_of
from leveret.protocol.erlang_terms import format_json

#: Ten years of 365 days, the largest TTL in milliseconds.
MAX_TTL_MS: Final = 315_360_000_000


class Merge(Enum):
    """Rule that decides between a policy's value and a queue argument's value."""

    MIN = "the smaller one counts"
    ARGUMENT = "the argument comes before the policy"
    POLICY = "the policy comes before the argument"


class Operator(Enum):
    """Rule that decides between the values of a policy and an operator policy."""

    MIN = "the smaller one counts"
    MAX = "the larger one counts"
    REPLACES = "the operator policy comes before the policy"


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy key, a queue argument, or both; the field of QueueSettings has the same name.

    Args:
        values: Values that it takes.
        queue_types: Queue types that support it; empty for a key of exchanges.
        summary: Its purpose in one sentence.
        refusal: Name of the setting in the error text for an invalid value in a policy; if it begins with "must", all
            of the text behind the key and before the value. Empty if it is no policy key.
        merge: Rule for the key and the argument.
        merge_of_type: Other rules for some queue types.
        operator: Rule for policy and operator policy; None if operator policies may not contain it.
        unfit: Queue types for which a policy with this key is skipped as a whole.
        argument_values: Values that the argument takes; None for those of the key.
        argument_types: Queue types that have the argument; None for those of the key.
        is_checked: Whether the value of an argument is checked with all others when a queue is declared.
        is_compared: Whether declaring the queue again compares the argument.
    """

    name: str
    values: Values
    queue_types: frozenset[str]
    summary: str
    refusal: str = ""
    merge: Merge = Merge.ARGUMENT
    merge_of_type: Mapping[str, Merge] = field(default_factory=dict)
    operator: Operator | None = None
    unfit: frozenset[str] = frozenset()
    argument_values: Values | None = None
    argument_types: frozenset[str] | None = None
    is_checked: bool = True
    is_compared: bool = True

    @property
    def argument(self) -> str:
        """Name of the corresponding queue argument."""
        return self.name if self.name.startswith("x-") else f"x-{self.name}"

    @property
    def field(self) -> str:
        """Name of the field of QueueSettings."""
        return self.name.replace("-", "_")

    def refuse(self, value: Any) -> str:
        """Return the error text for an invalid value in a policy."""
        if self.refusal.startswith("must"):
            return f'"{self.name}" {self.refusal}, got {format_json(value)}'
        return f"{format_json(value)} is not a valid {self.refusal}"

    def merge_for(self, queue_type: str) -> Merge:
        """Return the rule for the key and the argument of a queue of this type."""
        return self.merge_of_type.get(queue_type, self.merge)

    def takes_argument(self, queue_type: str) -> bool:
        """Return whether queues of a type have the argument."""
        return queue_type in (self.queue_types if self.argument_types is None else self.argument_types)


_C: Final = frozenset(("classic",))
_Q: Final = frozenset(("quorum",))
_S: Final = frozenset(("stream",))
_NONE: Final[frozenset[str]] = frozenset()
_LEAST: Final = Merge.MIN
_POLICY: Final = Merge.POLICY

_MILLISECONDS: Final = "milliseconds"
_STRING: Final = Values("string")
_ONE_NODE: Final = "Accepted for compatibility with RabbitMQ; no effect, as there is one node."
_OWN_MEMORY: Final = "Accepted for compatibility with RabbitMQ; no effect, as the broker manages memory itself."

_ROWS: Final = (
    Setting(
        "expires",
        integer(1, unit=_MILLISECONDS),
        _C | _Q,
        "Time without use after which the queue is deleted. Use is a consumer, a get or a declaration.",
        "queue expiry",
        _LEAST,
        {"quorum": _POLICY},
        Operator.MIN,
        _S,
        integer(1, MAX_TTL_MS, _MILLISECONDS),
    ),
    Setting(
        "message-ttl",
        integer(0, unit=_MILLISECONDS),
        _C | _Q,
        "Time after which a waiting message is dropped or dead-lettered.",
        "message TTL",
        _LEAST,
        operator=Operator.MIN,
        unfit=_S,
        argument_values=integer(0, MAX_TTL_MS, _MILLISECONDS),
    ),
    Setting(
        "dead-letter-exchange",
        _STRING,
        _C | _Q,
        "Exchange that gets messages that the queue drops: over its limit, expired or rejected.",
        "dead letter exchange name",
        unfit=_S,
    ),
    Setting(
        "dead-letter-routing-key",
        _STRING,
        _C | _Q,
        "Routing key of dead letters; by default their own routing keys.",
        "dead letter routing key",
        unfit=_S,
    ),
    Setting(
        "dead-letter-strategy",
        one_of("at-most-once", "at-least-once", refusal="invalid_dlx_strategy"),
        _Q,
        "at-least-once keeps dead letters until a queue has confirmed them; requires overflow reject-publish.",
        "dead letter strategy",
        unfit=_C | _S,
    ),
    Setting(
        "max-length",
        integer(0, unit="messages"),
        _C | _Q,
        "Maximum number of ready messages; overflow sets what happens beyond it, length-counts what counts.",
        "maximum length",
        _LEAST,
        operator=Operator.MIN,
        unfit=_S,
    ),
    Setting(
        "max-length-bytes",
        integer(0, unit="bytes"),
        _C | _Q | _S,
        "Maximum size of the bodies of ready messages; overflow sets what happens beyond it."
        " Streams: of the files; the oldest segments are removed.",
        "maximum length in bytes",
        _LEAST,
        {"stream": _POLICY},
        Operator.MIN,
    ),
    Setting(
        "max-in-memory-length",
        integer(0, unit="messages"),
        _Q,
        _OWN_MEMORY,
        "maximum memory in bytes",
        operator=Operator.MIN,
        unfit=_S,
    ),
    Setting(
        "max-in-memory-bytes",
        integer(0, unit="bytes"),
        _Q,
        _OWN_MEMORY,
        "maximum memory in bytes",
        operator=Operator.MIN,
        unfit=_S,
    ),
    Setting(
        "max-priority",
        integer(0, 255, refusal="{max_value_exceeded,%s}"),
        _C,
        "Highest priority that the queue distinguishes; messages of higher priority are delivered first.",
    ),
    Setting(
        "overflow",
        one_of("drop-head", "reject-publish", "reject-publish-dlx", refusal="invalid_overflow"),
        _C | _Q,
        "At the length limit: drop the oldest messages, reject new ones, or reject and dead-letter them.",
        "overflow value",
        merge_of_type={"quorum": _POLICY},
        operator=Operator.REPLACES,
        unfit=_S,
    ),
    Setting(
        "queue-mode",
        one_of("default", "lazy", refusal="\"unsupported queue mode '%s'\""),
        _C,
        "lazy keeps ready messages on disk only, which takes almost no memory.",
        "queue-mode value",
        unfit=_Q | _S,
    ),
    Setting(
        "queue-version",
        one_of(1, 2, refusal="\"unsupported queue version '%s'\""),
        _C,
        "Accepted for compatibility with RabbitMQ; no effect, as there is one store format.",
        "queue-version value",
        operator=Operator.REPLACES,
    ),
    Setting(
        "single-active-consumer",
        Values("boolean"),
        _C | _Q,
        "Only one consumer at a time gets messages; when it is cancelled, the next one takes over.",
    ),
    Setting(
        "delivery-limit",
        integer(0, unit="deliveries"),
        _Q,
        "Redeliveries after which a message is dropped or dead-lettered.",
        "delivery limit",
        _LEAST,
        operator=Operator.MIN,
        unfit=_C | _S,
        is_checked=False,
    ),
    Setting(
        "max-age",
        # RabbitMQ closes the connection if there is no digit in front.
        Values("age", refusal="invalid_max_age"),
        _S,
        "Streams: age after which whole segments are removed, for example 7D.",
        "max age",
        _POLICY,
        unfit=_C | _Q,
    ),
    Setting(
        "stream-max-segment-size-bytes",
        # Larger ones in arguments are refused later, with another text.
        integer(0, 3_000_000_000, unit="bytes", refusal=""),
        _S,
        "Streams: size of the segments in which messages are removed, for new streams.",
        "segment size",
        _POLICY,
        unfit=_C | _Q,
    ),
    Setting("initial-cluster-size", integer(1, unit="nodes"), _S, _ONE_NODE, "cluster size", unfit=_C | _Q),
    Setting("quorum-initial-group-size", integer(1, unit="nodes"), _Q, _ONE_NODE),
    Setting(
        "queue-leader-locator",
        one_of("client-local", "balanced", "random", "least-leaders", refusal="invalid_queue_locator_arg"),
        _Q | _S,
        _ONE_NODE,
        "queue leader locator value",
        unfit=_C,
    ),
    Setting(
        "queue-type",
        one_of("classic", "quorum", "stream", refusal="\"unsupported queue type '%s'\""),
        _C | _Q | _S,
        "Type of the queue; classic by default.",
        is_checked=False,
    ),
    Setting(
        "queue-master-locator",
        one_of("client-local", "min-masters", "random"),
        _C,
        _ONE_NODE,
        is_checked=False,
    ),
    # Not in RabbitMQ 3.10; 4.3 has the timeout for quorum queues.
    Setting(
        "consumer-timeout",
        integer(1, unit=_MILLISECONDS),
        _C | _Q,
        "Time after which a consumer is cancelled that has not acknowledged a delivery; its messages return.",
        "consumer timeout",
        operator=Operator.MIN,
        unfit=_S,
        argument_values=integer(1, MAX_TTL_MS, _MILLISECONDS),
    ),
    Setting(
        "length-counts",
        one_of("ready", "all", refusal="invalid_length_counts"),
        _C | _Q,
        "What length limits count: ready messages, or all, with those that consumers have not acknowledged.",
        "length-counts value",
        operator=Operator.REPLACES,
        unfit=_S,
    ),
    Setting(
        "redelivery-limit",
        integer(0, unit="deliveries"),
        _C | _Q,
        "Returns of any kind after which a message is dropped or dead-lettered; on classic queues, too.",
        "redelivery limit",
        _LEAST,
        operator=Operator.MIN,
        unfit=_S,
    ),
    # As in RabbitMQ 4.3, which has them for quorum queues, wrong values in arguments mean that nothing is delayed.
    Setting(
        "delayed-retry-type",
        one_of(*TYPES),
        _C | _Q,
        "Which returned messages wait before they are redelivered: failed, returned, or all; by default none.",
        f"delayed retry type. Must be one of: {', '.join(TYPES)}",
        _POLICY,
        operator=Operator.REPLACES,
        unfit=_S,
        is_checked=False,
    ),
    Setting(
        "delayed-retry-min",
        integer(1, unit=_MILLISECONDS),
        _C | _Q,
        "Delay of the first redelivery; later ones take as many times as long as the message has failed.",
        "delayed retry minimum delay. Must be a positive integer",
        _LEAST,
        operator=Operator.MAX,
        unfit=_S,
        is_checked=False,
    ),
    Setting(
        "delayed-retry-max",
        integer(1, unit=_MILLISECONDS),
        _C | _Q,
        "Longest delay of a redelivery; by default delayed-retry-min.",
        "delayed retry maximum delay. Must be a positive integer",
        _LEAST,
        operator=Operator.MIN,
        unfit=_S,
        is_checked=False,
    ),
    Setting(
        "delayed-retry-steps",
        Values("delays", refusal="\"expected delays such as 1s,10s,1m, got '%s'\""),
        _C | _Q,
        "Delays of the first, second and later redeliveries; the last one repeats. Comes before min and max.",
        "list of delayed retry steps. Must be delays such as 1s,10s,1m",
        _POLICY,
        operator=Operator.REPLACES,
        unfit=_S,
    ),
    # Of RabbitMQ's plugin rabbitmq_message_deduplication, which neither checks nor compares the argument.
    Setting(
        "x-message-deduplication",
        Values("boolean"),
        _C,
        "Drops a message if the value of its header x-deduplication-header is in the queue; classic queues only.",
        "must be a boolean",
        _POLICY,
        argument_types=_C | _Q | _S,
        is_checked=False,
        is_compared=False,
    ),
    # Of exchanges.
    Setting(
        "alternate-exchange",
        _STRING,
        _NONE,
        "Exchange that gets the messages that no binding matches.",
        "alternate exchange name",
    ),
    Setting(
        "max-delayed",
        integer(0, unit="messages"),
        _NONE,
        "Maximum number of messages that wait in an exchange x-delayed-message; more are refused.",
        "maximum number of delayed messages",
    ),
    Setting(
        "x-cache-size",
        integer(1, unit="values"),
        _NONE,
        "Maximum number of header values that an exchange x-message-deduplication remembers.",
        "must be an integer greater than 0",
    ),
    Setting(
        "x-cache-ttl",
        integer(1, unit=_MILLISECONDS),
        _NONE,
        "Time for which an exchange x-message-deduplication remembers a header value.",
        "must be an integer greater than 0",
    ),
    Setting(
        "x-cache-persistence",
        one_of("memory", "disk"),
        _NONE,
        "Whether what an exchange x-message-deduplication remembers survives a restart.",
        'must be either "disk" or "memory"',
    ),
)

#: The rows that are policy keys, by key.
KEYS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS if row.refusal}
#: The rows that are queue arguments, by argument.
ARGUMENTS: Final[Mapping[str, Setting]] = {row.argument: row for row in _ROWS if row.queue_types}


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
