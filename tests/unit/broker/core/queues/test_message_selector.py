"""Which messages of a queue a filter selects."""

from __future__ import annotations

import re
from typing import Any

import pytest

from leveret.broker.core.queues.message_selector import (
    BODY_MAX,
    TOO_DEEP,
    TOO_LONG,
    TOO_MUCH,
    BodyConditions,
    Selector,
    UnreadableBody,
)
from leveret.broker.core.scheduling.turn import UNLIMITED, TimeSlice
from leveret.policies.message_filter import MessageFilter
from leveret.protocol.field_table import longstr
from leveret.storage.message import Message
from tests.support.queue_content import envelope
from tests.support.stepping_clock import SteppingClock
from tests.support.steps import result_of

SECOND = 1_000_000
COMMON = envelope("orders.eu", exchange="shop", headers=(("colour", longstr("red")),), expiration=5000)


@pytest.mark.parametrize(
    ("conditions", "wanted"),
    [
        ({}, True),
        ({"routing_key": "orders.*"}, True),
        ({"routing_key": "bills.*"}, False),
        ({"exchange": "shop"}, True),
        ({"exchange": ""}, False),
        ({"headers": {"colour": "red"}}, True),
        ({"headers": {"colour": "blue"}}, False),
        ({"properties": {"expiration": "5000"}}, True),
        ({"properties": {"expiration": "5"}}, False),
        ({"properties": {"app_id": "x"}}, False),
        ({"body": {"total": 7}}, True),
        ({"body": {"total": 8}}, False),
        ({"older_than": 3}, True),
        ({"older_than": 3.5}, False),
        ({"newer_than": 3.5}, True),
        ({"newer_than": 3}, False),
        ({"routing_key": "orders.*", "headers": {"colour": "red"}, "body": {"total": 7}, "older_than": 3}, True),
        ({"routing_key": "bills.*", "headers": {"colour": "red"}, "body": {"total": 7}, "older_than": 3}, False),
        ({"routing_key": "bills.*", "body": {"total": 7}, "match": "any"}, True),
        ({"routing_key": "bills.*", "headers": {"colour": "blue"}, "body": {"total": 8}, "match": "any"}, False),
    ],
)
def test_each_condition(conditions: dict[str, Any], wanted: bool) -> None:
    selector = Selector(MessageFilter(**conditions))
    message = Message(COMMON, b'{"total": 7}')
    assert selector.wants(1, message, 10 * SECOND, 13 * SECOND, UNLIMITED) is wanted


def test_messages_of_different_envelopes_and_of_one() -> None:
    selector = Selector(MessageFilter(routing_key="a", body={"n": 1}))
    a, b = envelope("a"), envelope("b")
    messages = [Message(a, b'{"n": 1}'), Message(a, b'{"n": 2}'), Message(b, b'{"n": 1}'), Message(a, b'{"n": 1}')]
    assert [selector.wants(key, each, 0, 0, UNLIMITED) for key, each in enumerate(messages)] == [
        True,
        False,
        False,
        True,
    ]


def test_a_message_that_arrives_in_the_future_has_no_age() -> None:
    message = Message(COMMON, b"")
    when = 13 * SECOND, 10 * SECOND
    assert not Selector(MessageFilter(older_than=0.1)).wants(1, message, *when, UNLIMITED)
    assert Selector(MessageFilter(newer_than=0.1)).wants(1, message, *when, UNLIMITED)


def test_it_goes_on_within_a_message() -> None:
    selector, body = Selector(MessageFilter(body={"[*]": 1})), b"[" + b"0," * 20_000 + b"1]"
    slices = 1
    while (wanted := selector.wants((0, 1), Message(COMMON, body), 0, 0, TimeSlice(SteppingClock()))) is None:
        assert selector.is_checking
        slices += 1
    assert (wanted, selector.is_checking) == (True, False)
    assert slices > 10
    assert selector.wants((0, 1), Message(COMMON, body), 0, 0, TimeSlice(SteppingClock())) is None
    assert selector.wants((0, 2), Message(COMMON, b"[1]"), 0, 0, UNLIMITED), "another message instead"


def test_no_step_decodes_or_compares_all_of_a_long_body() -> None:
    body = b"[" + b"0," * 199_999 + b"0]"
    passed, few = result_of(BodyConditions({"[1]": 1}, is_any=True).steps(body))
    assert (passed, few > 80) == (False, True)
    passed, many = result_of(BodyConditions({"[*]": 1, "[*].x": 1}, is_any=True).steps(body))
    assert (passed, many >= few + 2 * 200_000 // 256) == (False, True)


@pytest.mark.parametrize(
    ("paths", "body", "problem"),
    [
        ({"[0]": 1}, b"[" + b" " * BODY_MAX + b"1]", TOO_LONG),
        ({f"[*][{at}]": 1 for at in range(60)}, b"[" + b"0," * 20_000 + b"0]", TOO_MUCH),
        ({"[0]": 1}, b"[" * 1000 + b"]" * 1000, TOO_DEEP),
        ({"[0]": 1}, b"[" * 100_000 + b"]" * 100_000, TOO_DEEP),
    ],
    ids=["long", "much", "deep", "long and deep"],
)
def test_a_body_that_cannot_be_checked(paths: dict[str, Any], body: bytes, problem: str) -> None:
    with pytest.raises(UnreadableBody, match=re.escape(problem)):
        result_of(BodyConditions(paths, is_any=True).steps(body))


def test_values_as_deep_as_can_be_are_compared() -> None:
    """To compare values takes as deep a stack as to decode them."""
    body = b"[" * 400 + b"]" * 400
    deep: list[Any] = []
    for _ in range(399):
        deep = [deep]
    assert result_of(BodyConditions({"": deep}, is_any=True).steps(body))[0]
