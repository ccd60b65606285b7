from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leveret.broker.core.policy_effects import (
    PolicyMatch,
    count_in_force,
    describe_gaps,
    matching_exchanges,
    matching_queues,
)
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.queue_content import arguments
from tests.support.queues import declare


def set_policy(vhost: VirtualHost, name: str, operator: bool = False, **given: Any) -> Policy:
    policy = Policy(name, **{"pattern": "^q", "definition": {"max-length": 5}, **given})
    vhost.policies.set(policy, operator)
    return policy


def covered(vhost: VirtualHost, policy: Policy, operator: bool = False) -> dict[str, PolicyMatch]:
    return {each.subject.name: each for each in matching_queues(vhost, policy, operator) if each is not None}


def test_queues_that_it_is_in_force_on(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "other"):
        declare(vhost, name)
    found = covered(vhost, set_policy(vhost, "p"))
    assert list(found) == ["q1", "q2"]
    assert all(each.in_force and each.rival is None and each.reason is None for each in found.values())


@pytest.mark.parametrize(
    ("priority", "reason"),
    [
        (1, "'a' has the higher priority (1 against 0)"),
        (0, "'a' has the same priority, and of those the smallest name counts"),
    ],
)
def test_queues_that_it_loses(vhost: VirtualHost, priority: int, reason: str) -> None:
    declare(vhost, "q1")
    declare(vhost, "q2")
    loser = set_policy(vhost, "p")
    set_policy(vhost, "a", pattern="^q1", priority=priority)
    found = covered(vhost, loser)
    assert found["q2"].in_force
    assert (found["q1"].in_force, found["q1"].rival, found["q1"].reason) == (False, "a", reason)


def test_queues_that_it_does_not_fit(vhost: VirtualHost) -> None:
    declare(vhost, "q", arguments=arguments(queue_type="quorum"))
    lazy = covered(vhost, set_policy(vhost, "lazy", definition={"queue-mode": "lazy"}))["q"]
    assert (lazy.in_force, lazy.rival) == (False, None)
    assert lazy.reason == "it has a key that does not fit quorum queues, so none of it applies"
    classic = covered(vhost, set_policy(vhost, "classic", apply_to="classic_queues"))["q"]
    assert (classic.in_force, classic.reason) == (False, "it applies to classic queues")


def test_kinds_do_not_compete(vhost: VirtualHost) -> None:
    declare(vhost, "q")
    policies = {operator: set_policy(vhost, "p", operator, priority=9 * operator) for operator in (False, True)}
    assert all(covered(vhost, policy, operator)["q"].in_force for operator, policy in policies.items())


def test_exchanges(vhost: VirtualHost) -> None:
    vhost.declare_exchange("q", "direct", False, False, False, ())
    declare(vhost, "q1")
    definition = {"alternate-exchange": "amq.fanout"}
    weak = set_policy(vhost, "weak", definition=definition)
    set_policy(vhost, "strong", definition=definition, apply_to="exchanges", priority=1)
    (found,) = [each for each in matching_exchanges(vhost, weak) if each is not None]
    assert (found.subject.name, found.type_name, found.in_force, found.rival) == ("q", "direct", False, "strong")
    assert covered(vhost, vhost.policies.policies["strong"]) == {}
    queues_only = set_policy(vhost, "queues", apply_to="queues")
    assert list(matching_exchanges(vhost, queues_only)) == []


def test_counts(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "other"):
        declare(vhost, name)
    set_policy(vhost, "p")
    set_policy(vhost, "all", pattern="", priority=-1)
    set_policy(vhost, "cap", operator=True)
    counted: Counter[tuple[str, str, str]] = Counter()
    for _ in count_in_force([vhost], False, counted):
        pass
    exchanges = len(vhost.topology.exchanges)
    assert counted == {("v", "p", "queue"): 2, ("v", "all", "queue"): 1, ("v", "all", "exchange"): exchanges}
    counted.clear()
    for _ in count_in_force([vhost], True, counted):
        pass
    assert counted == {("v", "cap", "queue"): 2}


def gaps(vhost: VirtualHost, policy: Policy) -> str:
    return describe_gaps(policy, [each for each in matching_queues(vhost, policy, False) if each is not None])


def test_where_a_policy_is_not_in_force_is_said(vhost: VirtualHost) -> None:
    for name in ("q1", "q2", "q3"):
        declare(vhost, name)
    bounded = set_policy(vhost, "bounded")
    work = set_policy(vhost, "work", apply_to="classic_queues")
    assert gaps(vhost, bounded) == ""
    assert gaps(vhost, work) == "in force on 0 of 3 queues: 'bounded' comes first"
    set_policy(vhost, "a", pattern="^q1", priority=1)
    assert gaps(vhost, bounded) == "in force on 2 of 3 queues: 'a' comes first"
    assert gaps(vhost, work) == "in force on 0 of 3 queues: 'a', 'bounded' come first"
    declare(vhost, "q4", arguments=arguments(queue_type="quorum"))
    assert "of 3 queues" in gaps(vhost, work), "it is not for quorum queues"
    lazy = set_policy(vhost, "lazy", pattern="^q4", definition={"queue-mode": "lazy"})
    assert gaps(vhost, lazy).endswith("'bounded' comes first")
