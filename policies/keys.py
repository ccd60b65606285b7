"""Table of policy keys, used by validation, merging, HTTP API, command line and documentation.

Source: RabbitMQ 3.10.8, observed, and https://www.rabbitmq.com/docs/parameters#policies for newer keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from leveret.policies.mirroring import MIRRORING_KEYS, refuse_locator, refuse_mirroring
from leveret.policies.retry_values import DISABLED, TYPES
from leveret.policies.values import Values, integer, one_of
from leveret.protocol.erlang_terms import format_json, format_list, format_tuple


class Merge(Enum):
    """Rule that decides between a policy's value and a queue argument's value."""

    MIN = "the smaller one counts"
    ARGUMENT = "the argument comes before the policy"
    POLICY = "the policy comes before the argument"


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """A policy key.

    Args:
        name: Name of the key.
        valid: Values that it takes.
        refusal: Name of the setting in the error text for an invalid value; if it begins with "must", all of the text
            behind the key and before the value.
        queue_types: Queue types that support it; empty for a key of exchanges.
        merge: Rule for the key and the argument of a classic queue.
        quorum_merge: The same for a quorum queue; None if it is the same rule.
        stream_merge: The same for a stream.
        operator: Whether an operator policy may contain it.
        unfit: Queue types for which a policy with this key is skipped as a whole.
        summary: Its purpose in one sentence.
    """

    name: str
    valid: Values
    refusal: str
    queue_types: frozenset[str]
    merge: Merge = Merge.ARGUMENT
    quorum_merge: Merge | None = None
    operator: bool = False
    unfit: frozenset[str] = frozenset()
    summary: str = ""
    stream_merge: Merge | None = None

    @property
    def argument(self) -> str:
        """Name of the corresponding queue argument."""
        return self.name if self.name.startswith("x-") else f"x-{self.name}"

    @property
    def field(self) -> str:
        """Name of the field of QueueSettings."""
        return self.name.replace("-", "_")

    def refuse(self, value: Any) -> str:
        """Return the error text for an invalid value."""
        if self.refusal.startswith("must"):
            return f'"{self.name}" {self.refusal}, got {format_json(value)}'
        return f"{format_json(value)} is not a valid {self.refusal}"

    def merge_for(self, queue_type: str) -> Merge:
        """Return the rule for the key and the argument of a queue of this type."""
        if queue_type == "quorum" and self.quorum_merge is not None:
            return self.quorum_merge
        if queue_type == "stream" and self.stream_merge is not None:
            return self.stream_merge
        return self.merge


_C: Final = frozenset(("classic",))
_Q: Final = frozenset(("quorum",))
_S: Final = frozenset(("stream",))
_NONE: Final[frozenset[str]] = frozenset()

_MILLISECONDS: Final = "milliseconds"
_STRING: Final = Values("string")

_ROWS: Final = (
    PolicyKey(
        "alternate-exchange",
        _STRING,
        "alternate exchange name",
        _NONE,
        summary="Exchange that gets the messages that no binding matches.",
    ),
    PolicyKey(
        "max-delayed",
        integer(0, unit="messages"),
        "maximum number of delayed messages",
        _NONE,
        summary="Maximum number of messages that wait in an exchange x-delayed-message; more are refused.",
    ),
    PolicyKey(
        "x-cache-size",
        integer(1, unit="values"),
        "must be an integer greater than 0",
        _NONE,
        summary="Maximum number of header values that an exchange x-message-deduplication remembers.",
    ),
    PolicyKey(
        "x-cache-ttl",
        integer(1, unit=_MILLISECONDS),
        "must be an integer greater than 0",
        _NONE,
        summary="Time for which an exchange x-message-deduplication remembers a header value.",
    ),
    PolicyKey(
        "x-cache-persistence",
        one_of("memory", "disk"),
        'must be either "disk" or "memory"',
        _NONE,
        summary="Whether what an exchange x-message-deduplication remembers survives a restart.",
    ),
    PolicyKey(
        "x-message-deduplication",
        Values("boolean"),
        "must be a boolean",
        _C,
        Merge.POLICY,
        summary="Drops a message if the value of its header x-deduplication-header is in the queue already.",
    ),
    PolicyKey(
        "expires",
        integer(1, unit=_MILLISECONDS),
        "queue expiry",
        _C | _Q,
        Merge.MIN,
        Merge.POLICY,
        operator=True,
        unfit=_S,
        summary="Time without use after which the queue is deleted. Use is a consumer, a get or a declaration.",
    ),
    PolicyKey(
        "dead-letter-exchange",
        _STRING,
        "dead letter exchange name",
        _C | _Q,
        unfit=_S,
        summary="Exchange that gets messages that the queue drops: over its limit, expired or rejected.",
    ),
    PolicyKey(
        "dead-letter-routing-key",
        _STRING,
        "dead letter routing key",
        _C | _Q,
        unfit=_S,
        summary="Routing key of dead letters; by default their own routing keys.",
    ),
    PolicyKey(
        "dead-letter-strategy",
        one_of("at-most-once", "at-least-once"),
        "dead letter strategy",
        _Q,
        unfit=_C | _S,
        summary="at-least-once keeps dead letters until a queue has confirmed them; requires overflow reject-publish.",
    ),
    PolicyKey(
        "message-ttl",
        integer(0, unit=_MILLISECONDS),
        "message TTL",
        _C | _Q,
        Merge.MIN,
        operator=True,
        unfit=_S,
        summary="Time after which a waiting message is dropped or dead-lettered.",
    ),
    PolicyKey(
        "max-length",
        integer(0, unit="messages"),
        "maximum length",
        _C | _Q,
        Merge.MIN,
        operator=True,
        unfit=_S,
        summary="Maximum number of ready messages; overflow sets what happens beyond it, length-counts what counts.",
    ),
    PolicyKey(
        "max-length-bytes",
        integer(0, unit="bytes"),
        "maximum length in bytes",
        _C | _Q | _S,
        Merge.MIN,
        operator=True,
        summary="Maximum size of the bodies of ready messages; overflow sets what happens beyond it."
        " Streams: of the files; the oldest segments are removed.",
        stream_merge=Merge.POLICY,
    ),
    PolicyKey(
        "max-in-memory-length",
        integer(0, unit="messages"),
        "maximum memory in bytes",
        _Q,
        operator=True,
        unfit=_S,
        summary="Accepted for compatibility with RabbitMQ; no effect, as the broker manages memory itself.",
    ),
    PolicyKey(
        "max-in-memory-bytes",
        integer(0, unit="bytes"),
        "maximum memory in bytes",
        _Q,
        operator=True,
        unfit=_S,
        summary="Accepted for compatibility with RabbitMQ; no effect, as the broker manages memory itself.",
    ),
    PolicyKey(
        "overflow",
        one_of("drop-head", "reject-publish", "reject-publish-dlx"),
        "overflow value",
        _C | _Q,
        Merge.ARGUMENT,
        Merge.POLICY,
        operator=True,
        unfit=_S,
        summary="At the length limit: drop the oldest messages, reject new ones, or reject and dead-letter them.",
    ),
    PolicyKey(
        "length-counts",
        one_of("ready", "all"),
        "length-counts value",
        _C | _Q,
        operator=True,
        unfit=_S,
        summary="What length limits count: ready messages, or all, with those that consumers have not acknowledged.",
    ),
    PolicyKey(
        "queue-mode",
        one_of("default", "lazy"),
        "queue-mode value",
        _C,
        unfit=_Q | _S,
        summary="lazy keeps ready messages on disk only, which takes almost no memory.",
    ),
    PolicyKey(
        "queue-version",
        one_of(1, 2),
        "queue-version value",
        _C,
        operator=True,
        summary="Accepted for compatibility with RabbitMQ; no effect, as there is one store format.",
    ),
    PolicyKey(
        "delivery-limit",
        integer(0, unit="deliveries"),
        "delivery limit",
        _Q,
        Merge.MIN,
        operator=True,
        unfit=_C | _S,
        summary="Redeliveries after which a message is dropped or dead-lettered.",
    ),
    PolicyKey(
        "redelivery-limit",
        integer(0, unit="deliveries"),
        "redelivery limit",
        _C | _Q,
        Merge.MIN,
        operator=True,
        unfit=_S,
        summary="Returns of any kind after which a message is dropped or dead-lettered; on classic queues, too.",
    ),
    PolicyKey(
        "delayed-retry-type",
        one_of(*TYPES),
        f"delayed retry type. Must be one of: {', '.join(TYPES)}",
        _C | _Q,
        Merge.POLICY,
        operator=True,
        unfit=_S,
        summary="Which returned messages wait before they are redelivered: failed, returned, or all; by default none.",
    ),
    PolicyKey(
        "delayed-retry-min",
        integer(1, unit=_MILLISECONDS),
        "delayed retry minimum delay. Must be a positive integer",
        _C | _Q,
        Merge.MIN,
        operator=True,
        unfit=_S,
        summary="Delay of the first redelivery; later ones take as many times as long as the message has failed.",
    ),
    PolicyKey(
        "delayed-retry-max",
        integer(1, unit=_MILLISECONDS),
        "delayed retry maximum delay. Must be a positive integer",
        _C | _Q,
        Merge.MIN,
        operator=True,
        unfit=_S,
        summary="Longest delay of a redelivery; by default delayed-retry-min.",
    ),
    PolicyKey(
        "delayed-retry-steps",
        Values("delays"),
        "list of delayed retry steps. Must be delays such as 1s,10s,1m",
        _C | _Q,
        Merge.POLICY,
        operator=True,
        unfit=_S,
        summary="Delays of the first, second and later redeliveries; the last one repeats. Comes before min and max.",
    ),
    PolicyKey(
        "consumer-timeout",
        integer(1, unit=_MILLISECONDS),
        "consumer timeout",
        _C | _Q,
        operator=True,
        unfit=_S,
        summary="Time after which a consumer is cancelled that has not acknowledged a delivery; its messages return.",
    ),
    PolicyKey(
        "max-age",
        Values("age"),
        "max age",
        _S,
        Merge.POLICY,
        unfit=_C | _Q,
        summary="Streams: age after which whole segments are removed, for example 7D.",
    ),
    PolicyKey(
        "stream-max-segment-size-bytes",
        integer(0, 3_000_000_000, unit="bytes"),
        "segment size",
        _S,
        Merge.POLICY,
        unfit=_C | _Q,
        summary="Streams: size of the segments in which messages are removed, for new streams.",
    ),
    PolicyKey(
        "queue-leader-locator",
        one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
        _Q | _S,
        unfit=_C,
        summary="Accepted for compatibility with RabbitMQ; no effect, as there is one node.",
    ),
    PolicyKey(
        "initial-cluster-size",
        integer(1, unit="nodes"),
        "cluster size",
        _S,
        unfit=_C | _Q,
        summary="Streams: number of replicas.",
    ),
)

KEYS: Final[Mapping[str, PolicyKey]] = {row.name: row for row in _ROWS}

#: Keys of newer releases of RabbitMQ, and of the plugins for federation and sharding.
_ELSEWHERE: Final = frozenset(
    (
        *("stream-filter-size-bytes", "target-group-size"),
        *("federation-upstream", "federation-upstream-pattern", "federation-upstream-set"),
        *("routing-key", "shards-per-node"),
    )
)

#: Operator keys whose value replaces the policy's value; of most others the smaller value counts.
_OPERATOR_REPLACES: Final = frozenset(
    ("delayed-retry-steps", "delayed-retry-type", "length-counts", "overflow", "queue-version")
)
#: Of these the larger value counts.
_OPERATOR_RAISES: Final = frozenset(("delayed-retry-min",))


def refuse_definition(definition: Mapping[str, Any], operator: bool) -> str | None:
    """Return why a policy's definition is refused; None if it is valid.

    Args:
        definition: JSON value by key.
        operator: Whether it belongs to an operator policy, in which fewer keys are allowed.
    """
    if not definition:
        return "no policy provided"
    mirroring = {} if operator else {name: value for name, value in definition.items() if name in MIRRORING_KEYS}
    others = {name: value for name, value in sorted(definition.items()) if name not in mirroring}
    return (
        refuse_locator(mirroring)
        or _refuse_value(others, operator)
        or _refuse_retry(others)
        or refuse_mirroring(mirroring)
        or _refuse_unknown(others, operator)
    )


def is_from_elsewhere(name: str, operator: bool) -> bool:
    """Return whether another release of RabbitMQ, or one of its plugins, has a policy key that is refused here.

    Args:
        name: Name of the key.
        operator: Whether it is in an operator policy.
    """
    return name in _ELSEWHERE or (operator and name in KEYS.keys() | MIRRORING_KEYS and not _is_known(name, operator))


def _is_known(name: str, operator: bool) -> bool:
    return name in KEYS and (KEYS[name].operator or not operator)


def _refuse_value(definition: Mapping[str, Any], operator: bool) -> str | None:
    for name, value in definition.items():
        if _is_known(name, operator) and not KEYS[name].valid(value):
            return KEYS[name].refuse(value)
    return None


def _refuse_retry(definition: Mapping[str, Any]) -> str | None:
    """Return why valid values of delayed-retry do not go together; None if they do."""
    kind, least = definition.get("delayed-retry-type", DISABLED), definition.get("delayed-retry-min")
    if kind != DISABLED and least is None and "delayed-retry-steps" not in definition:
        return f"delayed-retry-min is required when delayed-retry-type is {kind}"
    most = definition.get("delayed-retry-max")
    if least is not None and most is not None and most < least:
        return f"delayed-retry-max ({most}) must not be smaller than delayed-retry-min ({least})"
    return None


def _refuse_unknown(definition: Mapping[str, Any], operator: bool) -> str | None:
    unknown = [
        format_tuple(format_json(name), format_json(value))
        for name, value in definition.items()
        if not _is_known(name, operator)
    ]
    return f"{format_list(unknown)} are not recognised policy settings" if unknown else None


def fits(definition: Mapping[str, Any], queue_type: str) -> bool:
    """Return whether a policy may be in force on queues of this type: one unfit key rules it out as a whole."""
    if queue_type != "classic" and not MIRRORING_KEYS.isdisjoint(definition):
        return False
    return not any(queue_type in KEYS[name].unfit for name in definition if name in KEYS)


def operator_replaces(name: str) -> bool:
    """Return whether an operator policy's value replaces the policy's value; see also operator_raises()."""
    return name in _OPERATOR_REPLACES


def operator_raises(name: str) -> bool:
    """Return whether of the values of policy and operator policy the larger one counts, instead of the smaller one."""
    return name in _OPERATOR_RAISES


def merge_operator(user: Mapping[str, Any], operator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective definition where a policy and an operator policy both match."""
    merged = dict(user)
    for name, value in operator.items():
        if name in merged and not operator_replaces(name):
            value = max(value, merged[name]) if operator_raises(name) else min(value, merged[name])
        merged[name] = value
    return merged
