"""Policy keys: one row each, from which validation, merging, HTTP, command line and documentation follow.

Source: RabbitMQ 3.10.8, observed, and https://www.rabbitmq.com/docs/parameters#policies for what is newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias


class Merge(Enum):
    """How the value of a policy meets that of the queue's argument."""

    MIN = "the smaller one counts"
    ARGUMENT = "the argument comes before the policy"
    POLICY = "the policy comes before the argument"


#: Whether a JSON value is one that the key takes.
Valid: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """One row.

    Args:
        name: The key.
        valid: The values that it takes.
        refusal: How the text goes on behind the value that is refused.
        queue_types: Queue types that know it; empty for a key of exchanges.
        merge: How it meets the argument of a classic queue.
        quorum_merge: How it meets that of a quorum queue, where that differs.
        operator: Whether an operator policy may hold it.
        unfit: Queue types for which a policy that holds it is passed over as a whole.
    """

    name: str
    valid: Valid
    refusal: str
    queue_types: frozenset[str]
    merge: Merge = Merge.ARGUMENT
    quorum_merge: Merge | None = None
    operator: bool = False
    unfit: frozenset[str] = frozenset()

    @property
    def argument(self) -> str:
        """The queue argument of the same meaning."""
        return f"x-{self.name}"

    def merge_for(self, queue_type: str) -> Merge:
        """How it meets the argument on a queue of this type."""
        if queue_type == "quorum" and self.quorum_merge is not None:
            return self.quorum_merge
        return self.merge


def _integer(least: int, most: int | None = None) -> Valid:
    def valid(value: Any) -> bool:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return is_integer and value >= least and (most is None or value <= most)

    return valid


def _string(value: Any) -> bool:
    return isinstance(value, str)


def _one_of(*values: Any) -> Valid:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _max_age(value: Any) -> bool:
    if not isinstance(value, str) or value[-1:] not in tuple("YMDhms"):
        return False
    number = value[:-1]
    return number.isascii() and number.isdigit() and number.strip("0") != ""


_C: Final = frozenset(("classic",))
_Q: Final = frozenset(("quorum",))
_S: Final = frozenset(("stream",))
_NONE: Final[frozenset[str]] = frozenset()

_ROWS: Final = (
    PolicyKey("alternate-exchange", _string, "alternate exchange name", _NONE),
    PolicyKey("expires", _integer(1), "queue expiry", _C | _Q, Merge.MIN, Merge.POLICY, operator=True, unfit=_S),
    PolicyKey("dead-letter-exchange", _string, "dead letter exchange name", _C | _Q, unfit=_S),
    PolicyKey("dead-letter-routing-key", _string, "dead letter routing key", _C | _Q, unfit=_S),
    PolicyKey(
        "dead-letter-strategy", _one_of("at-most-once", "at-least-once"), "dead letter strategy", _Q, unfit=_C | _S
    ),
    PolicyKey("message-ttl", _integer(0), "message TTL", _C | _Q, Merge.MIN, operator=True, unfit=_S),
    PolicyKey("max-length", _integer(0), "maximum length", _C | _Q, Merge.MIN, operator=True, unfit=_S),
    PolicyKey("max-length-bytes", _integer(0), "maximum length in bytes", _C | _Q | _S, Merge.MIN, operator=True),
    PolicyKey("max-in-memory-length", _integer(0), "maximum memory in bytes", _Q, operator=True, unfit=_S),
    PolicyKey("max-in-memory-bytes", _integer(0), "maximum memory in bytes", _Q, operator=True, unfit=_S),
    PolicyKey(
        "overflow",
        _one_of("drop-head", "reject-publish", "reject-publish-dlx"),
        "overflow value",
        _C | _Q,
        Merge.ARGUMENT,
        Merge.POLICY,
        operator=True,
        unfit=_S,
    ),
    PolicyKey("queue-mode", _one_of("default", "lazy"), "queue-mode value", _C, unfit=_Q | _S),
    PolicyKey("queue-version", _one_of(1, 2), "queue-version value", _C, operator=True),
    PolicyKey("delivery-limit", _integer(0), "delivery limit", _Q, Merge.MIN, operator=True, unfit=_C | _S),
    PolicyKey("max-age", _max_age, "max age", _S, Merge.POLICY, unfit=_C | _Q),
    PolicyKey(
        "stream-max-segment-size-bytes",
        _integer(0, 3_000_000_000),
        "segment size",
        _S,
        Merge.POLICY,
        unfit=_C | _Q,
    ),
    PolicyKey(
        "queue-leader-locator",
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
        _Q | _S,
        unfit=_C,
    ),
    PolicyKey("initial-cluster-size", _integer(1), "cluster size", _S, unfit=_C | _Q),
)

KEYS: Final[Mapping[str, PolicyKey]] = {row.name: row for row in _ROWS}

#: Operator keys whose value replaces that of the user's policy; for all others the smaller one counts.
_OPERATOR_REPLACES: Final = frozenset(("overflow", "queue-version"))


def refuse_definition(definition: Mapping[str, Any], operator: bool) -> str | None:
    """Why a policy's definition is refused; None if it is fine.

    Args:
        definition: Key to JSON value.
        operator: Whether it is that of an operator policy, for which fewer keys are allowed.
    """
    if not definition:
        return "no policy provided"
    unknown = []
    for name, value in sorted(definition.items()):
        key = KEYS.get(name)
        if key is None or (operator and not key.operator):
            unknown.append(f'{{<<"{name}">>,{format_json_term(value)}}}')
        elif not key.valid(value):
            return f"{format_json_term(value)} is not a valid {key.refusal}"
    if unknown:
        return f"[{','.join(unknown)}] are not recognised policy settings"
    return None


def format_json_term(value: Any) -> str:
    """A JSON value as Erlang prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'<<"{value}">>' if value else "<<>>"
    if isinstance(value, Mapping):
        return "#{" + ",".join(f"{format_json_term(k)} => {format_json_term(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(format_json_term, value)) + "]"
    return str(value)


def fits(definition: Mapping[str, Any], queue_type: str) -> bool:
    """Whether a policy may be in force on queues of this type: one unfit key passes it over as a whole."""
    return not any(queue_type in KEYS[name].unfit for name in definition if name in KEYS)


def operator_replaces(name: str) -> bool:
    """Whether an operator policy's value replaces that of the policy; else the smaller one of both counts."""
    return name in _OPERATOR_REPLACES


def merge_operator(user: Mapping[str, Any], operator: Mapping[str, Any]) -> dict[str, Any]:
    """The definition in force where a policy and an operator policy both match."""
    merged = dict(user)
    for name, value in operator.items():
        if name in merged and not operator_replaces(name):
            value = min(value, merged[name])
        merged[name] = value
    return merged
