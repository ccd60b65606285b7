"""Lists the queues and exchanges that a policy matches, and why it is not in force on some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.explanation import why_not_in_force
from leveret.policies.policy import APPLY_TO, Policy

#: Other policies that describe_gaps() names.
_NAMES_MAX: Final = 3
_QUEUES: Final = frozenset(("classic", "quorum"))


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """A queue or exchange whose name a policy's pattern matches.

    Args:
        subject: The queue or exchange.
        type_name: Its type.
        in_force: Whether the policy is in force on it.
        rival: Name of the policy of the same kind that is in force instead; None if there is none.
        reason: Why it is not in force, as text; None if it is.
    """

    subject: Queue | Exchange
    type_name: str
    in_force: bool
    rival: str | None = None
    reason: str | None = None


def matching_queues(vhost: VirtualHost, policy: Policy, operator: bool) -> Iterator[PolicyMatch | None]:
    """Match a policy against all queues of a virtual host; yield None for queues that do not match.

    Args:
        vhost: The virtual host of the policy.
        policy: The policy. One for exchanges only matches no queue.
        operator: Whether it is an operator policy.
    """
    if APPLY_TO[policy.apply_to].isdisjoint(_QUEUES):
        return
    for queue in list(vhost.queues.values()):
        current = queue.operator_policy if operator else queue.policy
        yield _match(queue, queue.queue_type, queue.queue_type, policy, current)


def matching_exchanges(vhost: VirtualHost, policy: Policy) -> Iterator[PolicyMatch | None]:
    """Match a policy against all exchanges of a virtual host; yield None for exchanges that do not match.

    Operator policies match no exchange.
    """
    if "exchange" not in APPLY_TO[policy.apply_to]:
        return
    for exchange in list(vhost.topology.exchanges.values()):
        yield _match(exchange, exchange.type_name, "exchange", policy, exchange.policy)


def describe_gaps(policy: Policy, matches: Iterable[PolicyMatch]) -> str:
    """Return on how many of the queues that a policy matches it is in force, and why not on the others.

    Args:
        policy: The policy.
        matches: What matching_queues() yields for it; queues of other types than it applies to do not count.

    Returns:
        Such as ``in force on 0 of 3 queues: 'bounded' comes first``; "" if it is in force on all of them.
    """
    found = [match for match in matches if match.type_name in APPLY_TO[policy.apply_to]]
    others = [match for match in found if not match.in_force]
    if not others:
        return ""
    names = list(dict.fromkeys(f"'{match.rival}'" for match in others if match.rival is not None))
    reasons = list(dict.fromkeys(match.reason for match in others if match.rival is None and match.reason))
    if names:
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        reasons.insert(0, f"{', '.join(names[:_NAMES_MAX])}{more} {'comes' if len(names) == 1 else 'come'} first")
    count = "1 queue" if len(found) == 1 else f"{len(found)} queues"
    return f"in force on {len(found) - len(others)} of {count}: {'; '.join(reasons)}"


def count_in_force(
    vhosts: Iterable[VirtualHost], operator: bool, counted: Counter[tuple[str, str, str]]
) -> Iterator[None]:
    """Count the queues and exchanges on which each policy is in force.

    Args:
        vhosts: The virtual hosts.
        operator: Whether to count operator policies instead of policies.
        counted: Receives the counts, by virtual host, name of the policy, and ``queue`` or ``exchange``.
    Yields:
        None after every object.
    """
    for vhost in vhosts:
        for queue in list(vhost.queues.values()):
            policy = queue.operator_policy if operator else queue.policy
            if policy is not None:
                counted[vhost.name, policy.name, "queue"] += 1
            yield
        for exchange in () if operator else list(vhost.topology.exchanges.values()):
            if exchange.policy is not None:
                counted[vhost.name, exchange.policy.name, "exchange"] += 1
            yield


def _match(
    subject: Queue | Exchange, type_name: str, resource: str, policy: Policy, current: Policy | None
) -> PolicyMatch | None:
    if current is not None and current.name == policy.name:
        return PolicyMatch(subject, type_name, True)
    if not policy.matches_name(subject.name):
        return None
    rival = None if current is None else current.name
    return PolicyMatch(subject, type_name, False, rival, why_not_in_force(policy, current, resource))
