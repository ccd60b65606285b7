"""Policies: named definitions for queues and exchanges whose names match a pattern.

Source: RabbitMQ 3.10.8, observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.patterns import Pattern
from leveret.policies.policy_keys import KEYS, Operator
from leveret.policies.value_checks import DISABLED
from leveret.protocol.erlang_terms import format_json, format_list, format_tuple

#: Values of apply-to, and the resources that each covers.
APPLY_TO: Final[Mapping[str, frozenset[str]]] = {
    "all": frozenset(("classic", "quorum", "stream", "exchange")),
    "queues": frozenset(("classic", "quorum", "stream")),
    "classic_queues": frozenset(("classic",)),
    "quorum_queues": frozenset(("quorum",)),
    "streams": frozenset(("stream",)),
    "exchanges": frozenset(("exchange",)),
}
#: As RabbitMQ prints it, two spaces included.
_APPLY_TO_TEXT: Final = "'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'"

#: Keys of newer releases of RabbitMQ, and of the plugins for federation and sharding.
_ELSEWHERE: Final = frozenset(
    (
        *("stream-filter-size-bytes", "target-group-size"),
        *("federation-upstream", "federation-upstream-pattern", "federation-upstream-set"),
        *("routing-key", "shards-per-node"),
    )
)

_MODE: Final = "ha-mode"
_LOCATOR: Final = "queue-master-locator"
_LOCATORS: Final = ("client-local", "min-masters", "random")
_PROMOTIONS: Final = ("always", "when-synced")

#: Policies with one of these keys apply to classic queues and exchanges only.
MIRRORING_KEYS: Final = frozenset(
    (
        _MODE,
        "ha-params",
        "ha-sync-mode",
        "ha-sync-batch-size",
        "ha-promote-on-shutdown",
        "ha-promote-on-failure",
        _LOCATOR,
    )
)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy or operator policy.

    Args:
        name: Unique in its virtual host, among policies or among operator policies.
        pattern: Regular expression that is searched in names.
        definition: JSON value by key.
        priority: Of matching policies the one with the highest priority is in force.
    Raises:
        InvalidPattern: The pattern cannot be compiled.
    """

    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: float = 0
    apply_to: str = "all"
    _compiled: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", Pattern(self.pattern))

    @property
    def value(self) -> dict[str, Any]:
        """Its JSON value, as of a parameter, without its name."""
        return {
            "pattern": self.pattern,
            "definition": dict(self.definition),
            "priority": self.priority,
            "apply-to": self.apply_to,
        }

    def matches(self, name: str, resource: Literal["exchange", "classic", "quorum", "stream"]) -> bool:
        """Return whether the policy may be in force on a resource.

        Args:
            name: Name of the queue or exchange.
            resource: ``exchange``, or the queue's type.
        """
        if resource not in APPLY_TO[self.apply_to]:
            return False
        if resource != "exchange" and not fits(self.definition, resource):
            return False
        return self._compiled.matches(name)

    def matches_name(self, name: str) -> bool:
        """Return whether the pattern matches a name, whatever apply-to is."""
        return self._compiled.matches(name)


def find_policy(
    policies: Iterable[Policy], name: str, resource: Literal["exchange", "classic", "quorum", "stream"]
) -> Policy | None:
    """Return the policy that is in force on a resource; None if none matches.

    Of equal priorities the smallest name counts, so that the result does not depend on the order of creation.
    """
    matching = [policy for policy in policies if policy.matches(name, resource)]
    return min(matching, key=lambda policy: (-policy.priority, policy.name), default=None)


_DELIVERY_LIMIT: Final = "delivery-limit"
#: A delivery-limit that is no limit.
UNLIMITED: Final = -1


class PolicyError(ValueError):
    """An invalid policy; the text is RabbitMQ's."""


def read_policy(name: str, document: Mapping[str, Any], operator: bool, *, takes_unlimited: bool = False) -> Policy:
    """Parse a policy from JSON.

    Args:
        document: Keys pattern and definition, optionally priority and apply-to; other keys are ignored.
        operator: Whether it is an operator policy, in which fewer keys are allowed.
        takes_unlimited: Whether a delivery-limit of -1, which is no limit, is valid, as since RabbitMQ 4.0.
    Raises:
        PolicyError: A key is missing, or a value is invalid.
    """
    missing = [format_tuple("key_missing", key) for key in ("pattern", "definition") if key not in document]
    if missing:
        raise PolicyError(format_list(missing))
    priority, pattern = document.get("priority", 0), document["pattern"]
    if isinstance(priority, bool) or not isinstance(priority, int | float):
        raise invalid(f"priority should be a number, actually was {format_json(priority)}")
    if not isinstance(pattern, str):
        raise invalid(f"pattern should be a binary but was {format_json(pattern)}")
    apply_to = document.get("apply-to", "all")
    if not isinstance(apply_to, str) or apply_to not in APPLY_TO:
        raise invalid(f"apply-to {_quoted(apply_to)} unrecognised; should be one of: {_APPLY_TO_TEXT}")
    definition = document["definition"]
    if not isinstance(definition, Mapping):
        raise invalid("definition should be an object")
    try:
        policy = Policy(name, pattern, dict(definition), priority, apply_to)
    except InvalidPattern as error:
        raise invalid(f"pattern should be regular expression but is invalid: {error.as_term()}") from None
    if takes_unlimited and definition.get(_DELIVERY_LIMIT) == UNLIMITED:
        definition = {**definition, _DELIVERY_LIMIT: 0}
    refusal = refuse_definition(definition, operator)
    if refusal is not None:
        raise invalid(refusal)
    return policy


