"""Which messages of a queue a filter selects."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.selecting import Selector
from leveret.policies.message_filter import MessageFilter
from leveret.protocol.field_table import longstr
from leveret.storage.message import Message
from tests.support.queue_content import envelope

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
    assert selector.wants(Message(COMMON, b'{"total": 7}'), 10 * SECOND, 13 * SECOND) is wanted


def test_messages_of_different_envelopes_and_of_one() -> None:
    selector = Selector(MessageFilter(routing_key="a", body={"n": 1}))
    a, b = envelope("a"), envelope("b")
    messages = [Message(a, b'{"n": 1}'), Message(a, b'{"n": 2}'), Message(b, b'{"n": 1}'), Message(a, b'{"n": 1}')]
    assert [selector.wants(each, 0, 0) for each in messages] == [True, False, False, True]


def test_a_message_that_arrives_in_the_future_has_no_age() -> None:
    message = Message(COMMON, b"")
    assert not Selector(MessageFilter(older_than=0.1)).wants(message, 13 * SECOND, 10 * SECOND)
    assert Selector(MessageFilter(newer_than=0.1)).wants(message, 13 * SECOND, 10 * SECOND)
