"""Rules 3.3.1 to 3.3.9: what comes of arguments, policy and operator policy together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bounded import refill
from tests.conformance.deaths import arrival, arrivals, dead_lettering
from tests.conformance.fixtures import Poll, Unique
from tests.conformance.http_api import path
from tests.conformance.leases import gone
from tests.conformance.operator_policies import NAME, OPERATOR, PolicySet, check, kept, of, only, refusal
from tests.conformance.topology import counts, drain, fill, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

LONG = 600_000
POLICY_FIELDS = ("policy", "operator_policy", "effective_policy_definition")


@pytest.mark.parametrize(("argument", "policy", "effective"), [(3, 5, 3), (5, 3, 3), (0, 3, 0), (3, 0, 0), (4, 4, 4)])
@pytest.mark.parametrize("key", ["max-length", "max-length-bytes"])
def test_3_3_1_the_smaller_limit(
    channel: Channel, unique: Unique, policies: PolicySet, key: str, argument: int, policy: int, effective: int
) -> None:
    queue = new_queue(channel, unique, arguments=[(f"x-{key}", "I", argument)])
    policies.set(only(queue), {key: policy})
    assert kept(channel, queue) == effective


@pytest.mark.parametrize(("argument", "policy"), [(20, LONG), (LONG, 20)])
def test_3_3_1_the_smaller_message_ttl(
    channel: Channel, unique: Unique, policies: PolicySet, argument: int, policy: int
) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-message-ttl", "I", argument))
    policies.set(only(queue), {"message-ttl": policy})
    fill(channel, queue, b"one")
    assert arrival(channel, letters).body == b"one"


@pytest.mark.parametrize(("argument", "policy"), [(100, LONG), (LONG, 100)])
def test_3_3_1_the_smaller_expiry(
    channel: Channel, unique: Unique, policies: PolicySet, poll: Poll, argument: int, policy: int
) -> None:
    queue = unique()
    policies.set(only(queue), {"expires": policy})
    channel.queue_declare(queue, arguments=[("x-expires", "I", argument)])
    poll(lambda: gone(channel, queue))


@pytest.mark.parametrize(
    ("argument", "policy", "expected"),
    [("drop-head", "reject-publish", [b"4", b"5"]), ("reject-publish", "drop-head", [b"1", b"2"])],
)
def test_3_3_1_overflow_of_the_argument(
    channel: Channel, unique: Unique, policies: PolicySet, argument: str, policy: str, expected: list[bytes]
) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 2), ("x-overflow", "S", argument)])
    policies.set(only(queue), {"overflow": policy})
    fill(channel, queue, *numbered(5))
    assert drain(channel, queue) == expected


def test_3_3_2_keys_are_resolved_separately(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 3)])
    policies.set(only(queue), {"max-length-bytes": 4})
    refill(channel, queue, b"x", b"x", b"x", b"x")
    assert counts(channel, queue)[0] == 3
    fill(channel, queue, b"yyy")
    assert drain(channel, queue) == [b"x", b"yyy"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("expires", LONG),
        ("message-ttl", 0),
        ("max-length", 0),
        ("max-length-bytes", 0),
        ("max-in-memory-length", 0),
        ("max-in-memory-bytes", 0),
        ("delivery-limit", 0),
    ],
)
def test_3_3_4_keys_of_operator_policies(policies: PolicySet, key: str, value: int) -> None:
    assert policies.put(NAME, of({key: value}), OPERATOR).status == 201


@pytest.mark.departs("3.12.7")
@pytest.mark.parametrize(("key", "value"), [("overflow", "reject-publish"), ("queue-version", 2)])
def test_3_3_4_newer_keys_of_operator_policies(policies: PolicySet, key: str, value: Any) -> None:
    assert policies.put(NAME, of({key: value}), OPERATOR).status == 201


@pytest.mark.parametrize(
    ("key", "value", "printed"),
    [
        ("dead-letter-exchange", "x", '<<"x">>'),
        ("dead-letter-routing-key", "x", '<<"x">>'),
        ("alternate-exchange", "x", '<<"x">>'),
        ("queue-mode", "lazy", '<<"lazy">>'),
        ("dead-letter-strategy", "at-most-once", '<<"at-most-once">>'),
        ("max-age", "1h", '<<"1h">>'),
    ],
)
def test_3_3_4_other_keys_are_refused(policies: PolicySet, key: str, value: str, printed: str) -> None:
    reason = f'[{{<<"{key}">>,{printed}}}] are not recognised policy settings'
    check(policies.put(NAME, of({key: value}), OPERATOR), 400, refusal(reason, OPERATOR))


@pytest.mark.parametrize(("user", "operator"), [(3, 5), (5, 3)])
@pytest.mark.parametrize("key", ["max-length", "max-length-bytes"])
def test_3_3_5_the_smaller_number(
    channel: Channel, unique: Unique, policies: PolicySet, key: str, user: int, operator: int
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {key: user})
    policies.operator(only(queue), {key: operator})
    assert kept(channel, queue) == 3


def test_3_3_5_all_keys_of_both(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    letters, queue = new_queue(channel, unique), new_queue(channel, unique)
    policies.set(only(queue), {"dead-letter-exchange": "", "dead-letter-routing-key": letters, "max-length": 4})
    policies.operator(only(queue), {"max-length-bytes": 3, "message-ttl": LONG})
    fill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"3", b"4", b"5"]
    assert arrivals(channel, letters, 2) == [b"1", b"2"]


@pytest.mark.departs("3.12.7")
@pytest.mark.parametrize(
    ("user", "operator", "expected"),
    [("drop-head", "reject-publish", [b"1", b"2"]), ("reject-publish", "drop-head", [b"4", b"5"])],
)
def test_3_3_5_overflow_of_the_operator(
    channel: Channel, unique: Unique, policies: PolicySet, user: str, operator: str, expected: list[bytes]
) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 2, "overflow": user})
    policies.operator(only(queue), {"overflow": operator})
    fill(channel, queue, *numbered(5))
    assert drain(channel, queue) == expected


def test_3_3_6_all_three(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 8)])
    name = policies.set(only(queue), {"max-length": 20})
    limit = policies.operator(only(queue), {"max-length": 3})
    assert kept(channel, queue, 12) == 3
    policies.clear(limit, OPERATOR)
    assert kept(channel, queue, 12) == 8
    policies.clear(name)
    assert kept(channel, queue, 12) == 8


@pytest.mark.departs("3.12.7")
def test_3_3_7_an_argument_beats_the_overflow_of_the_operator(
    channel: Channel, unique: Unique, policies: PolicySet
) -> None:
    arguments: list[Triple] = [("x-max-length", "I", 2), ("x-overflow", "S", "reject-publish")]
    queue = new_queue(channel, unique, arguments=arguments)
    policies.operator(only(queue), {"overflow": "drop-head"})
    fill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"1", b"2"]


def test_3_3_8_equal_names_are_independent(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    policies.set(only(queue), {"max-length": 5}, name=queue)
    policies.operator(only(queue), {"max-length": 3}, name=queue)
    assert kept(channel, queue) == 3
    policies.clear(queue, OPERATOR)
    assert kept(channel, queue) == 5
    policies.operator(only(queue), {"max-length": 3}, name=queue)
    policies.clear(queue)
    assert kept(channel, queue) == 3


def policy_fields(policies: PolicySet, queue: str) -> list[Any]:
    """Return what the queue's object says of its policies."""
    found = policies.api.get(path("queues", policies.vhost, queue))
    return [found[field] for field in POLICY_FIELDS]


