"""Rules 19.1 to 19.12: what client libraries rely on."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance import handshake
from tests.conformance.fixtures import Connect, Unique
from tests.support import content
from tests.support.methods import payload
from tests.support.wire import HEADER, METHOD, PROTOCOL_HEADER, Channel, frame, method_frame, raw_connect


@pytest.mark.parametrize("capable", [True, False])
def test_19_1_consumer_cancel_notify(connect: Connect, unique: Unique, capable: bool) -> None:
    queue = unique()
    channel = connect(capabilities={"consumer_cancel_notify": capable}).channel()
    channel.queue_declare(queue)
    channel.consume(queue, "the tag")
    watcher = connect().channel()
    watcher.consume(queue, "the watcher")
    watcher.queue_delete(queue)
    watcher.wait_until(lambda: bool(watcher.cancelled), "basic.cancel")
    if capable:
        channel.wait_until(lambda: bool(channel.cancelled), "basic.cancel")
    channel.queue_declare(queue)
    channel.sync(queue)
    assert list(channel.cancelled) == (["the tag"] if capable else [])


@pytest.mark.parametrize(
    "capabilities", [{}, {"publisher_confirms": False, "basic.nack": False, "exchange_exchange_bindings": False}]
)
def test_19_1_other_capabilities_are_not_checked(
    connect: Connect, unique: Unique, capabilities: dict[str, bool]
) -> None:
    queue, exchange = unique(), unique("x")
    channel = connect(capabilities=capabilities).channel()
    channel.exchange_declare(exchange, "fanout")
    channel.exchange_bind(exchange, "amq.fanout", "conformance.none")
    channel.queue_declare(queue, arguments=[("x-max-length", "I", 0), ("x-overflow", "S", "reject-publish")])
    channel.confirm_select()
    channel.publish("", queue, b"x")
    assert channel.wait_for_confirms(1) == [False]


def test_19_3_common_first_sequence(broker_url: str) -> None:
    with handshake.to_tune(broker_url) as wire:
        wire.send_bytes(
            method_frame(0, commands.Connection.TuneOk, channel_max=2047, frame_max=131072, heartbeat=60)
            + method_frame(0, commands.Connection.Open, virtual_host="/", insist=True)
        )
        wire.expect(0, commands.Connection.OpenOk)
        wire.send_method(1, commands.Channel.Open)
        wire.expect(1, commands.Channel.OpenOk)
        wire.send_method(1, commands.Channel.Close, reply_text="Normal shutdown")
        wire.expect(1, commands.Channel.CloseOk)
        wire.send_method(0, commands.Connection.Close, reply_code=200, reply_text="Normal shutdown")
        wire.expect(0, commands.Connection.CloseOk)


def test_19_3_the_whole_handshake_in_one_write(broker_url: str) -> None:
    # Nobody waits for start and tune here: all that matters is what the frames say.
    with raw_connect(broker_url, header=None) as wire:
        wire.send_bytes(
            PROTOCOL_HEADER
            + method_frame(0, commands.Connection.StartOk, mechanism="PLAIN", response=b"\0guest\0guest")
            + method_frame(0, commands.Connection.TuneOk, channel_max=10, frame_max=131072)
            + method_frame(0, commands.Connection.Open, virtual_host="/")
            + method_frame(1, commands.Channel.Open)
        )
        wire.expect(0, commands.Connection.Start)
        wire.expect(0, commands.Connection.Tune)
        wire.expect(0, commands.Connection.OpenOk)
        wire.expect(1, commands.Channel.OpenOk)


def test_19_4_returns_come_before_their_ack(channel: Channel) -> None:
    channel.confirm_select()
    wire = channel.connection.wire
    channel.publish("", "conformance.none", b"body", {"message_id": "m"}, mandatory=True)
    returned, header, body, ack = (wire.read_frame() for _ in range(4))
    assert returned.payload == payload(
        commands.Basic.Return, reply_code=312, reply_text="NO_ROUTE", routing_key="conformance.none"
    )
    assert header.payload == content.header(4, content.properties(message_id="m"))
    assert body.payload == b"body"
    assert ack.payload == payload(commands.Basic.Ack, delivery_tag=1)


def test_19_7_returned_properties_are_intact(channel: Channel) -> None:
    properties = {"message_id": "1234", "headers": [("a", "l", 1), ("n", "V", None)], "delivery_mode": 2}
    channel.publish("", "conformance.none", b"", properties, mandatory=True)
    returned = channel.next_return()
    assert returned.header == content.header(0, content.properties(**properties))
    assert (returned.exchange, returned.routing_key) == ("", "conformance.none")
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")


def test_19_7_multiple_acks_stay_within_what_was_published(channel: Channel, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.confirm_select()
    for _ in range(200):
        channel.publish("", queue, b"x")
    highest = 0
    while highest < 200:
        channel.wait_until(lambda: bool(channel.confirms), "confirm")
        confirm = channel.confirms.popleft()
        assert confirm.ack
        assert 1 <= confirm.delivery_tag <= 200
        highest = max(highest, confirm.delivery_tag)


def test_19_12_a_failed_channel_is_replaced_at_once(channel: Channel, vhost: str) -> None:
    number, wire = channel.number, channel.connection.wire
    for round_ in range(20):
        missing = f"conformance.none.{round_}"
        wire.send_method(number, commands.Queue.Declare, queue=missing, passive=True)
        close = wire.expect(number, commands.Channel.Close)
        assert close.reply_text == f"NOT_FOUND - no queue '{missing}' in vhost '{vhost}'"
        wire.send_bytes(method_frame(number, commands.Channel.CloseOk) + method_frame(number, commands.Channel.Open))
        wire.expect(number, commands.Channel.OpenOk)


def test_19_3_frames_may_come_byte_by_byte(channel: Channel, unique: Unique) -> None:
    queue, number = unique(), channel.number
    data = (
        method_frame(number, commands.Queue.Declare, queue=queue)
        + frame(METHOD, number, payload(commands.Basic.Publish, routing_key=queue))
        + frame(HEADER, number, content.header(0))
    )
    for at in range(len(data)):
        channel.connection.wire.send_bytes(data[at : at + 1])
    channel.reply(commands.Queue.DeclareOk)
    channel.sync(queue)
    assert channel.queue_delete(queue).message_count == 1
