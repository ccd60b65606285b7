"""Rules 3.1.5 to 3.1.11: which policies are refused, with which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import path
from tests.conformance.operator_policies import KINDS, NAME, OPERATOR, USER, PolicySet, check, of, refusal

# Key, values, what they are said not to be a valid …, whether operator policies have the key.
INVALID: list[tuple[str, list[tuple[Any, str]], str, bool]] = [
    (
        "max-length",
        [(-1, "-1"), ("10", '<<"10">>'), (1.5, "1.5"), (True, "true"), (None, "null"), ([1], "[1]")],
        "maximum length",
        True,
    ),
    ("max-length-bytes", [(-1, "-1"), ("10", '<<"10">>'), (False, "false")], "maximum length in bytes", True),
    ("message-ttl", [(-1, "-1"), ("", "<<>>"), (0.5, "0.5")], "message TTL", True),
    ("expires", [(0, "0"), (-1, "-1"), ("1", '<<"1">>')], "queue expiry", True),
    ("delivery-limit", [(-1, "-1"), ("a", '<<"a">>')], "delivery limit", True),
    ("max-in-memory-length", [(-1, "-1")], "maximum memory in bytes", True),
    ("max-in-memory-bytes", [(-1, "-1")], "maximum memory in bytes", True),
    ("overflow", [("bogus", '<<"bogus">>'), ("Drop-Head", '<<"Drop-Head">>'), (1, "1")], "overflow value", False),
    ("queue-mode", [("bogus", '<<"bogus">>'), (1, "1")], "queue-mode value", False),
    ("queue-version", [(3, "3"), (0, "0"), ("1", '<<"1">>')], "queue-version value", False),
    ("dead-letter-exchange", [(1, "1"), (None, "null")], "dead letter exchange name", False),
    ("dead-letter-routing-key", [(1, "1"), (True, "true")], "dead letter routing key", False),
    ("alternate-exchange", [(1, "1"), ([], "[]")], "alternate exchange name", False),
    ("dead-letter-strategy", [("bogus", '<<"bogus">>')], "dead letter strategy", False),
    ("stream-max-segment-size-bytes", [(3_000_000_001, "3000000001")], "segment size", False),
    ("queue-leader-locator", [("bogus", '<<"bogus">>')], "queue leader locator value", False),
]
ROWS = [
    (key, value, f"{printed} is not a valid {what}", operator)
    for key, values, what, operator in INVALID
    for value, printed in values
]
VALID: list[tuple[str, list[Any]]] = [
    ("alternate-exchange", ["", "missing"]),
    ("dead-letter-exchange", ["", "missing"]),
    ("dead-letter-routing-key", ["", "key"]),
    ("dead-letter-strategy", ["at-most-once", "at-least-once"]),
    ("message-ttl", [0, 315_360_000_001]),
    ("expires", [1, 315_360_000_001]),
    ("max-length", [0, 1 << 62]),
    ("max-length-bytes", [0]),
    ("max-in-memory-length", [0]),
    ("max-in-memory-bytes", [0]),
    ("queue-mode", ["default", "lazy"]),
    ("queue-version", [1, 2]),
    ("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"]),
    ("delivery-limit", [0]),
    ("max-age", ["1h"]),
    ("stream-max-segment-size-bytes", [1, 3_000_000_000]),
    ("queue-leader-locator", ["client-local"]),
    ("initial-cluster-size", [1]),
]


@pytest.mark.parametrize(("key", "value", "reason"), [row[:3] for row in ROWS])
def test_3_1_5_reasons(policies: PolicySet, key: str, value: Any, reason: str) -> None:
    check(policies.put(NAME, of({key: value})), 400, refusal(reason))
    assert policies.api.ask("GET", path(USER, policies.vhost, NAME)).status == 404


@pytest.mark.parametrize(("key", "value", "reason"), list({row[0]: row[:3] for row in ROWS if row[3]}.values()))
def test_3_1_5_reasons_for_operators(policies: PolicySet, key: str, value: Any, reason: str) -> None:
    check(policies.put(NAME, of({key: value}), OPERATOR), 400, refusal(reason, OPERATOR))


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_5_the_first_key_by_name_is_blamed(policies: PolicySet, kind: str) -> None:
    answer = policies.put(NAME, of({"message-ttl": -1, "max-length": -1, "expires": 0}), kind)
    check(answer, 400, refusal("0 is not a valid queue expiry", kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("definition", "printed"),
    [
        ({"nope": 1}, '[{<<"nope">>,1}]'),
        ({"nope": "x", "b": True}, '[{<<"b">>,true},{<<"nope">>,<<"x">>}]'),
        ({"x-max-length": 1}, '[{<<"x-max-length">>,1}]'),
        ({"max-priority": 1, "max-length": 1}, '[{<<"max-priority">>,1}]'),
        ({"queue-type": "quorum"}, '[{<<"queue-type">>,<<"quorum">>}]'),
        ({"single-active-consumer": True}, '[{<<"single-active-consumer">>,true}]'),
    ],
)
def test_3_1_6_unknown_keys(policies: PolicySet, kind: str, definition: dict[str, Any], printed: str) -> None:
    reason = f"{printed} are not recognised policy settings"
    check(policies.put(NAME, of(definition), kind), 400, refusal(reason, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_6_known_keys_are_checked_first(policies: PolicySet, kind: str) -> None:
    answer = policies.put(NAME, of({"a": 1, "max-length": -1}), kind)
    check(answer, 400, refusal("-1 is not a valid maximum length", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_7_an_empty_definition(policies: PolicySet, kind: str) -> None:
    check(policies.put(NAME, of({}), kind), 400, refusal("no policy provided", kind))


@pytest.mark.departs("none")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("definition", [[], "text", 5, None])
def test_3_1_7_a_definition_that_is_no_object(policies: PolicySet, kind: str, definition: Any) -> None:
    # 3.10.8 crashes and answers with status 500.
    check(policies.put(NAME, of(definition), kind), 400, refusal("definition should be an object", kind))


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_7_the_last_of_equal_keys_wins(policies: PolicySet, kind: str) -> None:
    body = b'{"pattern":"(","pattern":"^nothing$","definition":{"max-length":1,"max-length":2}}'
    assert policies.put(NAME, body, kind).status == 201
    found = policies.api.ask("GET", path(kind, policies.vhost, NAME)).document
    assert (found["pattern"], found["definition"]) == ("^nothing$", {"max-length": 2})


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_8_a_pattern_that_is_no_regular_expression(policies: PolicySet, kind: str) -> None:
    reason = 'pattern should be regular expression but is invalid: {"missing )",1}'
    check(policies.put(NAME, of({"max-length": 1}, pattern="("), kind), 400, refusal(reason, kind))


@pytest.mark.parametrize("pattern", ["[", "*", "a{2,1}", "(?<a", "a)", "\\"])
def test_3_1_8_other_invalid_patterns(policies: PolicySet, pattern: str) -> None:
    answer = policies.put(NAME, of({"max-length": 1}, pattern=pattern))
    assert (answer.status, answer.document["error"]) == (400, "bad_request")
    begin = "Validation failed\n\npattern should be regular expression but is invalid: {"
    assert answer.document["reason"].startswith(begin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apply_to", ["bogus", "", "Queues", "queue"])
def test_3_1_8_apply_to(policies: PolicySet, kind: str, apply_to: str) -> None:
    answer = policies.put(NAME, of({"max-length": 1}, **{"apply-to": apply_to}), kind)
    assert (answer.status, answer.document["error"]) == (400, "bad_request")
    begin = f"Validation failed\n\napply-to '{apply_to}' unrecognised; should be "
    assert answer.document["reason"].startswith(begin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("apply_to", ["all", "queues", "exchanges"])
def test_3_1_9_apply_to(policies: PolicySet, kind: str, apply_to: str) -> None:
    assert policies.put(NAME, of({"max-length": 1}, **{"apply-to": apply_to}), kind).status == 201
    assert policies.api.ask("GET", path(kind, policies.vhost, NAME)).document["apply-to"] == apply_to


@pytest.mark.parametrize(("key", "values"), VALID, ids=[key for key, _ in VALID])
def test_3_1_10_keys(policies: PolicySet, key: str, values: list[Any]) -> None:
    for value in values:
        assert policies.put(NAME, of({key: value})).status in (201, 204)
        found = policies.api.ask("GET", path(USER, policies.vhost, NAME)).document
        assert found["definition"] == {key: value}


@pytest.mark.parametrize("apply_to", ["queues", "exchanges"])
def test_3_1_11_keys_need_not_fit_to_what_they_apply_to(policies: PolicySet, apply_to: str) -> None:
    definition = {"alternate-exchange": "x"} if apply_to == "queues" else {"max-length": 1}
    assert policies.put(NAME, of(definition, **{"apply-to": apply_to})).status == 201
