"""Rules 41.3 to 41.10, 42.1, 43 and 45: requests that are half right, and what becomes of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.http_api import NOT_FOUND, PASSWORD, Belongings, HttpApi, bad_request, not_authorised, path

POLICY = {"pattern": "^none$", "definition": {"max-length": 1}}
MESSAGE = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["name"] for entry in entries]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        *((each, "\ufffd") for each in ("%ED%A0%80", "%F4%90%80%80", "%FF", "%C3", "%E2%82", "%C0%80", "%F0%9F%98")),
        ("%FE%FF", "\ufffd\ufffd"),
        ("%80%80", "\ufffd\ufffd"),
        ("%FF%2F%25FF%C3%A4", "\ufffd/%FF\xe4"),
    ],
)
def test_41_10_names_that_are_no_utf_8(api: HttpApi, own_vhost: str, name: str, shown: str) -> None:
    below = f"{path('queues', own_vhost)}/{name}"
    api.check("PUT", below, {}, 201)
    api.check("PUT", below, {}, 204)
    assert api.get(below)["name"] == shown
    assert _names(api.get(path("queues", own_vhost))) == [shown]
    binding = f"{path('bindings', own_vhost, 'e', 'amq.fanout', 'q')}/{name}"
    api.check("POST", binding, {}, 201)
    assert [entry["destination"] for entry in api.get(binding)] == [shown]
    assert _names(api.get(path("definitions", own_vhost))["queues"]) == [shown]
    api.check("DELETE", below, None, 204)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip;q=0", None), ("gzip; q=0.0", None), ("deflate", None), ("gzip;q=0.1", "gzip"), ("br, gzip", "gzip")],
)
def test_41_3_gzip_is_weighed(api: HttpApi, accepted: str, encoding: str | None) -> None:
    reply = api.ask("GET", "overview?columns=exchange_types", headers={"Accept-Encoding": accepted})
    assert (reply.status, reply.headers.get("content-encoding")) == (200, encoding)


def test_41_5_a_login_that_is_no_utf_8_is_a_wrong_one(api: HttpApi) -> None:
    login = base64.b64encode(b"\xfcser:\xff").decode()
    reply = api.ask("GET", "whoami", user="", headers={"Authorization": f"Basic {login}"})
    assert (reply.status, reply.document) == (401, {"error": "not_authorized", "reason": "Login failed"})


@pytest.mark.parametrize("kind", ["queues", "exchanges", "bindings"])
def test_41_9_header_x_vhost_of_a_virtual_host_that_does_not_exist(
    api: HttpApi, belongings: Belongings, kind: str
) -> None:
    headers = {"X-Vhost": "conformance-no-vhost"}
    assert api.get(kind, headers=headers) == []
    reply = api.ask("GET", kind, user=belongings.user("management"), headers=headers)
    refusal = not_authorised("User not authorised to access virtual host")
    assert (reply.status, reply.document) == (401, refusal)


@pytest.mark.parametrize("content_type", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_41_10_a_form_that_is_none(api: HttpApi, content_type: str) -> None:
    reply = api.ask("POST", "definitions", b"{}", headers={"Content-Type": content_type})
    assert (reply.status, reply.body) == (400, b"")


@pytest.mark.parametrize("query", ["page=%201", "page=1%20", "page=1_0", "page=1&page_size=+1", "page=%D9%A1"])
def test_41_10_numbers_have_no_white_space(api: HttpApi, own_vhost: str, query: str) -> None:
    reply = api.ask("GET", f"{path('queues', own_vhost)}?{query}")
    assert (reply.status, reply.document) == (400, bad_request("Pagination parameters are invalid"))


def test_41_10_numbers_may_have_a_sign(api: HttpApi, own_vhost: str) -> None:
    assert api.get(f"{path('queues', own_vhost)}?page=%2B1&page_size=%2B01")["page_size"] == 1


def test_43_4_no_columns_are_none(api: HttpApi, own_vhost: str) -> None:
    (found,) = api.get(f"{path('users', 'guest', 'permissions')}?columns=")[:1]
    assert not found


def test_43_1_what_is_not_shown_does_not_order(api: HttpApi, own_vhost: str) -> None:
    for name in ("b", "a", "c"):
        api.check("PUT", path("queues", own_vhost, name), {}, 201)
    api.check(
        "POST",
        path("exchanges", own_vhost, "amq.default", "publish"),
        {**MESSAGE, "routing_key": "a"},
        200,
        {"routed": True},
    )
    below = path("queues", own_vhost)
    assert _names(api.get(f"{below}?disable_stats=true&sort=messages")) == ["a", "b", "c"]
    assert _names(api.get(f"{below}?disable_stats=true&sort=name&sort_reverse=true")) == ["c", "b", "a"]


def test_43_1_bindings_are_in_order_of_destinations_of_any_kind(api: HttpApi, own_vhost: str) -> None:
    for name in ("a", "c"):
        api.check("PUT", path("queues", own_vhost, name), {}, 201)
    api.check("PUT", path("exchanges", own_vhost, "b"), {}, 201)
    for kind, name, key in (("q", "c", "1"), ("e", "b", "0"), ("q", "a", "2"), ("q", "a", "1")):
        body = {"routing_key": key}
        assert api.ask("POST", path("bindings", own_vhost, "e", "amq.direct", kind, name), body).status == 201
    found = api.get(path("exchanges", own_vhost, "amq.direct", "bindings", "source"))
    assert [(each["destination"], each["routing_key"]) for each in found] == [
        ("a", "1"),
        ("a", "2"),
        ("b", "0"),
        ("c", "1"),
    ]


def test_43_1_parameters_are_in_order_of_names(api: HttpApi, own_vhost: str) -> None:
    for name in ("a", "z"):
        api.check("PUT", path("operator-policies", own_vhost, name), POLICY, 201)
    api.check("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": 5}, 204)
    found = [each for each in api.get("parameters") if each["vhost"] == own_vhost]
    assert _names(found) == ["a", "limits", "z"]


@pytest.mark.parametrize(("key", "text"), [(None, "null"), (True, "true"), (17, "17"), ("x", "x")])
def test_41_10_routing_keys_that_are_no_strings(api: HttpApi, own_vhost: str, key: Any, text: str) -> None:
    api.check("PUT", path("queues", own_vhost, text), {}, 201)
    reply = api.ask("POST", path("bindings", own_vhost, "e", "amq.direct", "q", text), {"routing_key": key})
    assert (reply.status, reply.headers["location"]) == (201, f"{text}/{text}")
    below = path("exchanges", own_vhost, "amq.direct", "publish")
    api.check("POST", below, {**MESSAGE, "routing_key": key}, 200, {"routed": True})


def test_41_10_queue_names_that_are_too_long(api: HttpApi, own_vhost: str) -> None:
    refusal = bad_request("queue should be less than 255 bytes, actually was 256\n")
    api.check("PUT", path("queues", own_vhost, "ü" * 128), {}, 400, refusal)


def test_45_11_base64_may_have_white_space(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    body = {**MESSAGE, "payload": "aGVs\r\n bG8=\t\n", "payload_encoding": "base64"}
    api.check("POST", path("exchanges", own_vhost, "amq.default", "publish"), body, 200, {"routed": True})
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (message,) = api.ask("POST", path("queues", own_vhost, "q", "get"), wanted).document
    assert message["payload"] == "hello"


def test_45_17_topic_permissions_with_an_exchange(api: HttpApi, own_vhost: str, belongings: Belongings) -> None:
    user = belongings.user("")
    below = path("topic-permissions", own_vhost, user)
    topic = {"exchange": "amq.topic", "write": "", "read": ""}
    api.check("PUT", f"{below}/other", topic, 201)
    assert [each["exchange"] for each in api.get(f"{below}/nope")] == ["amq.topic"]
    api.check("DELETE", f"{below}/nope", None, 204)
    api.check("DELETE", f"{below}/amq.topic", None, 204)
    api.check("DELETE", f"{below}/amq.topic", None, 404, NOT_FOUND)


def test_42_1_a_single_policy_is_for_those_who_may_change_it(
    api: HttpApi, own_vhost: str, belongings: Belongings
) -> None:
    users = {tag: belongings.user(tag, own_vhost) for tag in ("management", "monitoring", "policymaker")}
    elsewhere = belongings.user("policymaker")
    not_policymaker = not_authorised("User not authorised to access object")
    not_administrator = not_authorised("Not administrator user")
    policy, operator_policy = (path(kind, own_vhost, "p") for kind in ("policies", "operator-policies"))
    for below in (policy, operator_policy):
        api.check("PUT", below, POLICY, 201)
    for tag, user in users.items():
        assert _names(api.get(path("policies", own_vhost), user=user)) == ["p"]
        assert _names(api.get(path("operator-policies", own_vhost), user=user)) == ["p"]
        api.check("GET", operator_policy, None, 401, not_administrator, user=user)
        if tag != "policymaker":
            api.check("GET", policy, None, 401, not_policymaker, user=user)
    assert api.get(policy, user=users["policymaker"])["name"] == "p"
    api.check("GET", policy, None, 401, not_policymaker, user=elsewhere)


def test_45_15_users_as_they_were_before_there_were_tags(api: HttpApi, belongings: Belongings) -> None:
    below = path("users", belongings.name("users"))
    for value, tags in ((True, ["administrator"]), ("false", [])):
        assert api.ask("PUT", below, {"password": PASSWORD, "administrator": value}).status in (201, 204)
        assert api.get(below)["tags"] == tags
    api.check("PUT", below, {"administrator": "x"}, 400, bad_request(["not_boolean", "x"]))


def test_45_18_limits_come_with_the_user(api: HttpApi, belongings: Belongings) -> None:
    below = path("users", belongings.name("users"))
    api.check("PUT", below, {"tags": "", "password": PASSWORD, "limits": {"max-channels": 7}}, 201)
    api.check("PUT", below, {"tags": "", "password": PASSWORD}, 204)
    assert api.get(below)["limits"] == {"max-channels": 7}


def test_45_15_a_password_hash_that_is_none(api: HttpApi, belongings: Belongings) -> None:
    below = path("users", belongings.name("users"))
    for value in (None, 1):
        api.check("PUT", below, {"tags": "", "password_hash": value}, 400, bad_request(["not_base64", value]))
