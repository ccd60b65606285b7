"""Rules 10.3 to 10.18: frames, strings, content and the shape of error replies."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.support import content, tables
from tests.support.methods import MethodType, payload
from tests.support.wire import BODY, HEADER, HEARTBEAT, METHOD, Channel, Connection, frame, method_frame

MALFORMED = b"\xff\xfe"
SHORT_STRINGS: list[tuple[MethodType, str]] = [
    (commands.Exchange.Declare, "exchange"),
    (commands.Exchange.Declare, "exchange_type"),
    (commands.Exchange.Delete, "exchange"),
    (commands.Exchange.Bind, "destination"),
    (commands.Exchange.Bind, "source"),
    (commands.Exchange.Bind, "routing_key"),
    (commands.Exchange.Unbind, "routing_key"),
    (commands.Queue.Declare, "queue"),
    (commands.Queue.Bind, "queue"),
    (commands.Queue.Bind, "exchange"),
    (commands.Queue.Bind, "routing_key"),
    (commands.Queue.Unbind, "routing_key"),
    (commands.Queue.Purge, "queue"),
    (commands.Queue.Delete, "queue"),
    (commands.Basic.Consume, "queue"),
    (commands.Basic.Consume, "consumer_tag"),
    (commands.Basic.Cancel, "consumer_tag"),
    (commands.Basic.Get, "queue"),
    (commands.Channel.Close, "reply_text"),
]


def test_10_6_bodies_are_chunked_to_the_receivers_frame_max(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue, body = unique(), bytes(range(250)) * 40
    channel.queue_declare(queue)
    wire = channel.connection.wire
    header = frame(HEADER, 1, content.header(len(body)))
    chunks = b"".join(frame(BODY, 1, part) for part in (body[:7], body[7:9000], body[9000:]))
    wire.send_bytes(method_frame(1, commands.Basic.Publish, routing_key=queue) + header + chunks)
    channel.sync(queue)

    small = connect(frame_max=4096)
    small.channel()
    small.wire.send_method(1, commands.Basic.Get, queue=queue, no_ack=True)
    frames = [small.wire.read_frame() for _ in range(5)]
    assert [len(each.payload) for each in frames[2:]] == [4088, 4088, 1824]
    assert b"".join(each.payload for each in frames[2:]) == body


def test_10_5_an_empty_body_has_no_body_frame(channel: Channel, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.publish("", queue, b"")
    channel.sync(queue)
    wire = channel.connection.wire
    channel.send(commands.Basic.Get, queue=queue, no_ack=True)
    channel.send(commands.Basic.Get, queue=queue, no_ack=True)
    assert [wire.read_frame().type for _ in range(3)] == [METHOD, HEADER, METHOD]


def test_10_7_a_header_frame_may_exceed_frame_max(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.publish("", queue, b"x", {"headers": [("big", "S", "v" * 8000)]})
    channel.sync(queue)
    delivery = connect(frame_max=4096).channel().get(queue, no_ack=True)
    assert delivery is not None
    assert delivery.headers == [("big", "S", "v" * 8000)]


def test_10_8_contents_of_different_channels_may_interleave(connection: Connection, unique: Unique) -> None:
    queue = unique()
    first, second = connection.channel(), connection.channel()
    first.queue_declare(queue)
    publish = payload(commands.Basic.Publish, routing_key=queue)
    heartbeat = frame(HEARTBEAT, 0, b"")
    connection.wire.send_bytes(
        frame(METHOD, 1, publish)
        + frame(METHOD, 2, publish)
        + heartbeat
        + frame(HEADER, 2, content.header(4))
        + frame(HEADER, 1, content.header(2))
        + frame(BODY, 1, b"a")
        + frame(BODY, 2, b"cd")
        + heartbeat
        + frame(BODY, 1, b"b")
        + frame(BODY, 2, b"ef")
    )
    first.sync(queue)
    second.sync(queue)
    got = [first.get(queue, no_ack=True), first.get(queue, no_ack=True)]
    assert sorted(each.body for each in got if each) == [b"ab", b"cdef"]


def test_10_3_bits_are_packed_from_the_least_significant(channel: Channel, unique: Unique) -> None:
    queue = unique()
    # passive 0, durable 1, exclusive 0, auto_delete 1, nowait 0
    arguments = b"\0\0" + tables.shortstr(queue) + b"\x0a" + tables.table([])
    channel.connection.wire.send_raw_method(channel.number, 50, 10, arguments)
    channel.reply(commands.Queue.DeclareOk)
    channel.queue_declare(queue, durable=True, auto_delete=True)


@pytest.mark.parametrize(
    ("request_method", "reply"),
    [
        ((commands.Channel.Open, {}), payload(commands.Channel.OpenOk)),
        ((commands.Basic.Get, {"queue": "QUEUE"}), payload(commands.Basic.GetEmpty)),
        ((commands.Queue.Bind, {"queue": "QUEUE", "exchange": "amq.direct"}), b"\0\x32\0\x15"),
        ((commands.Confirm.Select, {}), b"\0\x55\0\x0b"),
        ((commands.Basic.Qos, {}), b"\0\x3c\0\x0b"),
    ],
    ids=lambda value: value[0].name if isinstance(value, tuple) else "",
)
def test_10_10_fixed_replies(
    channel: Channel, unique: Unique, request_method: tuple[MethodType, dict[str, Any]], reply: bytes
) -> None:
    kind, arguments = request_method
    queue = unique()
    channel.queue_declare(queue)
    given = {key: queue if value == "QUEUE" else value for key, value in arguments.items()}
    number = 9 if kind is commands.Channel.Open else channel.number
    wire = channel.connection.wire
    wire.send_method(number, kind, **given)
    received = wire.read_frame()
    assert (received.type, received.channel, received.payload) == (METHOD, number, reply)
    if number == 9:
        channel.connection.attach(9)


def test_10_12_long_reply_texts_are_cut_to_255_bytes(channel: Channel, vhost: str) -> None:
    name = "conformance." + "n" * 243
    text = f"NOT_FOUND - no queue '{name}' in vhost '{vhost}'"[:252] + "..."
    assert len(text) == 255
    with channel.expect_channel_close(404, text, commands.Queue.Declare):
        channel.queue_declare(name, passive=True)


def test_10_12_the_cut_may_fall_inside_a_character(channel: Channel) -> None:
    name = "é" * 127
    text = tables.to_text(f"NOT_FOUND - no queue '{name}' in vhost".encode()[:252] + b"...")
    with channel.expect_channel_close(404, text, commands.Queue.Declare):
        channel.queue_declare(name, passive=True)


@pytest.mark.parametrize(
    ("kind", "argument"), SHORT_STRINGS, ids=lambda value: value if isinstance(value, str) else value.name
)
def test_10_15_malformed_utf_8_closes_the_connection(channel: Channel, kind: MethodType, argument: str) -> None:
    with channel.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", (0, 0)):
        channel.send(kind, **{argument: MALFORMED})


@pytest.mark.parametrize(
    "name",
    [
        b"\x80",
        b"a\xc3",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x80\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
    ],
)
def test_10_15_every_kind_of_malformed_utf_8(channel: Channel, name: bytes) -> None:
    with channel.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", (0, 0)):
        channel.send(commands.Queue.Delete, queue=name)


@pytest.mark.parametrize(
    "name",
    [b"\xed\xa0\x80", b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xef\xbf\xbf"],
    ids=["surrogate", "surrogate pair", "above U+10FFFF", "U+1FFFFF", "non-character"],
)
def test_10_15_well_formed_sequences_of_no_character_are_accepted(channel: Channel, name: bytes) -> None:
    assert channel.queue_delete(name).message_count == 0


def test_10_15_publish_arguments_and_properties_are_not_checked(channel: Channel, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.fanout")
    properties = {"content_type": MALFORMED, "headers": [(b"\xff", "S", MALFORMED)]}
    channel.publish("amq.fanout", MALFORMED, b"x", properties)
    channel.sync(queue)
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert tables.to_bytes(delivery.routing_key) == MALFORMED
    assert delivery.raw_properties == content.properties(**properties)


@pytest.mark.parametrize("ticket", [1, 65535])
def test_10_16_tickets_are_ignored(channel: Channel, unique: Unique, ticket: int) -> None:
    queue = unique()
    channel.queue_declare(queue, ticket=ticket)
    channel.queue_bind(queue, "amq.direct", "k", ticket=ticket)
    assert channel.queue_delete(queue, ticket=ticket).message_count == 0


@pytest.mark.parametrize("name", ["naïve ☃ queue", "a'b\"c\\d", "with space", "tab\tand\x01control", "\x00"])
def test_10_17_names_are_inserted_as_utf_8(channel: Channel, vhost: str, name: str) -> None:
    name = "conformance." + name
    text = f"NOT_FOUND - no queue '{name}' in vhost '{vhost}'"
    with channel.expect_channel_close(404, text, commands.Queue.Declare):
        channel.queue_declare(name, passive=True)


@pytest.mark.parametrize("name", ["naïve ☃ queue", "a'b\"c\\d", "with space", "tab\tand\x01control", "x" * 200])
def test_10_17_any_utf_8_is_a_queue_name(channel: Channel, unique: Unique, name: str) -> None:
    name = unique() + name
    try:
        assert channel.queue_declare(name).queue == name
        channel.publish("", name, b"x")
        channel.sync(name)
        delivery = channel.get(name, no_ack=True)
        assert delivery is not None
        assert delivery.routing_key == name
    finally:
        channel.queue_delete(name)
