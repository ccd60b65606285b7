"""Arguments, policy and operator policy taken together: the examples of the rules 3.3.x."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policies.keys import merge_operator
from leveret.policies.settings import QueueSettings, effective_settings

QueueType = Literal["classic", "quorum"]
NUMBERS = ("max-length", "max-length-bytes", "message-ttl", "expires")


def settings(
    queue_type: QueueType = "classic", policy: dict[str, Any] | None = None, **arguments: Any
) -> QueueSettings:
    """Effective settings; arguments without their x- and with _ for -."""
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    return effective_settings(queue_type, named, policy or {})


def test_nothing_set() -> None:
    assert settings() == settings("quorum") == QueueSettings()
    assert QueueSettings().overflow == "drop-head"
    assert QueueSettings().max_length is None


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("name", ["max-length", "max-length-bytes", "message-ttl"])
def test_the_smaller_number_counts(queue_type: QueueType, name: str) -> None:
    field = name.replace("-", "_")
    for argument, policy in ((3, 20), (20, 3), (3, 3)):
        assert getattr(settings(queue_type, {name: policy}, **{field: argument}), field) == 3
    assert getattr(settings(queue_type, {name: 0}, **{field: 3}), field) == 0
    assert getattr(settings(queue_type, {}, **{field: 3}), field) == 3
    assert getattr(settings(queue_type, {name: 3}), field) == 3


def test_expires_is_the_smaller_one_on_classic_queues_and_the_policys_on_quorum_queues() -> None:
    assert settings("classic", {"expires": 20}, expires=3).expires == 3
    assert settings("quorum", {"expires": 20}, expires=3).expires == 20


@pytest.mark.parametrize(
    ("name", "argument", "policy"),
    [
        ("overflow", "reject-publish", "drop-head"),
        ("dead-letter-exchange", "a", "p"),
        ("dead-letter-exchange", "", "p"),
        ("dead-letter-routing-key", "a", "p"),
        ("queue-mode", "default", "lazy"),
    ],
)
def test_the_argument_comes_first_on_classic_queues(name: str, argument: str, policy: str) -> None:
    field = name.replace("-", "_")
    assert getattr(settings("classic", {name: policy}, **{field: argument}), field) == argument
    assert getattr(settings("classic", {name: policy}), field) == policy


def test_on_quorum_queues_the_policys_overflow_comes_first_and_the_arguments_dead_lettering() -> None:
    policy = {"overflow": "reject-publish", "dead-letter-exchange": "p", "dead-letter-routing-key": "p"}
    found = settings(
        "quorum", policy, overflow="drop-head", dead_letter_exchange="a", dead_letter_routing_key="a", delivery_limit=3
    )
    assert (found.overflow, found.dead_letter_exchange, found.dead_letter_routing_key) == ("reject-publish", "a", "a")
    assert found.delivery_limit == 3


def test_keys_are_resolved_one_by_one() -> None:
    found = settings("classic", {"max-length-bytes": 4}, max_length=3)
    assert (found.max_length, found.max_length_bytes) == (3, 4)
    found = settings("classic", {"dead-letter-routing-key": "k"}, dead_letter_exchange="")
    assert (found.dead_letter_exchange, found.dead_letter_routing_key) == ("", "k")
    assert settings("classic", {"dead-letter-routing-key": "k"}).dead_letter_exchange is None


def test_argument_8_user_20_operator_3() -> None:
    """Rule 3.3.6."""
    merged = merge_operator({"max-length": 20}, {"max-length": 3})
    assert settings("classic", merged, max_length=8).max_length == 3
    assert settings("classic", {"max-length": 20}, max_length=8).max_length == 8


def test_an_argument_beats_even_the_operators_overflow() -> None:
    """Rule 3.3.7."""
    merged = merge_operator({"overflow": "drop-head"}, {"overflow": "reject-publish"})
    assert settings("classic", merged).overflow == "reject-publish"
    assert settings("classic", merged, overflow="drop-head").overflow == "drop-head"


def test_keys_of_other_queue_types_mean_nothing() -> None:
    assert settings("classic", {"delivery-limit": 3, "dead-letter-strategy": "at-least-once"}) == QueueSettings()
    assert settings("quorum", {"queue-mode": "lazy"}) == QueueSettings()
    assert settings("quorum", {"delivery-limit": 3}, delivery_limit=5).delivery_limit == 3


def test_no_delivery_limit_is_more_than_one() -> None:
    """As in RabbitMQ 4.0; an operator's limit holds."""
    assert settings("quorum", {"delivery-limit": 3}, delivery_limit=-1).delivery_limit == 3
    assert settings("quorum", {}, delivery_limit=-1).delivery_limit == -1


def test_arguments_that_mean_nothing_are_passed_over() -> None:
    assert settings("classic", {}, foo=1, max_priority=3, single_active_consumer=True) == QueueSettings()
    assert effective_settings("classic", {"max-length": 3}, {"x-max-length": 3}) == QueueSettings()


@given(
    st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 50)),
    st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 50)),
    st.dictionaries(st.sampled_from(NUMBERS), st.integers(1, 50)),
)
def test_a_classic_queue_is_bound_by_the_least_of_all_three(
    arguments: dict[str, int], user: dict[str, int], operator: dict[str, int]
) -> None:
    named = {f"x-{name}": value for name, value in arguments.items()}
    found = effective_settings("classic", named, merge_operator(user, operator))
    for name in NUMBERS:
        given_values = [each[name] for each in (arguments, user, operator) if name in each]
        assert getattr(found, name.replace("-", "_")) == min(given_values, default=None)