def test_3_3_9_the_object_of_a_queue(channel: Channel, unique: Unique, policies: PolicySet, poll: Poll) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 1)])
    name = policies.set(only(queue), {"max-length": 5, "overflow": "drop-head"})
    limit = policies.operator(only(queue), {"max-length": 3, "expires": LONG})
    merged = {"max-length": 3, "overflow": "drop-head", "expires": LONG}
    # RabbitMQ publishes these with its statistics, seconds later.
    poll(lambda: "policy" in policies.api.get(path("queues", policies.vhost, queue)))
    poll(lambda: policy_fields(policies, queue) == [name, limit, merged])


@pytest.mark.departs("none")
def test_3_3_9_at_once(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 1)])
    assert policy_fields(policies, queue) == [None, None, {}]
    name = policies.set(only(queue), {"max-length": 5, "overflow": "drop-head"})
    assert policy_fields(policies, queue) == [name, None, {"max-length": 5, "overflow": "drop-head"}]
    limit = policies.operator(only(queue), {"max-length": 3, "expires": LONG})
    merged = {"max-length": 3, "overflow": "drop-head", "expires": LONG}
    assert policy_fields(policies, queue) == [name, limit, merged]
    policies.clear(name)
    assert policy_fields(policies, queue) == [None, limit, {"max-length": 3, "expires": LONG}]
    policies.clear(limit, OPERATOR)
    assert policy_fields(policies, queue) == [None, None, {}]
