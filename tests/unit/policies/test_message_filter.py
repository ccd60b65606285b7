from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.message_selector import BodyConditions
from leveret.policies.message_filter import CONDITIONS_MAX, FilterError, MessageFilter, json_or_text, read_filter
from tests.support.steps import result_of

HEADERS = {
    "tenant": "a",
    "attempt": 1,
    "urgent": True,
    "x-death": [
        {"queue": "work", "reason": "rejected", "count": 2},
        {"queue": "earlier", "reason": "expired", "count": 1},
    ],
}


def passes(
    document: object,
    exchange: str = "",
    routing_key: str = "",
    headers: dict[str, Any] | None = None,
    properties: dict[str, Any] | None = None,
    body: bytes = b"",
    age: float = 0.0,
) -> bool:
    """Whether a message passes a filter."""
    wanted = read_filter(document)
    found = wanted.passes_envelope(exchange, routing_key, headers or {}, properties or {})
    if found is None:
        found = wanted.passes_age(age)
    if found is None:
        return result_of(BodyConditions(wanted.body, wanted.match == "any").steps(body))[0]
    return found


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
    assert passes(document, "dlx", "orders.eu.new", HEADERS) is expected


def test_headers_in_text_are_json_or_texts() -> None:
    wanted = "header.tenant=a\nheader.attempt=1"
    assert passes(wanted, headers=HEADERS)
    assert not passes(wanted, headers=HEADERS | {"attempt": "1"})


def test_who_never_died_has_no_reason() -> None:
    assert not passes({"reason": "rejected"}, "", "q")
    assert not passes({"queue": "q"}, "", "q", {"x-death": "made up"})
    assert not passes({"queue": "q"}, "", "q", {"x-death": []})


@pytest.mark.parametrize("document", [None, {}, {"headers": {}}])
def test_no_condition_is_empty(document: object) -> None:
    assert read_filter(document) == MessageFilter()
    assert read_filter(document).is_empty


@pytest.mark.parametrize(
    "document", [{"routing_key": ""}, {"exchange": ""}, {"headers": {"a": None}}, {"reason": "expired"}, {"queue": ""}]
)
def test_a_condition_is_not_empty(document: object) -> None:
    assert not read_filter(document).is_empty


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "filter must be an object"),
        ("x", "filter takes <key>=<value>, not x"),
        ('body["a=b"]', 'filter takes <key>=<value>, not body["a=b"]'),
        (5, "filter must be an object"),
        (
            {"key": "x"},
            "filter: unknown key 'key', known are routing_key, exchange, headers, reason, queue, properties, body,"
            " older_than, newer_than, match",
        ),
        ({"match": "some"}, "filter: match 'some' is not one of all, any"),
        ({"properties": {"colour": "red"}}, "filter: unknown property 'colour', known are content_type,"),
        ({"properties": {"type": 5}}, "filter: property type must be a string"),
        ({"properties": {"priority": "5"}}, "filter: property priority must be an integer"),
        ({"body": {"a..b": 1}}, "filter: body: 'a..b' is not a path such as"),
        ({"body": {'["a': 1}}, "filter: body: '[\"a' is not a path such as"),
        ({"older_than": "soon"}, "filter: older_than must be a number of seconds, or a duration such as"),
        ({"newer_than": -1}, "filter: newer_than must be a number of seconds"),
        ({"routing_key": 5}, "filter: routing_key must be a string"),
        ({"headers": "x"}, "filter: headers must be an object"),
        ({"properties": "x"}, "filter: properties must be an object"),
        ({"body": "x"}, "filter: body must be an object"),
        ({"reason": "bored"}, "filter: reason 'bored' is not one of rejected, expired, maxlen, delivery_limit"),
    ],
)
def test_what_is_no_filter(document: object, complaint: str) -> None:
    with pytest.raises(FilterError) as caught:
        read_filter(document)
    assert str(caught.value).startswith(complaint)


