"""Explains a queue's effective settings: for each key the value, its source and the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from leveret.policies.policy import APPLY_TO, Policy, find_policy, fits, least
from leveret.policies.policy_keys import KEYS, Merge, Operator, Setting
from leveret.policies.queue_settings import resolve_setting

Source = Literal["argument", "policy", "operator policy"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of the effective value of one key.

    Args:
        key: Policy key.
        argument: Value of the corresponding queue argument; None without one.
        policy: Value in the policy in force; None without one.
        operator_policy: Value in the operator policy in force; None without one.
        in_force: Effective value.
        source: Source of the effective value; None if there is none.
        reason: The rule that decided, in words.
    """

    key: str
    argument: Any
    policy: Any
    operator_policy: Any
    in_force: Any
    source: Source | None
    reason: str


def explain_settings(
    queue_type: str,
    arguments: Mapping[str, Any],
    policy: Mapping[str, Any],
    operator_policy: Mapping[str, Any],
) -> list[Explanation]:
    """Explain all keys that are set anywhere.

    Args:
        arguments: Arguments of the queue by name, strings as str.
        policy: Definition of the policy in force; empty without one.
        operator_policy: Definition of the operator policy in force; empty without one.
    """
    keys = [key for name, key in KEYS.items() if key.argument in arguments or name in policy or name in operator_policy]
    return [
        explain_setting(
            key, queue_type, arguments.get(key.argument), policy.get(key.name), operator_policy.get(key.name)
        )
        for key in keys
    ]


def explain_setting(key: Setting, queue_type: str, argument: Any, policy: Any, operator_policy: Any) -> Explanation:
    """Explain one key.

    Args:
        argument: Value of the corresponding queue argument; None without one.
        policy: Value in the policy in force; None without one.
        operator_policy: Value in the operator policy in force; None without one.
    """
    if queue_type not in key.queue_types:
        reason = f"{queue_type} queues do not have this setting"
        return Explanation(key.name, argument, policy, operator_policy, None, None, reason)
    merged, merged_source, merged_reason = _merge_policies(key, policy, operator_policy)
    in_force = resolve_setting(key.name, queue_type, argument, merged)
    if argument is None:
        return Explanation(key.name, argument, policy, operator_policy, in_force, merged_source, merged_reason)
    if merged is None:
        reason = "only the argument sets it"
        return Explanation(key.name, argument, policy, operator_policy, in_force, "argument", reason)
    merge = key.merge_for(queue_type)
    if merge is Merge.MIN:
        source: Source = "argument" if in_force == argument else merged_source
        reason = f"{merge.value}: {argument} in the argument, {merged} in the {merged_source}"
        if isinstance(argument, int) and argument < 0:
            reason = f"{argument} in the argument is no limit, {merged} in the {merged_source} is one"
        elif isinstance(merged, int) and merged < 0:
            reason = f"{merged} in the {merged_source} is no limit, {argument} in the argument is one"
    else:
        source = "argument" if merge is Merge.ARGUMENT else merged_source
        reason = merge.value
    return Explanation(key.name, argument, policy, operator_policy, in_force, source, reason)


def _merge_policies(key: Setting, policy: Any, operator_policy: Any) -> tuple[Any, Source, str]:
    """Return the merged value of both policies, its source and the rule."""
    if operator_policy is None:
        return policy, "policy", "only the policy sets it"
    if policy is None:
        return operator_policy, "operator policy", "only the operator policy sets it"
    if key.operator is Operator.REPLACES:
        return operator_policy, "operator policy", "the operator policy replaces the policy's value"
    is_policy, word = least(policy, operator_policy) == policy, "smaller"
    if key.operator is Operator.MAX:
        is_policy, word = policy >= operator_policy, "larger"
    source: Source = "policy" if is_policy else "operator policy"
    reason = f"the {word} one counts: {policy} in the policy, {operator_policy} in the operator policy"
    return policy if is_policy else operator_policy, source, reason


def ineffective_policies(
    policies: Iterable[Policy], name: str, queue_type: Literal["classic", "quorum", "stream"]
) -> list[tuple[Policy, str]]:
    """Return the policies that match a queue's name but are not in force on it, each with the reason.

    Args:
        policies: All policies, or all operator policies, of the virtual host.
    """
    known = list(policies)
    first = find_policy(known, name, queue_type)
    return [
        (policy, why_not_in_force(policy, first, queue_type))
        for policy in known
        if policy is not first and policy.matches_name(name)
    ]


def why_not_in_force(policy: Policy, first: Policy | None, resource: str) -> str:
    """Return why a policy that matches a name is not in force there, in words.

    Args:
        first: The policy that is in force; None without one.
        resource: ``exchange``, or the type of the queue.
    """
    if resource not in APPLY_TO[policy.apply_to]:
        return f"it applies to {policy.apply_to.replace('_', ' ')}"
    if resource != "exchange" and not fits(policy.definition, resource):
        return f"it has a key that does not fit {resource} queues, so none of it applies"
    return "it is about to take effect" if first is None else _outranked(policy, first)


def _outranked(policy: Policy, first: Policy) -> str:
    """Return why the policy in force has precedence over this one, in words."""
    if policy.priority < first.priority:
        return f"'{first.name}' has the higher priority ({first.priority:g} against {policy.priority:g})"
    return f"'{first.name}' has the same priority, and of those the smallest name counts"
