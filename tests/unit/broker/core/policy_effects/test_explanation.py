from __future__ import annotations

import json
from typing import Any

import pytest

from leveret.broker.core.policy_effects import describe_fill, explain_queue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, publish
from tests.support.queues import declare, new_vhost


@pytest.fixture
def vhost() -> VirtualHost:
    return new_vhost(ManualLoop())


def test_settings_of_a_queue_with_their_sources(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=10, queue_mode="default"))
    vhost.policies.set(Policy("user", "^q", {"max-length": 20, "queue-mode": "lazy"}, 1, "queues"), operator=False)
    vhost.policies.set(Policy("weak", "", {"message-ttl": 5}), operator=False)
    vhost.policies.set(Policy("cap", "", {"max-length": 4}), operator=True)
    publish(queue, "a", "b")
    explained = json.loads(json.dumps(explain_queue(queue, vhost.policies)))
    assert explained["arguments"] == {"x-max-length": 10, "x-queue-mode": "default"}
    assert explained["policy"]["name"] == "user"
    assert explained["operator_policy"] == {
        "name": "cap",
        "pattern": "",
        "definition": {"max-length": 4},
        "priority": 0,
        "apply-to": "all",
    }
    weak = {"kind": "policy", "name": "weak", "reason": "'user' has the higher priority (1 against 0)"}
    assert explained["passed_over"] == [weak]
    assert explained["in_force"] == {"max-length": 4, "queue-mode": "default"}
    length = next(setting for setting in explained["settings"] if setting["key"] == "max-length")
    assert (length["argument"], length["policy"], length["operator_policy"]) == (10, 20, 4)
    assert (length["in_force"], length["source"]) == (4, "operator policy")
    assert explained["fill"]["percent"] == 50.0


def test_explained_settings_equal_the_effective_ones(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=7, message_ttl=9, overflow="reject-publish"))
    vhost.policies.set(Policy("p", "", {"max-length": 3, "overflow": "drop-head", "expires": 60000}), operator=False)
    in_force = explain_queue(queue, vhost.policies)["in_force"]
    settings = queue.settings
    assert in_force == {
        "max-length": settings.max_length,
        "message-ttl": settings.message_ttl,
        "overflow": settings.overflow,
        "expires": settings.expires,
    }


def test_a_queue_without_limits(vhost: VirtualHost) -> None:
    explained = explain_queue(declare(vhost), vhost.policies)
    assert (explained["policy"], explained["operator_policy"], explained["settings"]) == (None, None, [])
    assert explained["fill"]["percent"] is None
    assert explained["fill"]["at_limit"] is None


@pytest.mark.parametrize(
    ("given", "shares", "percent", "at_limit"),
    [
        ({"max_length": 8}, (25.0, None), 25.0, "the oldest messages are dropped"),
        ({"max_length_bytes": 3}, (None, 66.7), 66.7, "the oldest messages are dropped"),
        ({"max_length": 4, "max_length_bytes": 20}, (50.0, 10.0), 50.0, "the oldest messages are dropped"),
        ({"max_length": 2, "overflow": "reject-publish"}, (100.0, None), 100.0, "new messages are refused"),
    ],
)
def test_fill_level(
    vhost: VirtualHost, given: dict[str, Any], shares: tuple[float | None, float | None], percent: float, at_limit: str
) -> None:
    queue = declare(vhost, arguments=arguments(**given))
    publish(queue, "a", "b")
    fill = describe_fill(queue)
    assert (fill["messages_percent"], fill["bytes_percent"]) == shares
    assert (fill["percent"], fill["at_limit"]) == (percent, at_limit)


def test_messages_that_wait_for_their_retry_count_for_limits(vhost: VirtualHost) -> None:
    queue = declare(vhost, arguments=arguments(max_length=4, delayed_retry_type="all", delayed_retry_min=1000))
    publish(queue, "aaa", "b")
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    queue.requeue([entry])
    fill = describe_fill(queue)
    assert (fill["messages_ready"], fill["message_bytes_ready"]) == (1, 1)
    assert (fill["messages_counted"], fill["message_bytes_counted"], fill["percent"]) == (2, 4, 50.0)


def test_a_limit_of_0_is_always_reached(vhost: VirtualHost) -> None:
    assert describe_fill(declare(vhost, arguments=arguments(max_length=0)))["percent"] == 100.0
