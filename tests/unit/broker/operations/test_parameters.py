from __future__ import annotations

import pytest

from leveret.broker.core.broker import Broker
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.operations.parameters import (
    InvalidLimits,
    clear_policy,
    escape_markup,
    policy_error_text,
    set_limits,
    set_policy,
)
from leveret.policies.policy import Policy, PolicyError
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_broker


@pytest.fixture
def broker() -> Broker:
    return new_broker(ManualLoop())


@pytest.fixture
def vhost(broker: Broker) -> VirtualHost:
    return broker.add_vhost("v")


def test_limits_replace_the_earlier_ones(broker: Broker, vhost: VirtualHost) -> None:
    set_limits(broker, vhost, {"max-connections": 1, "max-queues": -1})
    assert (vhost.max_connections, vhost.max_queues, vhost.has_limits) == (1, -1, True)
    set_limits(broker, vhost, {})
    assert (vhost.max_connections, vhost.max_queues, vhost.has_limits) == (None, None, True)


@pytest.mark.parametrize(
    ("limit", "value", "text"),
    [
        ("nope", 1, 'Unrecognised terms [{<<"nope">>,1}] in limits'),
        ("max-queues", "a", 'max-queues should be a number, actually was <<"a">>'),
    ],
)
def test_refused_limits_change_nothing(
    broker: Broker, vhost: VirtualHost, limit: str, value: object, text: str
) -> None:
    set_limits(broker, vhost, {"max-queues": 5})
    with pytest.raises(InvalidLimits) as caught:
        set_limits(broker, vhost, {"max-connections": 1, limit: value})
    assert str(caught.value) == text
    assert (vhost.max_connections, vhost.max_queues) == (None, 5)


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_is_cleared(vhost: VirtualHost, operator: bool) -> None:
    queue = declare(vhost)
    vhost.policies.set(Policy("p", "", {"max-length": 1}), operator)
    assert clear_policy(vhost, "p", not operator) is None
    steps = clear_policy(vhost, "p", operator)
    assert steps is not None
    for _ in steps:
        pass
    assert queue.settings.max_length is None
    assert clear_policy(vhost, "p", operator) is None


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_that_could_not_be_restored_is_cleared(vhost: VirtualHost, operator: bool) -> None:
    vhost.unrestored.add("operator_policy" if operator else "policy", ("v", "p"), "damaged")
    assert clear_policy(vhost, "p", not operator) is None
    steps = clear_policy(vhost, "p", operator)
    assert steps is not None
    assert list(steps) == []
    assert clear_policy(vhost, "p", operator) is None


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_that_could_not_be_restored_is_replaced(vhost: VirtualHost, operator: bool) -> None:
    kind = "operator_policy" if operator else "policy"
    vhost.unrestored.add(kind, ("v", "p"), "damaged")
    is_new, steps = set_policy(vhost, Policy("p", "^q", {"max-length": 1}), operator)
    list(steps)
    assert (is_new, vhost.unrestored.has(kind, "p")) == (True, False)


def test_texts_about_policies_are_escaped_but_not_for_operator_policies() -> None:
    error = PolicyError("<<1>>")
    assert policy_error_text(error, operator=False) == escape_markup("<<1>>") == "&lt;&lt;1&gt;&gt;"
    assert policy_error_text(error, operator=True) == "<<1>>"
