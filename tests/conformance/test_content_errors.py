"""Rules 10.4 and 12.9 to 12.31: content frames out of place, sizes, and properties that cannot be decoded."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Unique
from tests.support import content, methods, tables
from tests.support.methods import MethodType, payload
from tests.support.wire import BODY, HEADER, METHOD, Channel, frame

PUBLISH = commands.Basic.Publish
NO_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
NO_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"
NO_METHOD = "UNEXPECTED_FRAME - expected method frame, got non method frame instead"
EMPTY_HEADER = content.header(0)


def send(channel: Channel, *frames: tuple[int, bytes]) -> None:
    channel.connection.wire.send_bytes(b"".join(frame(kind, channel.number, body) for kind, body in frames))


def publish_to(queue: str) -> tuple[int, bytes]:
    return METHOD, payload(PUBLISH, routing_key=queue)


NOWHERE = publish_to("conformance.none")


@pytest.mark.parametrize(
    "second",
    [
        NOWHERE,
        (METHOD, payload(commands.Basic.Qos)),
        (METHOD, payload(commands.Channel.Close)),
        (BODY, b"abc"),
        (BODY, b""),
        (HEADER, content.header(3, weight=1)),
    ],
    ids=["publish", "qos", "channel.close", "body", "empty body", "weight"],
)
def test_12_9_no_header_where_one_is_due(channel: Channel, second: tuple[int, bytes]) -> None:
    with channel.expect_connection_close(505, NO_HEADER, PUBLISH):
        send(channel, NOWHERE, second)


@pytest.mark.parametrize("class_id", [0, 10, 50, 61, 65535])
def test_12_10_header_of_another_class(channel: Channel, class_id: int) -> None:
    text = f"UNEXPECTED_FRAME - expected content header for class 60, got one for class {class_id} instead"
    with channel.expect_connection_close(505, text, PUBLISH):
        send(channel, NOWHERE, (HEADER, content.header(3, class_id=class_id)))


@pytest.mark.parametrize(
    "third",
    [NOWHERE, (METHOD, payload(commands.Channel.Close)), (HEADER, EMPTY_HEADER)],
    ids=["publish", "channel.close", "header"],
)
@pytest.mark.parametrize("before", [b"", b"ab"], ids=["at once", "in the middle"])
def test_12_11_no_body_where_one_is_due(channel: Channel, before: bytes, third: tuple[int, bytes]) -> None:
    parts = [(BODY, before)] if before else []
    with channel.expect_connection_close(505, NO_BODY, PUBLISH):
        send(channel, NOWHERE, (HEADER, content.header(3)), *parts, third)


@pytest.mark.parametrize(
    "frames",
    [
        [(HEADER, EMPTY_HEADER)],
        [(BODY, b"abc")],
        [(BODY, b"")],
        [NOWHERE, (HEADER, EMPTY_HEADER), (BODY, b"")],
        [NOWHERE, (HEADER, EMPTY_HEADER), (HEADER, EMPTY_HEADER)],
        [NOWHERE, (HEADER, content.header(1)), (BODY, b"a"), (BODY, b"b")],
    ],
    ids=["header", "body", "empty body", "empty body of nothing", "second header", "second body"],
)
def test_12_12_content_without_a_method(channel: Channel, frames: list[tuple[int, bytes]]) -> None:
    with channel.expect_connection_close(505, NO_METHOD, (0, 0)):
        send(channel, *frames)


def test_12_13_empty_body_frames_in_the_middle(channel: Channel, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    bodies = [(BODY, part) for part in (b"", b"ab", b"", b"", b"c")]
    send(channel, publish_to(queue), (HEADER, content.header(3)), *bodies)
    channel.sync(queue)
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert delivery.body == b"abc"


@pytest.mark.departs("4.0")
@pytest.mark.parametrize("bodies", [[b"abcd"], [b"ab", b"cd"]])
def test_12_14_more_body_than_announced(channel: Channel, bodies: list[bytes]) -> None:
    text = "FRAME_ERROR - content body frame exceeds remaining content size"
    with channel.expect_connection_close(501, text):
        send(channel, NOWHERE, (HEADER, content.header(3)), *((BODY, body) for body in bodies))


@pytest.mark.departs("4.0")
def test_12_30_a_size_above_the_hard_cap_is_refused_at_the_header(channel: Channel) -> None:
    text = "FRAME_ERROR - content body size 536870913 exceeds maximum allowed size 536870912"
    with channel.expect_connection_close(501, text):
        send(channel, NOWHERE, (HEADER, content.header(536870913)))


def test_12_18_publish_on_a_channel_that_is_not_open(channel: Channel) -> None:
    wire = channel.connection.wire
    wire.send_bytes(frame(METHOD, 9, NOWHERE[1]) + frame(HEADER, 9, content.header(3)))
    channel.sync()
    wire.send_bytes(frame(BODY, 9, b"ab"))
    channel.sync()
    with channel.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'", PUBLISH):
        wire.send_bytes(frame(BODY, 9, b"c"))


# Content methods that clients do not send; the strings in them are not UTF-8.
SERVER_CONTENTS = {
    commands.Basic.Return: b"\0\0\0\1\xff\0",
    commands.Basic.Deliver: b"\1\xff" + bytes(9) + b"\0\0",
    commands.Basic.GetOk: bytes(9) + b"\1\xff\0" + bytes(4),
}


@pytest.mark.parametrize("kind", SERVER_CONTENTS, ids=lambda kind: kind.name)
def test_12_17_content_of_methods_that_clients_do_not_send_is_awaited(channel: Channel, kind: MethodType) -> None:
    send(channel, (METHOD, methods.raw_payload(*methods.ids(kind), SERVER_CONTENTS[kind])))
    send(channel, (HEADER, content.header(3)), (BODY, b"ab"))
    channel.connection.channel().sync()
    with channel.expect_connection_close(503, "COMMAND_INVALID - unimplemented method", kind):
        send(channel, (BODY, b"c"))


@pytest.mark.parametrize("kind", SERVER_CONTENTS, ids=lambda kind: kind.name)
def test_12_16_but_not_on_channel_0(channel: Channel, kind: MethodType) -> None:
    text = "CHANNEL_ERROR - unexpected method in connection state running"
    with channel.expect_connection_close(504, text, kind):
        channel.connection.wire.send_raw_method(0, *methods.ids(kind), SERVER_CONTENTS[kind])


@pytest.mark.parametrize("kind", SERVER_CONTENTS, ids=lambda kind: kind.name)
def test_12_9_a_content_of_a_server_method_is_checked_too(channel: Channel, kind: MethodType) -> None:
    with channel.expect_connection_close(505, NO_HEADER, kind):
        send(channel, (METHOD, methods.raw_payload(*methods.ids(kind), SERVER_CONTENTS[kind])), NOWHERE)


@pytest.mark.parametrize("kind", SERVER_CONTENTS, ids=lambda kind: kind.name)
def test_12_18_a_content_of_a_server_method_on_a_channel_that_is_not_open(channel: Channel, kind: MethodType) -> None:
    wire = channel.connection.wire
    with channel.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'", kind):
        wire.send_raw_method(9, *methods.ids(kind), SERVER_CONTENTS[kind])
        wire.send_frame(HEADER, 9, EMPTY_HEADER)


@pytest.mark.parametrize(
    ("frames", "text", "ids"),
    [
        ([NOWHERE, (BODY, b"x")], NO_HEADER, (60, 40)),
        ([NOWHERE, (HEADER, content.header(3)), NOWHERE], NO_BODY, (60, 40)),
        ([(BODY, b"x")], NO_METHOD, (0, 0)),
    ],
    ids=["2.9", "2.11", "2.12"],
)
def test_12_21_content_is_checked_on_a_closing_channel(
    channel: Channel, vhost: str, frames: list[tuple[int, bytes]], text: str, ids: tuple[int, int]
) -> None:
    channel.answer_close = False
    missing = f"NOT_FOUND - no queue 'conformance.none' in vhost '{vhost}'"
    with channel.expect_channel_close(404, missing):
        channel.queue_declare("conformance.none", passive=True)
    with channel.expect_connection_close(505, text, ids):
        send(channel, *frames)


def test_12_29_too_large_message(channel: Channel) -> None:
    size = 134217728 + 1
    wire = channel.connection.wire
    wire.timeout = channel.connection.timeout = 30
    chunk = 131064
    send(channel, NOWHERE, (HEADER, content.header(size)))
    # The header alone triggers nothing.
    other = channel.connection.channel()
    other.sync()
    whole = frame(BODY, channel.number, bytes(chunk))
    for _ in range(size // chunk):
        wire.send_bytes(whole)
    text = f"PRECONDITION_FAILED - message size {size} is larger than configured max size 134217728"
    with channel.expect_channel_close(406, text, PUBLISH):
        send(channel, (BODY, bytes(size % chunk)))
    other.sync()


def with_table(body: bytes) -> bytes:
    """Return properties of only headers, with this inside of the table."""
    return b"\x20\0" + tables.longstr(body)


@pytest.mark.parametrize(
    "properties",
    [
        b"\x80\0",
        b"\x80\0\x05abc",
        b"\0\0x",
        b"\x80\0\x01ax",
        b"\x08\0",
        b"\0\x40\0\0\0",
        b"\x20\0\0\0\0\x09",
        with_table(b"\x01aU\0\0"),
        with_table(b"\x01an\0\0"),
        with_table(b"\x01aC\0\0"),
        with_table(b"\x01aZ\0\0"),
        with_table(b"\x01aS\0\0\0\x09abc"),
        with_table(b"\x09a"),
        with_table(b"\x01aA" + tables.longstr(b"Z")),
        with_table(b"\x01aF" + tables.longstr(b"\x01bZ")),
        b"\0\x01\0\0",
        b"\x80\x01\0\0\x01a",
        b"\x80\x01\x01a\0\0",
    ],
    ids=[
        "no value",
        "cut value",
        "trailing byte",
        "trailing byte after a value",
        "no priority",
        "cut timestamp",
        "cut table",
        "type U",
        "type n",
        "type C",
        "type Z",
        "cut string in the table",
        "cut key",
        "unknown type in an array",
        "unknown type in a nested table",
        "continuation bit and a second flag word",
        "continuation bit, a second flag word and a value",
        "continuation bit, a value and a second flag word",
    ],
)
def test_12_31_undecodable_properties(channel: Channel, properties: bytes) -> None:
    with channel.expect_connection_close(541, "INTERNAL_ERROR", (0, 0)):
        channel.publish("", "conformance.none", b"x", properties)


def test_12_31_only_when_the_publish_is_complete(channel: Channel) -> None:
    send(channel, NOWHERE, (HEADER, content.header(2, b"\0\x01\0\0")), (BODY, b"a"))
    channel.connection.channel().sync()
    with channel.expect_connection_close(541, "INTERNAL_ERROR", (0, 0)):
        send(channel, (BODY, b"b"))


def test_10_4_properties_of_all_flags_are_relayed(channel: Channel, unique: Unique, accounts: Accounts) -> None:
    queue = unique()
    channel.queue_declare(queue)
    values = {
        "content_type": "text/plain",
        "content_encoding": "",
        "headers": [("k", "l", 1), ("k", "I", 1)],
        "delivery_mode": 1,
        "priority": 255,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "100000",
        "message_id": "m",
        "timestamp": 2**63,
        "type": "t",
        "user_id": accounts.default_user,
        "app_id": "a",
        "cluster_id": "x" * 255,
    }
    channel.publish("", queue, b"x", values)
    channel.sync(queue)
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert delivery.properties == values
    assert delivery.header == content.header(1, content.properties(**values))


@pytest.mark.parametrize("properties", [b"\0\x01", b"\0\x02", b"\0\x03", b"\x80\x03\x01a"])
def test_10_4_flag_bits_0_and_1_are_relayed_and_mean_nothing(
    channel: Channel, unique: Unique, properties: bytes
) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.publish("", queue, b"x", properties)
    channel.sync(queue)
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert delivery.raw_properties == properties
