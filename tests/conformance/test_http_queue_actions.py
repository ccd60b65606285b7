"""Rules 41.8 and 45.2 to 45.6: declaring, deleting and purging queues over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Connect
from tests.conformance.http_api import NO_VHOST, NOT_FOUND, REFUSED, HttpApi, bad_request, path

STRUCTURE = {"durable": True, "auto_delete": False, "arguments": {}}


def q(vhost: str, name: str = "q") -> str:
    return path("queues", vhost, name)


def test_45_2_declaring_again_changes_nothing(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", q(own_vhost), STRUCTURE, 201)
    api.check("PUT", q(own_vhost), STRUCTURE, 204)
    assert api.get(f"{q(own_vhost)}?columns=name,durable,auto_delete,arguments") == {"name": "q", **STRUCTURE}


@pytest.mark.parametrize("body", [None, b"", b"null", {}, {"arguments": []}, {"exclusive": True, "unknown": 1}])
def test_45_2_everything_may_be_missing(api: HttpApi, own_vhost: str, body: Any) -> None:
    api.check("PUT", q(own_vhost), body, 201)
    shown = api.get(f"{q(own_vhost)}?columns=durable,auto_delete,exclusive")
    assert shown == {"durable": False, "auto_delete": False, "exclusive": False}


def test_45_2_booleans_may_be_strings(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", q(own_vhost), {"durable": "true", "auto_delete": "false"}, 201)
    assert api.get(f"{q(own_vhost)}?columns=durable,auto_delete") == {"durable": True, "auto_delete": False}


def test_45_2_the_content_type_does_not_matter(api: HttpApi, own_vhost: str) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    api.check("PUT", q(own_vhost), b'{"durable":true}', 201, headers=form)
    assert api.get(f"{q(own_vhost)}?columns=durable") == {"durable": True}


@pytest.mark.parametrize("name", ["a/b", "with space", "ä☃", "a?b#c&d=e", "%2F", "a+b", "~", "."])
def test_45_2_any_name(api: HttpApi, own_vhost: str, name: str) -> None:
    # A path segment that is a single dot is taken away by clients and servers alike.
    name = f"x{name}" if name == "." else name
    api.check("PUT", q(own_vhost, name), {}, 201)
    assert api.get(f"{q(own_vhost, name)}?columns=name") == {"name": name}
    api.check("DELETE", q(own_vhost, name), None, 204)


def test_45_2_line_ends_are_left_out_of_names(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", q(own_vhost, "two\r\nlines"), {}, 201)
    assert api.get(f"{q(own_vhost, 'twolines')}?columns=name") == {"name": "twolines"}
    api.check("PUT", path("exchanges", own_vhost, "two\nlines"), {}, 201)
    assert api.get(f"{path('exchanges', own_vhost, 'twolines')}?columns=name") == {"name": "twolines"}


def test_45_2_a_slash_at_the_end(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", f"{q(own_vhost)}/", {}, 201)
    api.check("DELETE", f"{q(own_vhost)}/contents/", None, 204)
    api.check("DELETE", f"{q(own_vhost)}/", None, 204)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{not json", "not_json"),
        (b"[1]", "not_json"),
        (b'"str"', "invalid payload: the request body JSON-decoded to a string. Is the input doubly-JSON-encoded?"),
        ({"durable": "maybe"}, ["not_boolean", "maybe"]),
        ({"auto_delete": 5}, ["not_boolean", 5]),
        ({"durable": None}, ["not_boolean", None]),
        ({"arguments": {"x-n": None}}, "null_not_allowed"),
        ({"node": "nope@x"}, "Node nope@x could not be contacted"),
        (
            {"arguments": {"x-max-length": "abc"}},
            "invalid arg 'x-max-length' for queue 'q' in vhost '{vhost}': \"expected integer, got longstr\"",
        ),
        (
            {"arguments": {"x-dead-letter-exchange": 5}},
            "invalid type 'long' for arg 'x-dead-letter-exchange' in queue 'q' in vhost '{vhost}'",
        ),
    ],
)
def test_45_3_what_cannot_be_declared(api: HttpApi, own_vhost: str, body: Any, reason: object) -> None:
    expected = reason.replace("{vhost}", own_vhost) if isinstance(reason, str) else reason
    api.check("PUT", q(own_vhost), body, 400, bad_request(expected))
    api.check("GET", q(own_vhost), None, 404, NOT_FOUND)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"durable": False},
            "inequivalent arg 'durable' for queue 'q' in vhost '{vhost}': received 'false' but current is 'true'",
        ),
        (
            {"durable": True, "arguments": {"x-max-length": 5}},
            "inequivalent arg 'x-max-length' for queue 'q' in vhost '{vhost}':"
            " received the value '5' of type 'long' but current is none",
        ),
    ],
)
def test_45_3_what_differs_from_the_queue_that_exists(api: HttpApi, own_vhost: str, body: Any, reason: str) -> None:
    api.check("PUT", q(own_vhost), STRUCTURE, 201)
    api.check("PUT", q(own_vhost), body, 400, bad_request(reason.replace("{vhost}", own_vhost)))


def test_45_3_reserved_names(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", q(own_vhost, "amq.foo"), {}, 401, REFUSED)


def test_45_3_reserved_names_of_existing_queues(api: HttpApi, connect: Connect, vhost: str) -> None:
    name = connect().channel().queue_declare(exclusive=True).queue
    api.check("PUT", q(vhost, name), {}, 401, REFUSED)


def test_45_2_a_name_of_line_ends_is_generated(api: HttpApi, own_vhost: str) -> None:
    api.check("PUT", path("queues", own_vhost, "\r\n"), {}, 201)
    assert api.get(f"{path('queues', own_vhost)}?columns=name")[0]["name"].startswith("amq.gen-")


def test_45_3_values_come_back_as_they_were_sent(api: HttpApi, own_vhost: str) -> None:
    arguments = {"x-f": 1.5, "x-b": True, "x-i": 1 << 40, "x-l": [1, "a", {"b": 2}], "x-m": {"c": {"d": "e"}}}
    api.check("PUT", q(own_vhost), {"arguments": arguments}, 201)
    assert api.get(f"{q(own_vhost)}?columns=arguments") == {"arguments": arguments}


class TestMissing:
    def test_41_8_the_virtual_host(self, api: HttpApi) -> None:
        api.check("PUT", q("conformance-no-vhost"), {}, 404, NO_VHOST)
        api.check("DELETE", q("conformance-no-vhost"), None, 404, NOT_FOUND)
        api.check("DELETE", f"{q('conformance-no-vhost')}/contents", None, 404, NOT_FOUND)

    def test_41_8_the_queue(self, api: HttpApi, own_vhost: str) -> None:
        api.check("DELETE", q(own_vhost), None, 404, NOT_FOUND)
        api.check("DELETE", f"{q(own_vhost)}/contents", None, 404, NOT_FOUND)


def publish(api: HttpApi, vhost: str) -> None:
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    api.check("POST", path("exchanges", vhost, "amq.default", "publish"), message, 200, {"routed": True})


class TestDeleting:
    def test_45_4_only_if_it_is_empty(self, api: HttpApi, own_vhost: str) -> None:
        api.check("PUT", q(own_vhost), {}, 201)
        publish(api, own_vhost)
        reason = f"queue 'q' in vhost '{own_vhost}' not empty"
        api.check("DELETE", f"{q(own_vhost)}?if-empty=true", None, 400, bad_request(reason))
        api.check("DELETE", f"{q(own_vhost)}/contents", None, 204)
        api.check("DELETE", f"{q(own_vhost)}?if-empty=true&if-unused=true", None, 204)

    def test_45_4_only_if_it_is_unused(self, api: HttpApi, connect: Connect, vhost: str, unique: Any) -> None:
        channel, name = connect().channel(), unique()
        channel.queue_declare(name)
        channel.consume(name)
        reason = f"queue '{name}' in vhost '{vhost}' in use"
        api.check("DELETE", f"{q(vhost, name)}?if-unused=true", None, 400, bad_request(reason))
        api.check("DELETE", f"{q(vhost, name)}?if-unused=false", None, 204)

    @pytest.mark.parametrize("flag", ["if-empty", "if-unused"])
    def test_45_4_quorum_queues_know_no_conditions(self, api: HttpApi, own_vhost: str, flag: str) -> None:
        api.check("PUT", q(own_vhost), {"durable": True, "arguments": {"x-queue-type": "quorum"}}, 201)
        reason = (
            f"cannot delete queue 'q' in vhost '{own_vhost}'. queue.delete operations with {flag} flag set are not"
            " supported by quorum queues"
        )
        api.check("DELETE", f"{q(own_vhost)}?{flag}=true", None, 400, bad_request(reason))

    def test_45_4_quorum_queues_name_one_of_two_conditions(self, api: HttpApi, own_vhost: str) -> None:
        api.check("PUT", q(own_vhost), {"durable": True, "arguments": {"x-queue-type": "quorum"}}, 201)
        reply = api.ask("DELETE", f"{q(own_vhost)}?if-empty=true&if-unused=true")
        assert "queue.delete operations with if-unused flag set" in reply.document["reason"]

    def test_45_5_exclusive_queues_are_locked(self, api: HttpApi, connect: Connect, vhost: str, unique: Any) -> None:
        channel, name = connect().channel(), unique()
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, "amq.direct", "k")
        reason = (
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be originally"
            " declared on another connection or the exclusive property value does not match that of the original"
            " declaration."
        )
        binding = path("bindings", vhost, "e", "amq.direct", "q", name, "k")
        for below in (q(vhost, name), f"{q(vhost, name)}/contents", binding):
            api.check("DELETE", below, None, 400, bad_request(reason))


class TestActions:
    @pytest.mark.parametrize("action", ["sync", "cancel_sync"])
    def test_45_6_mirrors_are_always_in_step(self, api: HttpApi, own_vhost: str, action: str) -> None:
        api.check("PUT", q(own_vhost), {}, 201)
        publish(api, own_vhost)
        api.check("POST", f"{q(own_vhost)}/actions", {"action": action}, 204)
        assert api.ask("DELETE", f"{q(own_vhost)}?if-empty=true").document["reason"].endswith("not empty")

    @pytest.mark.departs("none")
    def test_45_6_a_missing_queue(self, api: HttpApi, own_vhost: str) -> None:
        api.check("POST", f"{q(own_vhost)}/actions", {"action": "sync"}, 404, NOT_FOUND)

    @pytest.mark.parametrize(
        ("body", "reason"), [({"action": "nope"}, ["unknown", "nope"]), ({}, "[{key_missing,action}]")]
    )
    def test_45_6_what_is_no_action(self, api: HttpApi, own_vhost: str, body: Any, reason: object) -> None:
        api.check("PUT", q(own_vhost), {}, 201)
        api.check("POST", f"{q(own_vhost)}/actions", body, 400, bad_request(reason))
