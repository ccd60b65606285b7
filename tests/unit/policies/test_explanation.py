from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.explanation import Explanation, explain_settings, ineffective_policies
from leveret.policies.policy import Policy


def explain(
    argument: Any = None, policy: Any = None, operator: Any = None, key: str = "max-length", queue_type: str = "classic"
) -> Explanation:
    def said(name: str, value: Any) -> dict[str, Any]:
        return {} if value is None else {name: value}

    found = explain_settings(queue_type, said(f"x-{key}", argument), said(key, policy), said(key, operator))
    assert [each.key for each in found] == [key]
    return found[0]


class TestWhoWins:
    @pytest.mark.parametrize(
        ("argument", "policy", "operator", "in_force", "source"),
        [
            (5, None, None, 5, "argument"),
            (None, 5, None, 5, "policy"),
            (None, None, 5, 5, "operator policy"),
            (5, 9, None, 5, "argument"),
            (9, 5, None, 5, "policy"),
            (5, 5, None, 5, "argument"),
            (None, 9, 5, 5, "operator policy"),
            (None, 5, 9, 5, "policy"),
            (3, 9, 5, 3, "argument"),
            (7, 9, 5, 5, "operator policy"),
            (7, 5, 9, 5, "policy"),
        ],
    )
    def test_of_numbers_the_smallest(
        self, argument: int | None, policy: int | None, operator: int | None, in_force: int, source: str
    ) -> None:
        explanation = explain(argument, policy, operator)
        assert (explanation.in_force, explanation.source) == (in_force, source)
        assert (explanation.argument, explanation.policy, explanation.operator_policy) == (argument, policy, operator)

    @pytest.mark.parametrize("argument", ["abc", True, [1]])
    def test_what_is_no_number_is_larger_than_all_numbers(self, argument: object) -> None:
        explanation = explain(argument, None, 5, "delivery-limit", "quorum")
        assert (explanation.in_force, explanation.source) == (5, "operator policy")

    def test_of_words_the_argument(self) -> None:
        explanation = explain("drop-head", "reject-publish", key="overflow")
        assert (explanation.in_force, explanation.source) == ("drop-head", "argument")
        assert explanation.reason == "the argument comes before the policy"

    def test_on_quorum_queues_the_policy_comes_first_for_some(self) -> None:
        explanation = explain("drop-head", "reject-publish", key="overflow", queue_type="quorum")
        assert (explanation.in_force, explanation.source) == ("reject-publish", "policy")
        assert explanation.reason == "the policy comes before the argument"

    def test_an_operator_may_replace_a_word(self) -> None:
        explanation = explain(None, "reject-publish", "drop-head", key="overflow")
        assert (explanation.in_force, explanation.source) == ("drop-head", "operator policy")
        assert explanation.reason == "the operator policy replaces the policy's value"


class TestReasons:
    @pytest.mark.parametrize(
        ("values", "reason"),
        [
            ((5, None, None), "only the argument sets it"),
            ((None, 5, None), "only the policy sets it"),
            ((None, None, 5), "only the operator policy sets it"),
            ((None, 9, 5), "the smaller one counts: 9 in the policy, 5 in the operator policy"),
            ((7, 9, 5), "the smaller one counts: 7 in the argument, 5 in the operator policy"),
            ((7, 9, None), "the smaller one counts: 7 in the argument, 9 in the policy"),
            ((-1, 9, None), "-1 in the argument is no limit, 9 in the policy is one"),
        ],
    )
    def test_reason(self, values: tuple[int | None, int | None, int | None], reason: str) -> None:
        assert explain(*values).reason == reason

    def test_of_delays_of_a_retry_the_larger_one_counts(self) -> None:
        key = "delayed-retry-min"
        reason = explain(policy=5, operator=9, key=key).reason
        assert reason == "the larger one counts: 5 in the policy, 9 in the operator policy"
        assert (explain(policy=9, operator=5, key=key).in_force, explain(policy=5, operator=9, key=key).in_force) == (
            9,
            9,
        )

    def test_a_setting_that_the_queue_type_does_not_have(self) -> None:
        explanation = explain(policy="lazy", key="queue-mode", queue_type="quorum")
        assert (explanation.in_force, explanation.source) == (None, None)
        assert explanation.reason == "quorum queues do not have this setting"

    def test_nothing_set_is_nothing_to_explain(self) -> None:
        assert explain_settings("classic", {"x-max-priority": 5}, {}, {}) == []


class TestPassedOver:
    def test_each_with_its_reason(self) -> None:
        first = Policy("first", "^q", {"max-length": 1}, 5)
        lower = Policy("lower", "^q", {"max-length": 2}, 1)
        equal = Policy("later", "^q", {"max-length": 2}, 5)
        exchanges = Policy("exchanges", "", {"alternate-exchange": "x"}, 9, "exchanges")
        unfit = Policy("unfit", "", {"max-age": "1h"}, 9)
        other = Policy("other", "^z", {"max-length": 2}, 9)
        found = ineffective_policies([first, lower, equal, exchanges, unfit, other], "q1", "classic")
        assert {policy.name: reason for policy, reason in found} == {
            "lower": "'first' has the higher priority (5 against 1)",
            "later": "'first' has the same priority, and of those the smallest name counts",
            "exchanges": "it applies to exchanges",
            "unfit": "it has a key that does not fit classic queues, so none of it applies",
        }

    def test_none_where_none_matches(self) -> None:
        assert ineffective_policies([Policy("p", "^x", {"max-length": 1})], "q", "classic") == []
