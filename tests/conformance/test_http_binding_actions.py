"""Rules 41.8, 42.3 and 45.8: bindings over HTTP, and the keys that name them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.http_api import NO_VHOST, NOT_FOUND, REFUSED, Belongings, HttpApi, bad_request, path


@pytest.fixture
def bound(api: HttpApi, own_vhost: str) -> str:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    return own_vhost


def between(vhost: str, source: str = "amq.direct", kind: str = "q", destination: str = "q") -> str:
    return path("bindings", vhost, "e", source, kind, destination)


def keys(api: HttpApi, below: str) -> list[tuple[str, Any, str]]:
    found = [(each["routing_key"], each["arguments"], each["properties_key"]) for each in api.get(below)]
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("routing_key", "props"),
    [
        ("rk", "rk"),
        ("", "~"),
        ("~x", "%7Ex"),
        ("a b/c~d.#", "a+b%2Fc%7Ed.%23"),
        ("z ä", "z+%C3%A4"),
        ("*.stock.#", "%2A.stock.%23"),
    ],
)
def test_45_8_location_and_properties_key(api: HttpApi, bound: str, routing_key: str, props: str) -> None:
    reply = api.ask("POST", between(bound), {"routing_key": routing_key, "arguments": {}})
    assert (reply.status, reply.headers["location"], reply.body) == (201, f"q/{quote(props, safe='~')}", b"")
    assert keys(api, between(bound)) == [(routing_key, {}, props)]
    encoded = f"{between(bound)}/{quote(props, safe='~')}"
    assert api.get(encoded)["routing_key"] == routing_key
    api.check("DELETE", encoded, None, 204)
    api.check("DELETE", encoded, None, 404, NOT_FOUND)


def test_45_8_the_key_may_be_encoded_once_only(api: HttpApi, bound: str) -> None:
    assert api.ask("POST", between(bound), {"routing_key": "order.#"}).status == 201
    api.check("DELETE", f"{between(bound)}/order.%23", None, 204)


@pytest.mark.parametrize("body", [{}, None, {"arguments": []}, {"unknown": 1}])
def test_45_8_everything_may_be_missing(api: HttpApi, bound: str, body: Any) -> None:
    reply = api.ask("POST", between(bound), body)
    assert (reply.status, reply.headers["location"]) == (201, "q/~")
    assert keys(api, between(bound)) == [("", {}, "~")]


def test_45_8_binding_twice_is_one_binding(api: HttpApi, bound: str) -> None:
    locations = {api.ask("POST", between(bound), {"routing_key": "a"}).headers["location"] for _ in range(2)}
    assert locations == {"q/a"}
    assert len(api.get(between(bound))) == 1


def test_45_8_arguments_make_a_hash(api: HttpApi, bound: str) -> None:
    arguments = {"x-match": "all", "a": 1, "b": 1.5, "c": True, "d": [1]}
    reply = api.ask("POST", between(bound, "amq.headers"), {"routing_key": "r", "arguments": arguments})
    location = reply.headers["location"]
    assert reply.status == 201
    assert location.startswith("q/r~")
    assert len(location) == len("q/r~") + 6
    shown = api.get(between(bound, "amq.headers"))[0]
    assert shown == {
        "source": "amq.headers",
        "vhost": bound,
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "r",
        "arguments": arguments,
        "properties_key": location.removeprefix("q/"),
    }
    api.check("DELETE", f"{between(bound, 'amq.headers')}/{shown['properties_key']}", None, 204)


def test_45_8_bindings_of_other_arguments_are_others(api: HttpApi, bound: str) -> None:
    bodies = [{"routing_key": "r", "arguments": {"a": value}} for value in (1, 2)] + [{"routing_key": "r"}]
    locations = [api.ask("POST", between(bound), body).headers["location"] for body in bodies]
    assert len(set(locations)) == 3
    api.check("DELETE", f"{between(bound)}/{locations[0].removeprefix('q/')}", None, 204)
    assert sorted(str(arguments) for _, arguments, _ in keys(api, between(bound))) == ["{'a': 2}", "{}"]


def test_45_8_from_exchange_to_exchange(api: HttpApi, own_vhost: str) -> None:
    below = between(own_vhost, "amq.direct", "e", "amq.topic")
    reply = api.ask("POST", below, {"routing_key": "k"})
    assert (reply.status, reply.headers["location"]) == (201, "amq.topic/k")
    assert [each["destination_type"] for each in api.get(below)] == ["exchange"]
    api.check("DELETE", f"{below}/k", None, 204)


@pytest.mark.parametrize(
    ("source", "kind", "destination", "reason"),
    [
        ("nope", "q", "q", "no exchange 'nope' in vhost '{vhost}'"),
        ("amq.direct", "q", "nope", "no queue 'nope' in vhost '{vhost}'"),
        ("amq.direct", "e", "nope", "no exchange 'nope' in vhost '{vhost}'"),
    ],
)
def test_45_8_ends_that_do_not_exist(
    api: HttpApi, bound: str, source: str, kind: str, destination: str, reason: str
) -> None:
    expected = {"error": "not_found", "reason": reason.replace("{vhost}", bound)}
    api.check("POST", between(bound, source, kind, destination), {}, 404, expected)
    api.check("DELETE", f"{between(bound, source, kind, destination)}/~", None, 404, NOT_FOUND)


@pytest.mark.parametrize(
    ("source", "kind", "destination"), [("", "q", "q"), ("amq.default", "q", "q"), ("amq.direct", "e", "amq.default")]
)
def test_45_8_the_default_exchange_is_not_bound(
    api: HttpApi, bound: str, source: str, kind: str, destination: str
) -> None:
    api.check("POST", between(bound, source, kind, destination), {"routing_key": "k"}, 401, REFUSED)


def test_45_8_nor_unbound(api: HttpApi, bound: str) -> None:
    api.check("DELETE", f"{between(bound, '')}/q", None, 401, REFUSED)


def test_45_8_arguments_that_the_exchange_does_not_take(api: HttpApi, bound: str) -> None:
    reason = 'Invalid x-match field value <<"nope">>; expected all, any, all-with-x, or any-with-x'
    api.check("POST", between(bound, "amq.headers"), {"arguments": {"x-match": "nope"}}, 400, bad_request(reason))


def test_41_8_a_virtual_host_that_does_not_exist(api: HttpApi) -> None:
    api.check("POST", between("conformance-no-vhost"), {}, 404, NO_VHOST)
    api.check("DELETE", f"{between('conformance-no-vhost')}/~", None, 404, NOT_FOUND)


def test_42_3_binding_and_unbinding_need_read_on_the_routing_key(
    api: HttpApi, belongings: Belongings, own_vhost: str
) -> None:
    user = belongings.user("management", own_vhost)
    for key in ("mine", "others"):
        api.check("PUT", path("queues", own_vhost, key), {}, 201)
        between = path("bindings", own_vhost, "e", "amq.topic", "q", key)
        api.check("POST", between, {"routing_key": key}, 201)
    body = {"exchange": "amq.topic", "write": ".*", "read": "^mine$"}
    api.check("PUT", path("topic-permissions", own_vhost, user), body, 201)
    for key, status in (("others", 401), ("mine", 204)):
        between = path("bindings", own_vhost, "e", "amq.topic", "q", key)
        reply = api.ask("DELETE", f"{between}/{key}", user=user)
        assert reply.status == status, key
    assert len(api.get(path("queues", own_vhost, "others", "bindings"))) == 2
