"""Rules 45.10 to 45.11: publishing and getting messages over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.conformance.fixtures import Connect, Poll
from tests.conformance.http_api import HttpApi, bad_request, path

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "hello", "payload_encoding": "string"}
UNABLE = "rejected Unable to publish message. Check queue limits."
GET = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}


@pytest.fixture
def vhost_with_queue(api: HttpApi, own_vhost: str) -> str:
    api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
    return own_vhost


def publish(api: HttpApi, vhost: str, exchange: str = "amq.default", **changes: Any) -> Any:
    reply = api.ask("POST", path("exchanges", vhost, exchange, "publish"), {**MESSAGE, **changes})
    assert reply.status == 200, reply
    return reply.document


def get(api: HttpApi, vhost: str, **changes: Any) -> Any:
    reply = api.ask("POST", path("queues", vhost, "q", "get"), {**GET, **changes})
    assert reply.status == 200, reply
    return reply.document


class TestPublish:
    def test_45_10_whether_it_was_routed(self, api: HttpApi, vhost_with_queue: str) -> None:
        assert publish(api, vhost_with_queue) == {"routed": True}
        assert publish(api, vhost_with_queue, routing_key="nosuch") == {"routed": False}

    def test_45_10_all_properties_arrive(self, api: HttpApi, vhost_with_queue: str) -> None:
        properties = {
            "headers": {"a": 1.5, "b": [1], "c": {"d": "x"}, "e": True},
            "priority": 5,
            "timestamp": 123,
            "delivery_mode": 2,
            "content_type": "text/plain",
            "content_encoding": "z",
            "type": "t",
            "message_id": "m",
            "app_id": "a",
            "cluster_id": "c",
            "correlation_id": "cc",
            "reply_to": "r",
            "expiration": "100000",
        }
        publish(api, vhost_with_queue, properties=properties)
        assert get(api, vhost_with_queue)[0]["properties"] == properties

    @pytest.mark.parametrize("properties", [{}, {"nope": 1}, {"headers": {}}])
    def test_45_10_few_properties(self, api: HttpApi, vhost_with_queue: str, properties: Any) -> None:
        assert publish(api, vhost_with_queue, properties=properties) == {"routed": True}

    @pytest.mark.parametrize(
        ("changes", "payload", "encoding", "size"),
        [
            ({"payload": "ä☃"}, "ä☃", "string", 5),
            ({"payload": ""}, "", "string", 0),
            ({"payload": "aGVsbG8=", "payload_encoding": "base64"}, "hello", "string", 5),
            ({"payload": "/w==", "payload_encoding": "base64"}, "/w==", "base64", 1),
        ],
    )
    def test_45_10_payloads(
        self, api: HttpApi, vhost_with_queue: str, changes: Any, payload: str, encoding: str, size: int
    ) -> None:
        publish(api, vhost_with_queue, **changes)
        got = get(api, vhost_with_queue)[0]
        assert (got["payload"], got["payload_encoding"], got["payload_bytes"]) == (payload, encoding, size)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"payload_encoding": "hex"}, ["unsupported_encoding", "hex"]),
            ({"payload_encoding": "base64", "payload": "###"}, ["not_base64", "###"]),
            ({"payload": 5}, "payload_not_string"),
            ({"properties": {"delivery_mode": "x"}}, ["not_int", "delivery_mode"]),
            ({"properties": {"delivery_mode": "2"}}, ["not_int", "delivery_mode"]),
            ({"properties": {"timestamp": 1.5}}, ["not_int", "timestamp"]),
            ({"properties": {"content_type": 5}}, ["not_string", "content_type"]),
            ({"properties": {"expiration": 5}}, ["not_string", "expiration"]),
            ({"properties": {"headers": {"a": None}}}, "null_not_allowed"),
            (
                {"properties": {"delivery_mode": 3}},
                "406 PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,3}",
            ),
            ({"properties": {"expiration": "x"}}, "406 PRECONDITION_FAILED - invalid expiration 'x': no_integer"),
            (
                {"properties": {"user_id": "x"}},
                "406 PRECONDITION_FAILED - user_id property set to 'x' but authenticated user was 'guest'",
            ),
        ],
    )
    def test_45_10_what_is_refused(self, api: HttpApi, vhost_with_queue: str, changes: Any, reason: object) -> None:
        below = path("exchanges", vhost_with_queue, "amq.default", "publish")
        api.check("POST", below, {**MESSAGE, **changes}, 400, bad_request(reason))

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"routing_key": "q", "payload": "x"}, "[{key_missing,properties},{key_missing,payload_encoding}]"),
            (
                {},
                "[{key_missing,routing_key},\n {key_missing,properties},\n {key_missing,payload},\n"
                " {key_missing,payload_encoding}]",
            ),
        ],
    )
    def test_45_10_what_is_missing(self, api: HttpApi, vhost_with_queue: str, body: Any, reason: str) -> None:
        below = path("exchanges", vhost_with_queue, "amq.default", "publish")
        api.check("POST", below, body, 400, bad_request(reason))

    @pytest.mark.parametrize(
        ("exchange", "reason"),
        [
            ("nosuch", "404 NOT_FOUND - no exchange 'nosuch' in vhost '{vhost}'"),
            (
                "amq.rabbitmq.trace",
                "403 ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '{vhost}'",
            ),
        ],
    )
    def test_45_10_exchanges_that_take_none(self, api: HttpApi, own_vhost: str, exchange: str, reason: str) -> None:
        below = path("exchanges", own_vhost, exchange, "publish")
        for properties in ({}, {"user_id": "x"}, {"delivery_mode": 3}):
            message = {**MESSAGE, "properties": properties}
            api.check("POST", below, message, 400, bad_request(reason.replace("{vhost}", own_vhost)))

    @pytest.mark.parametrize(
        "arguments",
        [
            {"x-max-length": 1, "x-overflow": "reject-publish"},
            {"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"},
            # RabbitMQ's takes one more.
            {"x-max-length": 1, "x-overflow": "reject-publish", "x-queue-type": "quorum"},
        ],
    )
    def test_45_10_a_full_queue_refuses(self, api: HttpApi, own_vhost: str, arguments: dict[str, Any]) -> None:
        api.check("PUT", path("queues", own_vhost, "q"), {"durable": True, "arguments": arguments}, 201)
        below = path("exchanges", own_vhost, "amq.default", "publish")
        assert publish(api, own_vhost) == {"routed": True}
        if "x-queue-type" in arguments:
            api.ask("POST", below, MESSAGE)
        for _ in range(2):
            api.check("POST", below, MESSAGE, 400, bad_request(UNABLE))

    def test_45_10_one_of_two_queues_refuses(self, api: HttpApi, own_vhost: str) -> None:
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        for name, arguments in (("q", full), ("free", {})):
            api.check("PUT", path("queues", own_vhost, name), {"arguments": arguments}, 201)
            api.check("POST", path("bindings", own_vhost, "e", "amq.fanout", "q", name), {}, 201)
        assert publish(api, own_vhost, "amq.fanout") == {"routed": True}
        api.check("POST", path("exchanges", own_vhost, "amq.fanout", "publish"), MESSAGE, 400, bad_request(UNABLE))
        got = api.ask("POST", path("queues", own_vhost, "free", "get"), {**GET, "count": 9}).document
        assert len(got) == 2, "the other one takes it"


class TestGet:
    def test_45_11_what_is_shown(self, api: HttpApi, vhost_with_queue: str) -> None:
        publish(api, vhost_with_queue, properties={"delivery_mode": 2})
        assert get(api, vhost_with_queue) == [
            {
                "payload_bytes": 5,
                "redelivered": False,
                "exchange": "",
                "routing_key": "q",
                "message_count": 0,
                "properties": {"delivery_mode": 2},
                "payload": "hello",
                "payload_encoding": "string",
            }
        ]

    def test_45_11_several_messages_and_what_is_left(self, api: HttpApi, vhost_with_queue: str) -> None:
        for payload in ("a", "b", "c"):
            publish(api, vhost_with_queue, payload=payload)
        got = get(api, vhost_with_queue, count=2)
        assert [(each["payload"], each["message_count"]) for each in got] == [("a", 2), ("b", 1)]

    @pytest.mark.parametrize(("count", "expected"), [("2", 2), (-1, 3), (9, 3), (0, 0)])
    def test_45_11_counts(self, api: HttpApi, vhost_with_queue: str, count: Any, expected: int) -> None:
        for _ in range(3):
            publish(api, vhost_with_queue)
        assert len(get(api, vhost_with_queue, count=count, ackmode="ack_requeue_false")) == expected

    @pytest.mark.parametrize("mode", ["ack_requeue_true", "reject_requeue_true"])
    def test_45_11_requeueing_keeps_them(self, api: HttpApi, vhost_with_queue: str, poll: Poll, mode: str) -> None:
        publish(api, vhost_with_queue)
        assert [each["redelivered"] for each in get(api, vhost_with_queue, ackmode=mode)] == [False]
        poll(lambda: [each["redelivered"] for each in get(api, vhost_with_queue, ackmode=mode)] == [True])

    @pytest.mark.parametrize("mode", ["ack_requeue_false", "reject_requeue_false"])
    def test_45_11_the_others_take_them(self, api: HttpApi, vhost_with_queue: str, mode: str) -> None:
        publish(api, vhost_with_queue)
        assert len(get(api, vhost_with_queue, ackmode=mode)) == 1
        assert get(api, vhost_with_queue) == []

    def test_45_11_rejecting_dead_letters(self, api: HttpApi, own_vhost: str, poll: Poll) -> None:
        dead_lettering = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
        api.check("PUT", path("queues", own_vhost, "work"), {"arguments": dead_lettering}, 201)
        api.check("PUT", path("queues", own_vhost, "q"), {}, 201)
        publish(api, own_vhost, routing_key="work")
        below = path("queues", own_vhost, "work", "get")
        assert len(api.ask("POST", below, {**GET, "ackmode": "reject_requeue_false"}).document) == 1
        poll(lambda: [each["payload"] for each in get(api, own_vhost)] == ["hello"])

    @pytest.mark.parametrize(
        ("changes", "payload", "encoding"),
        [
            ({"truncate": 2}, "he", "string"),
            ({"truncate": "2"}, "he", "string"),
            ({"truncate": 50000}, "hello", "string"),
            ({"encoding": "base64"}, "aGVsbG8=", "base64"),
            ({"encoding": "base64", "truncate": 3}, "aGVs", "base64"),
        ],
    )
    def test_45_11_how_payloads_are_shown(
        self, api: HttpApi, vhost_with_queue: str, changes: Any, payload: str, encoding: str
    ) -> None:
        publish(api, vhost_with_queue)
        got = get(api, vhost_with_queue, **changes)[0]
        assert (got["payload"], got["payload_encoding"], got["payload_bytes"]) == (payload, encoding, 5)

    @pytest.mark.parametrize(("truncate", "encoding"), [(None, "string"), (200_001, "string"), (200_002, "base64")])
    def test_45_11_long_payloads_and_cut_characters(
        self, api: HttpApi, vhost_with_queue: str, truncate: int | None, encoding: str
    ) -> None:
        payload = "x" + "é" * 150_000
        publish(api, vhost_with_queue, payload=payload)
        got = get(api, vhost_with_queue, **({} if truncate is None else {"truncate": truncate}))[0]
        shown = payload.encode()[:truncate]
        text = shown.decode() if encoding == "string" else base64.b64encode(shown).decode()
        assert (got["payload"] == text, got["payload_encoding"], got["payload_bytes"]) == (True, encoding, 300_001)

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({}, "[{key_missing,ackmode},{key_missing,count},{key_missing,encoding}]"),
            ({"count": 1}, "[{key_missing,ackmode},{key_missing,encoding}]"),
            ({"count": 1, "requeue": True, "encoding": "auto"}, "[{key_missing,ackmode}]"),
            ({**GET, "encoding": "utf8"}, "Unsupported encoding. Please use auto or base64."),
            ({**GET, "count": "x"}, ["not_integer", "x"]),
            ({**GET, "count": True}, ["not_integer", True]),
            ({**GET, "truncate": "x"}, ["not_integer", "x"]),
        ],
    )
    def test_45_11_what_is_refused(self, api: HttpApi, vhost_with_queue: str, body: Any, reason: object) -> None:
        api.check("POST", path("queues", vhost_with_queue, "q", "get"), body, 400, bad_request(reason))

    def test_45_11_a_queue_that_does_not_exist(self, api: HttpApi, own_vhost: str) -> None:
        expected = {"error": "not_found", "reason": f"NOT_FOUND - no queue 'q' in vhost '{own_vhost}'"}
        api.check("POST", path("queues", own_vhost, "q", "get"), GET, 404, expected)

    def test_45_11_an_exclusive_queue(self, api: HttpApi, connect: Connect, vhost: str, unique: Any) -> None:
        channel, name = connect().channel(), unique()
        channel.queue_declare(name, exclusive=True)
        reply = api.ask("POST", path("queues", vhost, name, "get"), GET)
        assert reply.status == 400
        assert reply.document["reason"].startswith("405 RESOURCE_LOCKED - cannot obtain exclusive access to locked")
