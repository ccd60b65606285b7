"""Rules 3.1.1 to 3.1.15: policies as objects of the HTTP API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.conformance.operator_policies import KINDS, NAME, PATTERN, PolicySet, check, of, refusal

NOT_FOUND = {"error": "Object Not Found", "reason": "Not Found"}
NAMES = ["{name} with spaces", "{name}/of a path?#%2F", "{name} ä☃", "{name}'\"<>\\"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", NAMES)
def test_3_1_1_any_name(policies: PolicySet, kind: str, pattern: str) -> None:
    name = pattern.format(name=NAME)
    assert policies.put(name, of({"max-length": 1}), kind).status == 201
    found = policies.api.ask("GET", path(kind, policies.vhost, name))
    assert (found.status, found.document["name"]) == (200, name)


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_1_the_same_name_replaces_all(policies: PolicySet, kind: str) -> None:
    first = of({"max-length": 1, "expires": 2}, **{"priority": 3, "apply-to": "queues"})
    assert policies.put(NAME, first, kind).status == 201
    assert policies.put(NAME, of({"message-ttl": 4}), kind).status == 204
    expected = {"definition": {"message-ttl": 4}, "priority": 0, "apply-to": "all"}
    found = policies.api.ask("GET", path(kind, policies.vhost, NAME)).document
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ({"definition": {"max-length": 1}}, ["pattern"]),
        ({"pattern": PATTERN}, ["definition"]),
        ({"priority": 1}, ["pattern", "definition"]),
        (b"null", ["pattern", "definition"]),
        (None, ["pattern", "definition"]),
    ],
)
def test_3_1_12_required_keys(policies: PolicySet, kind: str, body: Any, missing: list[str]) -> None:
    reason = f"[{','.join(f'{{key_missing,{key}}}' for key in missing)}]"
    check(policies.put(NAME, body, kind), 400, {"error": "bad_request", "reason": reason})


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_12_name_and_vhost_of_the_url_win(policies: PolicySet, kind: str) -> None:
    body = of({"max-length": 1}, name="other", vhost="other", nonsense=[1])
    assert policies.put(NAME, body, kind).status == 201
    found = policies.api.ask("GET", path(kind, policies.vhost, NAME)).document
    assert (found["name"], found["vhost"]) == (NAME, policies.vhost)
    assert set(found) == {"vhost", "name", "pattern", "apply-to", "definition", "priority"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"[]", b"5", b"{", b"\xff"])
def test_3_1_13_bodies_that_are_no_object(policies: PolicySet, kind: str, body: bytes) -> None:
    check(policies.put(NAME, body, kind), 400, {"error": "bad_request", "reason": "not_json"})


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_13_a_body_that_is_a_string(policies: PolicySet, kind: str) -> None:
    reason = "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"
    check(policies.put(NAME, b'"{}"', kind), 400, {"error": "bad_request", "reason": reason})


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_13_unknown_vhost(api: HttpApi, kind: str) -> None:
    answer = api.ask("PUT", path(kind, "conformance-missing", NAME), of({"max-length": 1}))
    check(answer, 404, {"error": "not_found", "reason": "vhost_not_found"})
    for segments in ((kind, "conformance-missing"), (kind, "conformance-missing", NAME)):
        check(api.ask("GET", path(*segments)), 404, NOT_FOUND)
    check(api.ask("DELETE", path(kind, "conformance-missing", NAME)), 404, NOT_FOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_13_delete(policies: PolicySet, kind: str) -> None:
    policies.put(NAME, of({"max-length": 1}), kind)
    segments = (kind, policies.vhost, NAME)
    gone = policies.api.ask("DELETE", path(*segments))
    assert (gone.status, gone.body) == (204, b"")
    for method in ("DELETE", "GET"):
        check(policies.api.ask(method, path(*segments)), 404, NOT_FOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_13_post_is_not_allowed(policies: PolicySet, kind: str) -> None:
    body = of({"max-length": 1})
    for segments in ((kind,), (kind, policies.vhost), (kind, policies.vhost, NAME)):
        assert policies.api.ask("POST", path(*segments), body).status == 405


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("priority", "printed"), [("x", '<<"x">>'), ("5", '<<"5">>'), (None, "null"), (True, "true"), ([], "[]")]
)
def test_3_1_14_the_priority_is_a_number(policies: PolicySet, kind: str, priority: Any, printed: str) -> None:
    reason = f"priority should be a number, actually was {printed}"
    check(policies.put(NAME, of({"max-length": 1}, priority=priority), kind), 400, refusal(reason, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("priority", [0, -3, 1.5, 10**12])
def test_3_1_14_any_number_goes(policies: PolicySet, kind: str, priority: float) -> None:
    assert policies.put(NAME, of({"max-length": 1}, priority=priority), kind).status == 201
    assert policies.api.ask("GET", path(kind, policies.vhost, NAME)).document["priority"] == priority


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("pattern", "printed"), [(5, "5"), (None, "null"), (True, "true")])
def test_3_1_14_the_pattern_is_a_string(policies: PolicySet, kind: str, pattern: Any, printed: str) -> None:
    reason = f"pattern should be a binary but was {printed}"
    check(policies.put(NAME, of({"max-length": 1}, pattern=pattern), kind), 400, refusal(reason, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_3_1_15_objects(policies: PolicySet, kind: str) -> None:
    body = {"pattern": PATTERN, "definition": {"max-length": 1, "expires": 2}, "priority": 7, "apply-to": "queues"}
    policies.put(NAME, body, kind)
    expected = {"vhost": policies.vhost, "name": NAME, **body}
    check(policies.api.ask("GET", path(kind, policies.vhost, NAME)), 200, expected)
    for segments in ((kind,), (kind, policies.vhost)):
        listed = policies.api.ask("GET", path(*segments)).document
        assert [each for each in listed if (each["vhost"], each["name"]) == (policies.vhost, NAME)] == [expected]
