"""Policies: reading them, and which one is in force."""

from __future__ import annotations

import time
from itertools import permutations
from typing import Any, Final, Literal

import pytest

from leveret.policies.policy import APPLY_TO, Policy, PolicyError, find_policy, read_policy

Resource = Literal["exchange", "classic", "quorum", "stream"]
RESOURCES: Final[tuple[Resource, ...]] = ("exchange", "classic", "quorum", "stream")
LIMIT: Final = {"max-length": 1}


def policy(name: str = "p", pattern: str = "", **given: Any) -> Policy:
    return Policy(name, pattern, given.pop("definition", {"max-length-bytes": 1}), **given)


class TestReading:
    def test_the_least_that_a_policy_says(self) -> None:
        read = read_policy("p", {"pattern": "^a", "definition": LIMIT}, operator=False)
        assert read == Policy("p", "^a", LIMIT, 0, "all")

    def test_all_that_a_policy_says(self) -> None:
        document = {"pattern": "^a", "definition": LIMIT, "priority": -1.5, "apply-to": "queues"}
        assert read_policy("", document, operator=True) == Policy("", "^a", LIMIT, -1.5, "queues")

    def test_other_keys_are_passed_over(self) -> None:
        document = {"pattern": "", "definition": LIMIT, "name": "other", "vhost": 5, "nope": 1}
        assert read_policy("p", document, operator=False).name == "p"

    def test_the_definition_is_its_own(self) -> None:
        definition = dict(LIMIT)
        read = read_policy("p", {"pattern": "", "definition": definition}, operator=False)
        definition["max-length"] = 2
        assert read.definition == LIMIT

    @pytest.mark.parametrize(
        ("document", "text"),
        [
            ({"definition": LIMIT}, "[{key_missing,pattern}]"),
            ({"pattern": ""}, "[{key_missing,definition}]"),
            ({}, "[{key_missing,pattern},{key_missing,definition}]"),
        ],
    )
    def test_what_must_be_there(self, document: dict[str, Any], text: str) -> None:
        with pytest.raises(PolicyError) as caught:
            read_policy("p", document, operator=False)
        assert str(caught.value) == text

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"priority": "5"}, 'priority should be a number, actually was <<"5">>'),
            ({"priority": True}, "priority should be a number, actually was true"),
            ({"priority": None}, "priority should be a number, actually was null"),
            ({"pattern": 5}, "pattern should be a binary but was 5"),
            (
                {"apply-to": "bogus"},
                "apply-to 'bogus' unrecognised; should be one of: "
                "'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'",
            ),
            ({"definition": []}, "definition should be an object"),
            ({"definition": {}}, "no policy provided"),
            ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
        ],
    )
    def test_what_is_refused(self, given: dict[str, Any], text: str) -> None:
        with pytest.raises(PolicyError) as caught:
            read_policy("p", {"pattern": "", "definition": LIMIT} | given, operator=False)
        assert str(caught.value) == f"Validation failed\n\n{text}\n"

    @pytest.mark.parametrize("apply_to", [5, None, ["all"], {"all": 1}])
    def test_apply_to_of_another_type(self, apply_to: Any) -> None:
        with pytest.raises(PolicyError, match=r"apply-to .* unrecognised"):
            read_policy("p", {"pattern": "", "definition": LIMIT, "apply-to": apply_to}, operator=False)

    def test_a_pattern_that_is_none(self) -> None:
        with pytest.raises(
            PolicyError, match=r"(?s)Validation failed.*pattern should be regular expression but is inv"
        ):
            read_policy("p", {"pattern": "(a", "definition": LIMIT}, operator=False)

    def test_operator_policies_hold_fewer_keys(self) -> None:
        document = {"pattern": "", "definition": {"dead-letter-exchange": "x"}}
        read_policy("p", document, operator=False)
        with pytest.raises(PolicyError, match="not recognised policy settings"):
            read_policy("p", document, operator=True)

    def test_numbers_beyond_reason_are_read(self) -> None:
        document = {"pattern": "", "definition": LIMIT, "priority": 10**400}
        assert read_policy("p", document, operator=False).priority == 10**400


class TestMatching:
    @pytest.mark.parametrize(
        ("pattern", "name", "matches"),
        [
            ("abc", "xxabcyy", True),
            ("", "anything", True),
            ("", "", True),
            ("^abc$", "abc", True),
            ("^abc$", "xabc", False),
            ("ABC", "abc", False),
            ("(?i)ABC", "abc", True),
            ("^.{14}$", "очередь", True),
            ("^.{7}$", "очередь", False),
            ("^amq\\.gen-", "amq.gen-x", True),
        ],
    )
    def test_a_pattern_is_searched_in_bytes(self, pattern: str, name: str, matches: bool) -> None:
        assert policy(pattern=pattern).matches(name, "classic") is matches

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
    def test_what_it_is_for(self, apply_to: str, resources: set[str]) -> None:
        found = {each for each in RESOURCES if policy(apply_to=apply_to).matches("q", each)}
        assert found == resources == APPLY_TO[apply_to]

    def test_a_key_that_does_not_fit_passes_it_over_on_queues(self) -> None:
        limited = policy(definition={"max-length": 2, "delivery-limit": 3})
        assert not limited.matches("q", "classic")
        assert limited.matches("q", "quorum")
        assert limited.matches("x", "exchange")

    def test_a_catastrophic_pattern_ends_in_time(self) -> None:
        catastrophic = policy(pattern="^(a+)+$")
        started = time.thread_time()
        assert not catastrophic.matches("a" * 200 + "!", "classic")
        assert time.thread_time() - started < 2


class TestWinning:
    def test_none_matches(self) -> None:
        assert find_policy([], "q", "classic") is None
        assert find_policy([policy(pattern="^x")], "q", "classic") is None

    def test_the_highest_priority_wins_whatever_the_order(self) -> None:
        policies = [policy("a", priority=-1), policy("b"), policy("c", priority=1), policy("d", priority=1.5)]
        for order in permutations(policies):
            assert find_policy(order, "q", "classic") is policies[-1]
        assert find_policy(policies[:2], "q", "classic") is policies[1]
        assert find_policy(policies[:1], "q", "classic") is policies[0]

    def test_of_equals_the_smallest_name_wins(self) -> None:
        for order in permutations([policy("b"), policy("a"), policy("c")]):
            won = find_policy(order, "q", "classic")
            assert won is not None
            assert won.name == "a"

    def test_one_for_exchanges_does_not_shadow_one_for_queues(self) -> None:
        """Rule 3.2.6."""
        high, low = policy("x", priority=9, apply_to="exchanges"), policy("q", apply_to="queues")
        assert find_policy([high, low], "n", "classic") is low
        assert find_policy([high, low], "n", "exchange") is high

    def test_one_for_all_shadows_even_where_it_means_nothing(self) -> None:
        high, low = policy("x", priority=9, definition={"alternate-exchange": "a"}), policy("q")
        assert find_policy([high, low], "n", "classic") is high

    def test_one_that_does_not_fit_gives_way(self) -> None:
        """Rule 3.2.7."""
        high = policy("high", priority=9, definition={"max-length": 2, "delivery-limit": 3})
        low = policy("low", definition={"max-length": 4})
        assert find_policy([high, low], "n", "classic") is low
        assert find_policy([high, low], "n", "quorum") is high
