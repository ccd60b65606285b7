from __future__ import annotations

from typing import Any

import pytest

from leveret.policies.message_filter import FilterError, MessageFilter, read_filter

HEADERS = {
    "tenant": "a",
    "attempt": 1,
    "urgent": True,
    "x-death": [
        {"queue": "work", "reason": "rejected", "count": 2},
        {"queue": "earlier", "reason": "expired", "count": 1},
    ],
}


def passes(document: dict[str, Any], exchange: str = "dlx", routing_key: str = "orders.eu.new") -> bool:
    return read_filter(document).passes(exchange, routing_key, HEADERS)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, True),
        ({"routing_key": "orders.*"}, True),
        ({"routing_key": "orders.??.new"}, True),
        ({"routing_key": "orders.[a-f]u.*"}, True),
        ({"routing_key": "orders"}, False),
        ({"routing_key": "Orders.*"}, False),
        ({"exchange": "dlx"}, True),
        ({"exchange": ""}, False),
        ({"headers": {"tenant": "a"}}, True),
        ({"headers": {"tenant": "a", "attempt": 1}}, True),
        ({"headers": {"tenant": "b"}}, False),
        ({"headers": {"missing": "a"}}, False),
        ({"headers": {"attempt": True}}, False),
        ({"headers": {"urgent": 1}}, False),
        ({"headers": {"urgent": True}}, True),
        ({"reason": "rejected"}, True),
        ({"reason": "expired"}, False),
        ({"queue": "work"}, True),
        ({"queue": "earlier"}, False),
        ({"queue": "work", "reason": "rejected", "routing_key": "*", "headers": {"tenant": "a"}}, True),
        ({"queue": "work", "reason": "maxlen"}, False),
    ],
)
def test_all_conditions_have_to_hold(document: dict[str, Any], expected: bool) -> None:
    assert passes(document) is expected


def test_who_never_died_has_no_reason() -> None:
    assert not read_filter({"reason": "rejected"}).passes("", "q", {})
    assert not read_filter({"queue": "q"}).passes("", "q", {"x-death": "made up"})


@pytest.mark.parametrize("document", [None, {}, {"headers": {}}])
def test_no_condition_is_empty(document: object) -> None:
    assert read_filter(document) == MessageFilter()
    assert read_filter(document).is_empty


@pytest.mark.parametrize(
    "document",
    [{"routing_key": ""}, {"exchange": ""}, {"headers": {"a": None}}, {"reason": "expired"}, {"queue": ""}],
)
def test_a_condition_is_not_empty(document: object) -> None:
    assert not read_filter(document).is_empty


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "filter must be an object"),
        ("x", "filter must be an object"),
        ({"key": "x"}, "filter: unknown key 'key', known are routing_key, exchange, headers, reason, queue"),
        ({"routing_key": 5}, "filter: routing_key must be a string"),
        ({"headers": "x"}, "filter: headers must be an object"),
        ({"reason": "bored"}, "filter: reason 'bored' is not one of rejected, expired, maxlen, delivery_limit"),
    ],
)
def test_what_is_no_filter(document: object, complaint: str) -> None:
    with pytest.raises(FilterError) as caught:
        read_filter(document)
    assert str(caught.value) == complaint