def invalid(reason: str) -> PolicyError:
    """Return the error for a policy that fails validation."""
    return PolicyError(f"Validation failed\n\n{reason}\n")


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else format_json(value)


# -- definitions -------------------------------------------------------------------------------------------


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
        _refuse_locator(mirroring)
        or _refuse_value(others, operator)
        or _refuse_retry(others)
        or _refuse_mirroring(mirroring)
        or _refuse_unknown(others, operator)
    )


def is_from_elsewhere(name: str, operator: bool) -> bool:
    """Return whether another release of RabbitMQ, or one of its plugins, has a policy key that is refused here.

    Args:
        operator: Whether it is in an operator policy.
    """
    return name in _ELSEWHERE or (operator and name in KEYS.keys() | MIRRORING_KEYS and not _is_known(name, operator))


def _is_known(name: str, operator: bool) -> bool:
    return name in KEYS and (KEYS[name].operator is not None or not operator)


def _refuse_value(definition: Mapping[str, Any], operator: bool) -> str | None:
    for name, value in definition.items():
        if _is_known(name, operator) and not KEYS[name].values(value):
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


def least(one: Any, other: Any) -> Any:
    """Return the lower limit; UNLIMITED is none, so that the other one counts."""
    return other if one == UNLIMITED else one if other == UNLIMITED else min(one, other)


def merge_operator(user: Mapping[str, Any], operator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the effective definition where a policy and an operator policy both match."""
    merged = dict(user)
    for name, value in operator.items():
        if name in merged:
            rule = KEYS[name].operator
            if rule is Operator.MIN:
                value = least(value, merged[name])
            elif rule is Operator.MAX:
                value = max(value, merged[name])
        merged[name] = value
    return merged


# -- keys of mirrored classic queues: accepted because definitions of clusters contain them, without effect -------


def _refuse_locator(definition: Mapping[str, Any]) -> str | None:
    """Return why the queue master locator is refused; None if it is valid or not set."""
    locator = definition.get(_LOCATOR, _LOCATORS[0])
    return None if locator in _LOCATORS else f"{format_json(locator)} invalid {_LOCATOR} value"


def _refuse_mirroring(definition: Mapping[str, Any]) -> str | None:
    """Return why the mirroring keys are refused; None if they are valid or not set."""
    if not any(name in MIRRORING_KEYS and name != _LOCATOR for name in definition):
        return None
    if _MODE not in definition:
        return "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
    return _refuse_mode(definition) or _refuse_details(definition)


def _refuse_mode(definition: Mapping[str, Any]) -> str | None:
    mode, has_count, count = definition[_MODE], "ha-params" in definition, definition.get("ha-params")
    given = format_json(count) if has_count else "none"
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if has_count else None
    if mode == "exactly":
        return None if _is_positive(count) else f'ha-mode="exactly" takes an integer, {given} given'
    if mode != "nodes":
        return f"{format_json(mode)} is not a valid ha-mode value"
    if not isinstance(count, list | tuple):
        return f'ha-mode="nodes" takes a list, {given} given'
    if not count:
        return 'ha-mode="nodes" list must be non-empty'
    invalid = [name for name in count if not isinstance(name, str)]
    return f'ha-mode="nodes" takes a list of strings, {format_json(invalid)} was not a string' if invalid else None


def _refuse_details(definition: Mapping[str, Any]) -> str | None:
    mode = definition.get("ha-sync-mode", "manual")
    if mode not in ("manual", "automatic"):
        return f'ha-sync-mode must be "manual" or "automatic", got {format_json(mode)}'
    size = definition.get("ha-sync-batch-size", 1)
    if not _is_positive(size):
        return f"ha-sync-batch-size takes an integer greater than 0, {format_json(size)} given"
    for key in ("ha-promote-on-shutdown", "ha-promote-on-failure"):
        promotion = definition.get(key, _PROMOTIONS[0])
        if promotion not in _PROMOTIONS:
            return f'{key} must be "always" or "when-synced", got {format_json(promotion)}'
    return None


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
