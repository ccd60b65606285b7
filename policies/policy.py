"""Policies: named definitions for the queues and exchanges whose name matches a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from policies.keys import fits
from policies.patterns import Pattern

#: What a policy may be for, and which resources that covers.
APPLY_TO: Final[Mapping[str, frozenset[str]]] = {
    "all": frozenset(("classic", "quorum", "stream", "exchange")),
    "queues": frozenset(("classic", "quorum", "stream")),
    "classic_queues": frozenset(("classic",)),
    "quorum_queues": frozenset(("quorum",)),
    "streams": frozenset(("stream",)),
    "exchanges": frozenset(("exchange",)),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy or operator policy.

    Args:
        name: Unique in its virtual host, among policies or among operator policies.
        pattern: A regular expression that is searched in names.
        definition: JSON value by key.
        priority: The highest one that matches is in force.
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
        """Whether it may be in force on a resource.

        Args:
            name: Name of the queue or exchange.
            resource: ``exchange``, or the queue's type.
        """
        if resource not in APPLY_TO[self.apply_to]:
            return False
        if resource != "exchange" and not fits(self.definition, resource):
            return False
        return self._compiled.matches(name)


def winner(
    policies: Iterable[Policy], name: str, resource: Literal["exchange", "classic", "quorum", "stream"]
) -> Policy | None:
    """The one policy that is in force on a resource; None if none matches.

    Of equal priorities the smallest name wins, so that the outcome does not depend on their history.
    """
    matching = [policy for policy in policies if policy.matches(name, resource)]
    return min(matching, key=lambda policy: (-policy.priority, policy.name), default=None)
