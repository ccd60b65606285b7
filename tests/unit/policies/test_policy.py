"""Policies: reading them, and which one is in force."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final, Literal

import pytest

from leveret.policies.policy import APPLY_TO, Policy, PolicyError, find_policy, read_policy

RESOURCES: Final[tuple[Literal["exchange", "classic", "quorum", "stream"], ...]] = (
    "exchange",
    "classic",
    "quorum",
    "stream",
)
LIMIT: Final = {"max-length": 1}


def policy(name: str = "p", pattern: str = "", **given: Any) -> Policy:
    return Policy(name, pattern, {"max-length-bytes": 1}, **given)


def test_the_definition_is_its_own() -> None:
    definition = dict(LIMIT)
    read = read_policy("p", {"pattern": "", "definition": definition}, operator=False)
    definition["max-length"] = 2
    assert read.definition == LIMIT


@pytest.mark.parametrize("apply_to", [5, None, ["all"], {"all": 1}])
def test_apply_to_of_another_type(apply_to: Any) -> None:
    with pytest.raises(PolicyError, match=r"apply-to .* unrecognised"):
        read_policy("p", {"pattern": "", "definition": LIMIT, "apply-to": apply_to}, operator=False)


def test_numbers_beyond_reason_are_read() -> None:
    document = {"pattern": "", "definition": LIMIT, "priority": 10**400}
    assert read_policy("p", document, operator=False).priority == 10**400


@pytest.mark.parametrize(
    ("apply_to", "resources"),
    [
        ("all", {"exchange", "classic", "quorum", "stream"}),
        ("queues", {"classic", "quorum", "stream"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", {"stream"}),
        ("exchanges", {"exchange"}),
    ],
)
def test_what_it_is_for(apply_to: str, resources: set[str]) -> None:
    found = {each for each in RESOURCES if policy(apply_to=apply_to).matches("q", each)}
    assert found == resources == APPLY_TO[apply_to]


def test_keys_of_one_queue_type_do_not_keep_it_from_exchanges() -> None:
    limited = Policy("p", "", {"ha-mode": "all", "alternate-exchange": "x"})
    assert limited.matches("x", "exchange")
    assert not limited.matches("q", "quorum")


def test_which_one_wins_does_not_depend_on_the_order() -> None:
    policies = [policy("a", priority=-1), policy("c"), policy("e", priority=1.5), policy("d", priority=1.5)]
    for order in permutations([*policies, policy("b", "^x", priority=9)]):
        assert find_policy(order, "q", "classic") is policies[-1]
    assert find_policy([policy(pattern="^x")], "q", "classic") is None
