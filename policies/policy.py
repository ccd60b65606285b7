"""Policies: named definitions for queues and exchanges whose names match a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from leveret.policies.invalid_pattern import InvalidPattern
from leveret.policies.keys import fits, refuse_definition
from leveret.policies.patterns import Pattern
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


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy or operator policy.

    Args:
        name: Unique in its virtual host, among policies or among operator policies.
        pattern: Regular expression that is searched in names.
        definition: JSON value by key.
        priority: Of matching policies the one with the highest priority is in force.
        apply_to: One of APPLY_TO.
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


class PolicyError(ValueError):
    """An invalid policy; the text is RabbitMQ's."""


def read_policy(name: str, document: Mapping[str, Any], operator: bool) -> Policy:
    """Parse a policy from JSON.

    Args:
        name: Name of the policy.
        document: Keys pattern and definition, optionally priority and apply-to; other keys are ignored.
        operator: Whether it is an operator policy, in which fewer keys are allowed.
    Raises:
        PolicyError: A key is missing, or a value is invalid.
    Source: RabbitMQ 3.10.8, observed.
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
    refusal = refuse_definition(definition, operator)
    if refusal is not None:
        raise invalid(refusal)
    return policy


def invalid(reason: str) -> PolicyError:
    """Return the error for a policy that fails validation."""
    return PolicyError(f"Validation failed\n\n{reason}\n")


def _quoted(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else format_json(value)
