"""Rule 46.2: the firehose, copies of what is published and delivered in a virtual host."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.fixtures import Connect, Poll
from tests.conformance.http_api import HttpApi, path
from tests.support.channel import Channel
from tests.support.events import Delivery
from tests.support.tables import Triple
from tests.support.wire import Connection

TRACE = "amq.rabbitmq.trace"
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "headers": [("a", "S", "b"), ("n", "l", 1), ("CC", "A", [("S", "copy")]), ("BCC", "A", [("S", "blind")])],
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "c",
    "timestamp": 12345,
    "message_id": "m",
}
#: The last one of the wire comes first; numbers are signed ones of 32 bits.
AS_TABLE: list[Triple] = [
    ("timestamp", "I", 12345),
    ("message_id", "S", "m"),
    ("correlation_id", "S", "c"),
    ("priority", "I", 3),
    ("delivery_mode", "I", 2),
    ("headers", "F", [("a", "S", "b"), ("n", "l", 1), ("CC", "A", [("S", "copy")])]),
    ("content_type", "S", "text/plain"),
]


def switch(api: HttpApi, vhost: str, on: bool) -> None:
    assert api.ask("PUT", path("vhosts", vhost), {"tracing": on}).status == 204


@pytest.fixture
def traced(api: HttpApi, own_vhost: str, connect: Connect) -> str:
    """A virtual host with tracing on, and queues: q1, q2, and trace, which gets all copies."""
    channel = connect(vhost=own_vhost).channel()
    for name in ("trace", "q2", "q1"):
        channel.queue_declare(name, durable=True)
    channel.queue_bind("trace", TRACE, "#")
    channel.exchange_declare("x", "fanout")
    for name in ("q2", "q1"):
        channel.queue_bind(name, "x")
    switch(api, own_vhost, True)
    return own_vhost


@pytest.fixture
def own(connect: Connect, traced: str) -> Connection:
    return connect(vhost=traced)


@pytest.fixture
def client(own: Connection) -> Channel:
    return own.channel()


class Traces:
    """Takes copies from the queue trace."""

    def __init__(self, channel: Channel, poll: Poll) -> None:
        self._channel = channel
        self._poll = poll

    def next(self) -> Delivery:
        taken: list[Delivery] = []

        def came() -> bool:
            got = self._channel.get("trace", no_ack=True)
            taken.extend([] if got is None else [got])
            return bool(taken)

        self._poll(came)
        assert taken[0].exchange == TRACE
        return taken[0]

    def all_keys(self, last: str) -> list[str]:
        """Routing keys of all copies up to one."""
        keys: list[str] = []
        while last not in keys:
            keys.append(self.next().routing_key)
        return keys


@pytest.fixture
def traces(connect: Connect, traced: str, poll: Poll) -> Traces:
    return Traces(connect(vhost=traced).channel(), poll)


def origin_headers(own: Connection, channel: Channel, vhost: str, user: str) -> list[Triple]:
    return [("vhost", "S", vhost), ("connection", "S", own.name), ("channel", "I", channel.number), ("user", "S", user)]


def without_node(headers: list[Triple]) -> list[Triple]:
    assert [(letter, bool(value)) for key, letter, value in headers if key == "node"] == [("S", True)]
    return [each for each in headers if each[0] != "node"]


def test_46_2_a_publish_is_copied(own: Connection, client: Channel, traces: Traces, traced: str, accounts: Any) -> None:
    client.publish("x", "key", b"body", PROPERTIES)
    copy = traces.next()
    assert (copy.routing_key, copy.body, copy.redelivered) == ("publish.x", b"body", False)
    # It has no other properties than headers: it is transient.
    assert list(copy.properties) == ["headers"]
    assert without_node(copy.headers) == [
        ("exchange_name", "S", "x"),
        ("routing_keys", "A", [("S", "key"), ("S", "copy"), ("S", "blind")]),
        ("properties", "F", AS_TABLE),
        *origin_headers(own, client, traced, accounts.default_user),
        ("routed_queues", "A", [("S", "q1"), ("S", "q2")]),
    ]
    assert [key for key, _, _ in copy.headers][3] == "node"


def test_46_2_a_delivery_is_copied(
    own: Connection, client: Channel, traces: Traces, traced: str, accounts: Any
) -> None:
    client.publish("x", "key", b"body", PROPERTIES)
    assert traces.next().routing_key == "publish.x"
    client.consume("q1")
    client.nack(client.next_delivery().delivery_tag)
    client.next_delivery()
    for redelivered in (0, 1):
        copy = traces.next()
        assert (copy.routing_key, copy.body) == ("deliver.q1", b"body")
        assert without_node(copy.headers) == [
            ("exchange_name", "S", "x"),
            ("routing_keys", "A", [("S", "key"), ("S", "copy"), ("S", "blind")]),
            ("properties", "F", AS_TABLE),
            ("redelivered", "I", redelivered),
            *origin_headers(own, client, traced, accounts.default_user),
        ]


@pytest.mark.parametrize("no_ack", [False, True])
def test_46_2_a_get_is_copied(client: Channel, traces: Traces, no_ack: bool) -> None:
    client.publish("", "q1", b"")
    assert traces.next().routing_key == "publish."
    got = client.get("q1", no_ack=no_ack)
    assert got is not None
    copy = traces.next()
    assert (copy.routing_key, copy.body) == ("deliver.q1", b"")
    headers = {key: value for key, _, value in copy.headers}
    assert (headers["properties"], headers["redelivered"]) == ([], 0)


def test_46_2_copies_keep_the_order_of_what_happens(client: Channel, traces: Traces) -> None:
    client.consume("q1", no_ack=True)
    for number in range(20):
        client.publish("x" if number % 2 else "", "q1", b"%d" % number)
        client.next_delivery()
    copies = [traces.next() for _ in range(40)]
    expected = [key for number in range(20) for key in ("publish.x" if number % 2 else "publish.", "deliver.q1")]
    assert [copy.routing_key for copy in copies] == expected
    assert [copy.body for copy in copies] == [b"%d" % (number // 2) for number in range(40)]


def test_46_2_what_nobody_takes_is_copied_too(client: Channel, traces: Traces) -> None:
    client.publish("amq.direct", "nowhere", b"lost", mandatory=True)
    assert client.next_return().routing_key == "nowhere"
    copy = traces.next()
    assert copy.routing_key == "publish.amq.direct"
    assert ("routed_queues", "A", []) in copy.headers


def test_46_2_an_alternate_exchange_counts_as_routed(client: Channel, traces: Traces) -> None:
    client.exchange_declare("first", "direct", arguments=[("alternate-exchange", "S", "x")])
    client.publish("first", "nowhere", b"")
    copy = traces.next()
    assert copy.routing_key == "publish.first"
    assert ("routed_queues", "A", [("S", "q1"), ("S", "q2")]) in copy.headers


def test_46_2_transactions_are_copied_as_they_are_published(client: Channel, traces: Traces) -> None:
    client.tx_select()
    client.publish("", "q1", b"one")
    assert traces.next().body == b"one"
    client.tx_rollback()
    client.publish("", "q1", b"two")
    client.tx_commit()
    assert traces.next().body == b"two"


def test_46_2_a_dead_letter_is_no_publish(client: Channel, traces: Traces) -> None:
    arguments = [("x-max-length", "I", 0), ("x-dead-letter-exchange", "S", "x")]
    client.queue_declare("full", arguments=arguments)
    client.publish("", "full", b"dead")
    client.publish("", "nowhere", b"end")
    assert [traces.next().body, traces.next().body] == [b"dead", b"end"]


def test_46_2_over_http(api: HttpApi, traces: Traces, traced: str) -> None:
    message = {"properties": {}, "routing_key": "k", "payload": "p", "payload_encoding": "string"}
    assert api.ask("POST", path("exchanges", traced, "x", "publish"), message).document == {"routed": True}
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert len(api.ask("POST", path("queues", traced, "q2", "get"), wanted).document) == 1
    assert [traces.next().routing_key for _ in range(2)] == ["publish.x", "deliver.q2"]


def test_46_2_only_some_copies(client: Channel, traces: Traces) -> None:
    client.queue_unbind("trace", TRACE, "#")
    client.queue_bind("trace", TRACE, "deliver.#")
    client.publish("", "q1", b"")
    client.get("q1", no_ack=True)
    assert traces.next().routing_key == "deliver.q1"


def test_46_2_a_queue_that_gets_copies_of_itself(client: Channel, traces: Traces) -> None:
    client.queue_bind("q1", TRACE, "deliver.q1")
    client.publish("", "q1", b"once")
    client.consume("q1", no_ack=True)
    assert [each.exchange for each in client.deliveries(2)] == ["", TRACE]
    client.publish("", "nowhere", b"end")
    # The copy has been delivered, and nothing is said about it.
    assert traces.all_keys("deliver.q1") == ["publish.", "deliver.q1"]
    assert traces.next().body == b"end"


def test_46_2_it_ends(api: HttpApi, own: Connection, client: Channel, traces: Traces, traced: str) -> None:
    switch(api, traced, False)
    client.publish("", "q1", b"unseen")
    client.get("q1", no_ack=True)
    other = own.channel()
    other.publish("", "q1", b"unseen")
    assert other.get("q1", no_ack=True) is not None
    switch(api, traced, True)
    other.publish("", "q1", b"seen")
    assert traces.next().body == b"seen"


def test_46_2_nobody_else_publishes_there(client: Channel, traced: str) -> None:
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{TRACE}' in vhost '{traced}'"
    with client.expect_channel_close(403, text):
        client.publish(TRACE, "publish.x", b"made up")