BODY = b'{"order": {"id": 5, "items": [{"sku": "a"}, {"sku": "b"}], "c=d": 1}, "a.b": true}'
PROPERTIES = {"content_type": "application/json", "priority": 5}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("property.content_type=application/json", True),
        ("property.content-type=text/plain", False),
        ("property.priority=5", True),
        ("property.app_id=x", False),
        ("body.order.id=5", True),
        ("body.order.id=true", False),
        ("body.$.order.id=5", True),
        ("body.order.items[1].sku=b", True),
        ("body.order.items[2].sku=b", False),
        ("body.order.items[*].sku=a", True),
        ("body.order.items[*].sku=c", False),
        ('body["a.b"]=true', True),
        ('body["a=b"]=true', False),
        ('body.order["c=d"]=1', True),
        ("older_than=60", True),
        ("older_than=1m", True),
        ("older_than=2m", False),
        ("newer_than=1h", True),
        ("newer_than=30s", False),
        ("routing_key=a\nolder_than=1m", False),
        ("routing_key=a\nolder_than=1m\nmatch=any", True),
        ("routing_key=k\nolder_than=2m\nmatch=any", True),
        ("routing_key=a\nolder_than=2m\nmatch=any", False),
        ("older_than=2m\nbody.order.id=5\nmatch=any", True),
        ("older_than=1m\nbody.order.id=6", False),
        ("routing_key=a\nexchange=e\nmatch=any", False),
        ("match=any", True),
        ('{"match": "any", "headers": {"n": 1}, "body": {"order.id": 5}}', True),
    ],
)
def test_conditions_as_text(document: str, expected: bool) -> None:
    assert passes(document, "x", "k", {}, PROPERTIES, BODY, 90.0) is expected
    long = BODY[:-1] + b', "more": [%s 0]}' % (b"0," * 20_000)
    assert passes(document, "x", "k", {}, PROPERTIES, long, 90.0) is expected, "long bodies are decoded otherwise"


@pytest.mark.parametrize(("seconds", "expected"), [(0, True), (0.5, True), (90, True), (90.5, False)])
def test_ages_are_numbers_of_seconds(seconds: float, expected: bool) -> None:
    assert passes({"older_than": seconds}, age=90.0) is expected


@pytest.mark.parametrize("body", [b"", b"{", b"\xff"])
def test_a_body_that_is_no_json_has_no_values(body: bytes) -> None:
    assert not passes({"body": {"": "x"}}, body=body)


def test_a_path_into_something_else() -> None:
    assert not passes("body.a[0].b=1", body=b'{"a": {"0": {"b": 1}}}')
    assert passes({"body": {"$": 7}}, body=b"7")


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"routing_key": "*a" * 600}, "filter: the condition routing_key has 1211 characters, 1024 are allowed"),
        ({"body": {"a." * 600 + "a": 1}}, f"filter: the condition {'a.' * 20} has 1202 characters, 1024 are allowed"),
        ({"headers": {"a": "x" * 1024}}, "filter: the condition a has 1025 characters, 1024 are allowed"),
        ({"body": {"a": [0] * 1000}}, "filter: the condition a has 3001 characters, 1024 are allowed"),
        ({"body": {f"[{n}]": 1 for n in range(60)}, "headers": {f"{n}": 1 for n in range(41)}},
         "filter has 101 conditions, 100 are allowed"),
        ("x" * (CONDITIONS_MAX * 1024 + 1), "filter has 102401 characters, 102400 are allowed"),
        ("{" * 5000, "filter is not a JSON object: {{"),
    ],
)  # fmt: skip
def test_filters_have_bounds(document: object, complaint: str) -> None:
    with pytest.raises(FilterError) as caught:
        read_filter(document)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("true", True), ("five", "five"), ("[" * 100_000, "[" * 100_000)]
)
def test_what_is_not_json_is_a_text(text: str, value: object) -> None:
    assert json_or_text(text) == value
