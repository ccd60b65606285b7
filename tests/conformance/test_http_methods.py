"""Rules 41.1 to 41.8, 44.1 and 45.2 to 45.18: methods of paths, answers of requests, empty segments of paths."""

from __future__ import annotations

import uuid
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.conformance.http_api import NOT_FOUND, Belongings, HttpApi, bad_request, not_authorised, path

_READ: Final = "HEAD, GET, OPTIONS"
_CHANGE: Final = "HEAD, GET, PUT, DELETE, OPTIONS"
_ALL_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")
#: Methods by path. {v} is a virtual host with a queue q.
_PATHS: Final = {
    "overview": _READ,
    "cluster-name": "HEAD, GET, PUT, OPTIONS",
    "nodes": _READ,
    "extensions": _READ,
    "definitions": "HEAD, GET, POST, OPTIONS",
    "all-configuration": "HEAD, GET, POST, OPTIONS",
    "definitions/{v}": "HEAD, GET, POST, OPTIONS",
    "parameters": _READ,
    "parameters/{v}/{v}/n": _CHANGE,
    "global-parameters": _READ,
    "global-parameters/n": _CHANGE,
    "policies/{v}": _READ,
    "policies/{v}/p": _CHANGE,
    "operator-policies/{v}/p": _CHANGE,
    "vhost-limits": "GET, OPTIONS",
    "vhost-limits/{v}": "GET, OPTIONS",
    "vhost-limits/{v}/max-queues": "PUT, DELETE, OPTIONS",
    "user-limits": "GET, OPTIONS",
    "user-limits/guest": "GET, OPTIONS",
    "user-limits/guest/max-channels": "PUT, DELETE, OPTIONS",
    "connections": _READ,
    "connections/c": "HEAD, GET, DELETE, OPTIONS",
    "channels": _READ,
    "consumers/{v}": _READ,
    "exchanges": _READ,
    "exchanges/{v}": _READ,
    "exchanges/{v}/x": _CHANGE,
    "exchanges/{v}/x/publish": "POST, OPTIONS",
    "exchanges/{v}//publish": "POST, OPTIONS",
    "exchanges/{v}/x/bindings/source": _READ,
    "queues": _READ,
    "queues/{v}": _READ,
    "queues/{v}/q": _CHANGE,
    "queues/{v}/q/bindings": _READ,
    "queues/{v}/q/contents": "DELETE, OPTIONS",
    "queues/{v}/q/get": "POST, OPTIONS",
    "queues/{v}/q/actions": "POST, OPTIONS",
    "bindings/{v}": _READ,
    "bindings/{v}/e/amq.direct/q/q": "HEAD, GET, POST, OPTIONS",
    "bindings/{v}/e/amq.direct/q/q/k": "HEAD, GET, DELETE, OPTIONS",
    "vhosts": _READ,
    "vhosts/{v}": _CHANGE,
    "vhosts/{v}/permissions": _READ,
    "users": _READ,
    "users/": _READ,
    "users/u": _CHANGE,
    "users/bulk-delete": "POST, OPTIONS",
    "users/without-permissions": _READ,
    "permissions/{v}/u": _CHANGE,
    "topic-permissions/{v}/u": _CHANGE,
    "topic-permissions/{v}/u/x": _CHANGE,
    "feature-flags": _READ,
    "feature-flags/f/enable": "PUT, OPTIONS",
    "whoami": _READ,
    "rebalance/queues": "POST, OPTIONS",
    "vhosts/{v}/start/x": "POST, OPTIONS",
    "users/x/permissions": _READ,
    "connections/username/x": "HEAD, GET, DELETE, OPTIONS",
    "auth": _READ,
    # What does not exist is looked for among files.
    "nope": _READ,
    "nope/a/b/c/d/e": _READ,
    "feature-flags/nope": _READ,
    "bindings/{v}/e/amq.direct": _READ,
    "queues/{v}/q/nope": _READ,
}


@pytest.mark.parametrize("below", _PATHS)
def test_41_2_methods_of_a_path(api: HttpApi, own_vhost: str, below: str) -> None:
    allowed = _PATHS[below]
    asked = below.replace("{v}", quote(own_vhost, safe=""))
    options = api.ask("OPTIONS", asked)
    found = options.headers.get("allow", "")
    assert (options.status, sorted(found.split(", "))) == (200, sorted(allowed.split(", ")))
    for method in _ALL_METHODS:
        if method not in allowed.split(", "):
            reply = api.ask(method, asked, None, user="")
            assert (reply.status, reply.headers.get("allow"), reply.body) == (405, found, b""), method


@pytest.mark.parametrize(
    ("method", "below", "body"),
    [
        ("GET", "overview", None),
        ("HEAD", "queues", None),
        ("GET", "nope", None),
        ("GET", "queues/{v}/nope", None),
        ("GET", "policies/{v}/nope", None),
        ("DELETE", "queues/{v}/nope", None),
        ("PUT", "queues/{v}/new", {}),
        ("POST", "bindings/{v}/e/amq.direct/q/q", {}),
        ("PUT", "policies/{v}/p", {"pattern": "", "definition": {"max-length": 1}}),
        ("POST", "exchanges/{v}/amq.default/publish", {"routing_key": "q"}),
    ],
)
def test_41_4_nothing_is_done_for_a_request_that_takes_no_json(
    api: HttpApi, own_vhost: str, method: str, below: str, body: object
) -> None:
    asked = below.replace("{v}", quote(own_vhost, safe=""))
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    reply = api.ask(method, asked, body, headers={"Accept": "text/html"})
    assert (reply.status, reply.body) == (406, b"")
    assert [each["name"] for each in api.get(path("queues", own_vhost))] == ["q"]
    assert len(api.get(path("bindings", own_vhost))) == 1
    assert api.get(path("policies", own_vhost)) == []


