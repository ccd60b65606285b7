"""Rules 22.1 to 22.10: publishing to streams, and what messages keep."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.streams import FIRST, STREAM, consumer, fill, new_stream, numbered, offset, offsets
from tests.conformance.topology import bodies, new_exchange, new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

#: Headers of the types that streams keep on RabbitMQ, too.
HEADERS: list[Triple] = [
    ("zz", "t", 1),
    ("a", "b", -5),
    ("x-stream-z", "B", 200),
    ("b", "s", -3000),
    ("c", "u", 60000),
    ("d", "I", -5),
    ("e", "i", 5),
    ("f", "l", 1 << 40),
    ("g", "d", 1.5),
    ("h", "S", "text"),
    ("i", "x", b"\x00\xff"),
    ("j", "T", 1_700_000_000),
    ("k", "V", None),
    ("A", "S", "upper"),
    ("a", "S", "twice"),
]


def one(connect: Connect, stream: str) -> Delivery:
    return consumer(connect, stream, FIRST).next_delivery()


def test_22_1_exchanges(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    fanout, topic = new_exchange(channel, unique, "fanout"), new_exchange(channel, unique, "topic")
    channel.queue_bind(stream, topic, "a.*")
    channel.queue_bind(stream, topic, "*.b")
    channel.rpc(commands.Exchange.Bind, source=fanout, destination=topic, routing_key="")
    channel.rpc(commands.Confirm.Select)
    channel.publish(fanout, "a.b", b"two bindings")
    channel.publish("", "nowhere", b"cc", {"headers": [("CC", "A", [("S", stream)])]})
    channel.publish(topic, "z.z", b"not here")
    assert channel.wait_for_confirms(3) == [True] * 3
    first, second = consumer(connect, stream, FIRST).deliveries(2)
    assert (first.exchange, first.routing_key, first.body) == (fanout, "a.b", b"two bindings")
    assert (second.exchange, second.routing_key, second.body) == ("", "nowhere", b"cc")


def test_22_2_offsets(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    fill(connect, stream, *numbered(10))
    found = consumer(connect, stream, FIRST).deliveries(10)
    assert offsets(found) == list(range(10))
    assert bodies(found) == numbered(10)
    channel.queue_delete(stream)
    channel.queue_declare(stream, durable=True, arguments=[STREAM])
    fill(connect, stream, b"new")
    assert offset(one(connect, stream)) == 0


@pytest.mark.parametrize("mode", [1, 2])
def test_22_3_confirms(channel: Channel, unique: Unique, mode: int) -> None:
    stream = new_stream(channel, unique)
    channel.rpc(commands.Confirm.Select)
    channel.publish("", stream, b"one", {"delivery_mode": mode})
    channel.wait_until(lambda: bool(channel.confirms), "confirm")
    confirm = channel.confirms.popleft()
    assert (confirm.ack, confirm.delivery_tag, confirm.multiple) == (True, 1, False)


def test_22_4_mandatory_and_deleted(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    channel.rpc(commands.Confirm.Select)
    channel.publish("", stream, b"1", mandatory=True)
    channel.queue_delete(stream)
    channel.publish("", stream, b"2", mandatory=True)
    channel.publish("", stream, b"3")
    assert channel.next_return().body == b"2"
    channel.queue_declare(stream, durable=True, arguments=[STREAM])
    channel.publish("", stream, b"4")
    assert channel.wait_for_confirms(4) == [True] * 4
    assert one(connect, stream).body == b"4"


def test_22_4_transactions(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    channel.rpc(commands.Tx.Select)
    channel.publish("", stream, b"rolled back")
    channel.rpc(commands.Tx.Rollback)
    for body in numbered(3):
        channel.publish("", stream, body)
    channel.rpc(commands.Tx.Commit)
    assert bodies(consumer(connect, stream, FIRST).deliveries(3)) == numbered(3)


def test_22_4_bodies(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    large = bytes(range(256)) * 80_000
    fill(connect, stream, b"", large, b"after")
    found = consumer(connect, stream, FIRST).deliveries(3, timeout=60)
    assert bodies(found) == [b"", large, b"after"]
    assert offsets(found) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.departs("3.12")
def test_22_5_dead_letters(channel: Channel, connect: Connect, unique: Unique, kind: str) -> None:
    # 3.10.8 loses them.
    stream = new_stream(channel, unique)
    letters: list[Triple] = [("x-dead-letter-exchange", "S", ""), ("x-dead-letter-routing-key", "S", stream)]
    queue = new_queue(channel, unique, durable=True, arguments=[("x-queue-type", "S", kind), *letters])
    channel.publish("", queue, b"dead")
    channel.sync(queue)
    channel.consume(queue)
    channel.send(commands.Basic.Reject, delivery_tag=channel.next_delivery().delivery_tag, requeue=False)
    found = one(connect, stream)
    assert found.body == b"dead"
    assert "x-death" in [name for name, *_ in found.headers]


def test_22_6_properties(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    properties = {
        "content_type": "a/b",
        "content_encoding": "",
        "delivery_mode": 1,
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "0",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "user_id": "guest",
        "app_id": "",
    }
    channel.rpc(commands.Confirm.Select)
    channel.publish("", stream, b"all", properties)
    channel.publish("", stream, b"none")
    assert channel.wait_for_confirms(2) == [True] * 2
    full, bare = consumer(connect, stream, FIRST).deliveries(2)
    assert full.properties == {**properties, "headers": [("x-stream-offset", "l", 0)]}
    assert bare.properties == {"headers": [("x-stream-offset", "l", 1)]}


def test_22_8_and_22_10_headers(channel: Channel, connect: Connect, unique: Unique) -> None:
    stream = new_stream(channel, unique)
    channel.rpc(commands.Confirm.Select)
    channel.publish("", stream, b"", {"headers": [*HEADERS, ("x-stream-offset", "S", b"mine")]})
    assert channel.wait_for_confirms(1) == [True]
    expected = sorted([*HEADERS, ("x-stream-offset", "l", 0)], key=lambda header: str(header[0]).encode())
    assert one(connect, stream).headers == expected


@pytest.mark.departs("none")
def test_22_8_arrays_and_tables(channel: Channel, connect: Connect, unique: Unique) -> None:
    # RabbitMQ drops them, and refuses decimals with 541.
    stream = new_stream(channel, unique)
    headers: list[Triple] = [
        ("array", "A", [("S", "a"), ("I", 5)]),
        ("decimal", "D", (2, 500)),
        ("table", "F", [("b", "I", 1), ("a", "I", 2)]),
    ]
    channel.rpc(commands.Confirm.Select)
    channel.publish("", stream, b"", {"headers": headers})
    assert channel.wait_for_confirms(1) == [True]
    assert one(connect, stream).headers == [*headers, ("x-stream-offset", "l", 0)]