def test_41_4_the_login_comes_before_the_header_accept(api: HttpApi) -> None:
    assert api.ask("GET", "overview", user="", headers={"Accept": "text/html"}).status == 401


def test_41_4_what_answers_nothing_takes_any_header_accept(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    headers = {"Accept": "text/html"}
    api.check("DELETE", path("queues", own_vhost, "q", "contents"), None, 204, headers=headers)
    api.check("PUT", path("vhost-limits", own_vhost, "max-queues"), {"value": 5}, 204, headers=headers)


def test_41_1_the_default_exchange_by_its_empty_name(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    vhost = quote(own_vhost, safe="")
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    api.check("POST", f"exchanges/{vhost}//publish", message, 200, {"routed": True})
    assert api.get(f"exchanges/{vhost}//")["name"] == ""
    assert [each["routing_key"] for each in api.get(f"exchanges/{vhost}//bindings/source")] == ["q"]
    refusal = not_authorised("Access refused.")
    api.check("PUT", f"exchanges/{vhost}//", {}, 401, refusal)
    api.check("DELETE", f"exchanges/{vhost}//", None, 401, refusal)
    assert api.ask("PUT", f"exchanges/{vhost}/", {}).status == 405


def test_41_1_objects_without_a_name(api: HttpApi, own_vhost: str) -> None:
    vhost = quote(own_vhost, safe="")
    api.check("PUT", f"policies/{vhost}//", {"pattern": "x", "definition": {"max-length": 1}}, 201)
    assert api.get(f"policies/{vhost}//")["name"] == ""
    api.check("DELETE", f"policies/{vhost}//", None, 204)
    api.check("GET", f"queues/{vhost}//", None, 404, NOT_FOUND)
    api.check("GET", "users//", None, 404, NOT_FOUND)
    assert api.get("parameters//") == []


def test_45_2_a_queue_without_a_name_gets_one(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", f"queues/{quote(own_vhost, safe='')}//", {}, 201)
    (found,) = api.get(path("queues", own_vhost))
    assert found["name"].startswith("amq.gen-")


def test_45_11_a_message_without_properties_has_a_list_of_them(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    below = path("exchanges", own_vhost, "amq.default", "publish")
    different: list[dict[str, Any]] = [{}, {"headers": {}}, {"priority": 1}]
    for properties in different:
        message = {"properties": properties, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        api.check("POST", below, message, 200, {"routed": True})
    wanted = {"count": 3, "ackmode": "ack_requeue_false", "encoding": "auto"}
    found = api.ask("POST", path("queues", own_vhost, "q", "get"), wanted).document
    assert [each["properties"] for each in found] == [[], {"headers": {}}, {"priority": 1}]


def test_44_1_the_overview_has_no_tags(api: HttpApi) -> None:
    """rabbitmqadmin takes them for a table, and has none in mind where they are missing."""
    assert not {"cluster_tags", "node_tags"} & api.get("overview").keys()


@pytest.mark.parametrize(
    ("name", "judgement"),
    # RabbitMQ says "invalid" of a type that it has heard of before, in whatever context.
    [
        (f"x-{uuid.uuid4().hex}", "unknown"),
        ("x-jms-topic", "unknown"),
        ("queue", "invalid"),
        ("", "invalid"),
        ("null", "invalid"),
    ],
    ids=["never heard of", "x-jms-topic", "queue", "empty", "null"],
)
def test_45_3_exchange_types_that_do_not_exist(api: HttpApi, own_vhost: str, name: str, judgement: str) -> None:
    refusal = bad_request(f"{judgement} exchange type '{name}'")
    api.check("PUT", path("exchanges", own_vhost, "x"), {"type": name}, 400, refusal)


@pytest.mark.parametrize(
    "below", ["queues/{v}/q/bindings", "exchanges/{v}/x/bindings/source", "exchanges/{v}/x/bindings/destination"]
)
def test_41_8_a_virtual_host_that_does_not_exist_has_no_bindings(
    api: HttpApi, belongings: Belongings, below: str
) -> None:
    assert api.get(below.replace("{v}", belongings.name("vhosts"))) == []


def test_45_18_limits_of_which_the_last_was_lifted(api: HttpApi, own_vhost: str) -> None:
    below = path("vhost-limits", own_vhost)

    def of_all() -> list[object]:
        return [each["value"] for each in api.get("vhost-limits") if each["vhost"] == own_vhost]

    assert of_all() == []
    api.check("PUT", f"{below}/max-queues", {"value": 5}, 204)
    assert (of_all(), api.get(below)) == ([{"max-queues": 5}], [{"vhost": own_vhost, "value": {"max-queues": 5}}])
    api.check("DELETE", f"{below}/max-queues", None, 204)
    assert (of_all(), api.get(below)) == ([[]], [])
    entry = {"value": [], "vhost": own_vhost, "component": "vhost-limits", "name": "limits"}
    assert api.get(path("parameters", "vhost-limits", own_vhost)) == [entry]
    definitions = api.get(path("definitions", own_vhost))
    assert definitions["parameters"] == [entry]
    api.check("POST", path("definitions", own_vhost), definitions, 204)
    assert of_all() == [[]]
    api.check("DELETE", path("parameters", "vhost-limits", own_vhost, "limits"), None, 204)
    assert of_all() == []
