"""Rules 10.16 and 12.19 to 12.32: opening, closing and reopening channels; flow and access."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.support import content, methods
from tests.support.methods import payload
from tests.support.wire import BODY, HEADER, METHOD, Channel, Connection, frame, method_frame

MISSING = "conformance.none"


def fail(channel: Channel, vhost: str, *, answer: bool = True) -> None:
    """Have the server close the channel by asking for a queue that does not exist."""
    channel.answer_close = answer
    text = f"NOT_FOUND - no queue '{MISSING}' in vhost '{vhost}'"
    with channel.expect_channel_close(404, text, commands.Queue.Declare):
        channel.queue_declare(MISSING, passive=True)


@pytest.mark.parametrize("number", [1, 2, 2047, 2048, 65535])
def test_12_19_any_channel_number_opens(connection: Connection, number: int) -> None:
    connection.channel(number).sync()


@pytest.mark.parametrize("out_of_band", ["", "x", "ä"])
def test_10_16_out_of_band_is_ignored(connection: Connection, out_of_band: str) -> None:
    connection.attach(1).rpc(commands.Channel.Open, out_of_band=out_of_band)


def test_12_19_second_open(channel: Channel) -> None:
    text = "CHANNEL_ERROR - second 'channel.open' seen"
    with channel.expect_connection_close(504, text, commands.Channel.Open):
        channel.send(commands.Channel.Open)


def test_12_20_open_before_close_ok(channel: Channel, vhost: str) -> None:
    fail(channel, vhost, answer=False)
    text = "CHANNEL_ERROR - second 'channel.open' seen"
    with channel.expect_connection_close(504, text, commands.Channel.Open):
        channel.send(commands.Channel.Open)


def test_12_20_a_closing_channel_ignores_everything(
    channel: Channel, connection: Connection, unique: Unique, vhost: str
) -> None:
    queue = unique()
    channel.queue_declare(queue)
    fail(channel, vhost, answer=False)
    channel.queue_delete(queue, nowait=True)
    channel.send(commands.Queue.Declare, queue=MISSING, passive=True)
    channel.send(commands.Basic.Ack, delivery_tag=99)
    channel.send(commands.Connection.Close)
    channel.send(commands.Queue.DeclareOk)
    channel.publish("", queue, b"x")
    channel.publish(MISSING, queue, b"x")
    other = connection.channel()
    assert other.queue_declare(queue, passive=True).message_count == 0
    assert not channel.replies
    channel.send(commands.Channel.CloseOk)
    connection.channel(channel.number).sync()


def test_12_20_close_of_a_closing_channel_is_answered_but_frees_nothing(channel: Channel, vhost: str) -> None:
    fail(channel, vhost, answer=False)
    channel.send(commands.Channel.Close, reply_code=200)
    connection = channel.connection
    reopened = connection.attach(channel.number)
    reopened.reply(commands.Channel.CloseOk)
    text = "CHANNEL_ERROR - second 'channel.open' seen"
    with reopened.expect_connection_close(504, text, commands.Channel.Open):
        reopened.rpc(commands.Channel.Open)


def test_12_20_close_ok_frees_the_number(channel: Channel, vhost: str) -> None:
    connection = channel.connection
    for _ in range(3):
        fail(channel, vhost)
        channel = connection.channel(channel.number)
    channel.sync()


def test_12_20_methods_after_close_ok_need_an_open(channel: Channel, vhost: str) -> None:
    fail(channel, vhost)
    text = "CHANNEL_ERROR - expected 'channel.open'"
    with channel.expect_connection_close(504, text, commands.Basic.Qos):
        channel.send(commands.Basic.Qos)


def test_12_22_close_ok_and_open_may_be_pipelined(channel: Channel, vhost: str) -> None:
    fail(channel, vhost, answer=False)
    number = channel.number
    channel.connection.wire.send_bytes(
        method_frame(number, commands.Channel.CloseOk)
        + method_frame(number, commands.Channel.Open)
        + method_frame(number, commands.Basic.Qos)
    )
    reopened = channel.connection.attach(number)
    reopened.reply(commands.Channel.OpenOk)
    reopened.reply(commands.Basic.QosOk)


def test_12_23_requests_behind_a_failing_one_are_dropped(
    channel: Channel, connection: Connection, unique: Unique, vhost: str
) -> None:
    queue, number = unique(), channel.number
    connection.wire.send_bytes(
        method_frame(number, commands.Queue.Declare, queue=MISSING, passive=True)
        + method_frame(number, commands.Queue.Declare, queue=queue)
        + method_frame(number, commands.Queue.Declare, queue=MISSING + "2", passive=True)
        + method_frame(number, commands.Basic.Ack, delivery_tag=7)
    )
    with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{MISSING}' in vhost '{vhost}'"):
        pass
    # A second channel.close would come before these replies, for a channel that is not attached any more.
    del connection.channels[number]
    other = connection.channel(number)
    with other.expect_channel_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'"):
        other.queue_declare(queue, passive=True)


def test_12_23_replies_of_requests_before_the_failing_one_come(channel: Channel, vhost: str) -> None:
    number = channel.number
    channel.connection.wire.send_bytes(
        method_frame(number, commands.Basic.Qos)
        + method_frame(number, commands.Queue.Declare, queue=MISSING, passive=True)
    )
    channel.reply(commands.Basic.QosOk)
    with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{MISSING}' in vhost '{vhost}'"):
        pass


def test_12_24_messages_of_consumers_come_back_before_close_ok(
    channel: Channel, connect: Connect, unique: Unique, vhost: str
) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.consume(queue)
    channel.publish("", queue, b"x")
    assert not channel.next_delivery().redelivered
    fail(channel, vhost, answer=False)
    other = connect().channel()
    other.consume(queue)
    delivery = other.next_delivery()
    assert (delivery.body, delivery.redelivered) == (b"x", True)


def test_12_24_messages_got_come_back_with_close_ok(
    channel: Channel, connect: Connect, unique: Unique, vhost: str
) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.publish("", queue, b"x")
    channel.sync(queue)
    assert channel.get(queue) is not None
    fail(channel, vhost, answer=False)
    other = connect().channel()
    assert other.get(queue) is None
    other.consume(queue)
    channel.send(commands.Channel.CloseOk)
    delivery = other.next_delivery()
    assert (delivery.body, delivery.redelivered) == (b"x", True)


def test_12_24_no_deliveries_after_close(channel: Channel, connect: Connect, unique: Unique, vhost: str) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.consume(queue, no_ack=True)
    fail(channel, vhost, answer=False)
    other = connect().channel()
    other.publish("", queue, b"x")
    assert other.queue_declare(queue, passive=True).consumer_count == 0
    channel.connection.channel().expect_no_delivery(queue)
    assert not channel.pending
    assert other.get(queue) is not None


def test_12_25_a_reopened_channel_starts_fresh(channel: Channel, unique: Unique, vhost: str) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.confirm_select()
    channel.qos(1)
    for _ in range(3):
        channel.publish("", queue, b"x")
    assert channel.wait_for_confirms(3) == [True] * 3
    delivery = channel.get(queue)
    assert delivery is not None
    assert delivery.delivery_tag == 1
    channel.close()

    again = channel.connection.channel(channel.number)
    again.tx_select()  # possible only without confirm mode
    again.consume(queue)
    assert [each.delivery_tag for each in again.deliveries(3)] == [1, 2, 3]
    with again.expect_channel_close(404, "NOT_FOUND - no previously declared queue", commands.Queue.Purge):
        again.queue_purge("")

    third = channel.connection.channel(channel.number)
    third.confirm_select()
    third.publish("", queue, b"x")
    assert third.wait_for_confirms(1) == [True]


@pytest.mark.parametrize("code", [0, 200, 404, 65535])
def test_12_26_any_reply_code_closes_a_channel(channel: Channel, code: int) -> None:
    channel.close(code, "bye")
    channel.connection.channel(channel.number).sync()


def test_12_27_flow(channel: Channel) -> None:
    assert channel.flow(True).active is True
    with channel.expect_connection_close(540, "NOT_IMPLEMENTED - active=false", commands.Channel.Flow):
        channel.flow(False)


@pytest.mark.parametrize("realm", ["", "/data", "x" * 255])
def test_12_28_access_request(channel: Channel, realm: str) -> None:
    # pamqp has no class `access`: realm, then the bits exclusive, passive, active, write, read.
    arguments = bytes([len(realm)]) + realm.encode() + b"\x1f"
    channel.connection.wire.send_raw_method(channel.number, 30, 10, arguments)
    received = channel.connection.wire.read_frame()
    assert (received.channel, received.payload) == (channel.number, b"\0\x1e\0\x0b\0\x01")


def test_12_32_replies_come_in_the_order_of_requests(channel: Channel, unique: Unique) -> None:
    queue, number = unique(), channel.number
    header = frame(HEADER, number, content.header(1))
    publish = frame(METHOD, number, payload(commands.Basic.Publish, routing_key=queue))
    channel.connection.wire.send_bytes(
        method_frame(number, commands.Queue.Declare, queue=queue)
        + method_frame(number, commands.Queue.Bind, queue=queue, exchange="amq.direct")
        + publish
        + header
        + frame(BODY, number, b"x")
        + method_frame(number, commands.Basic.Get, queue=queue, no_ack=True)
        + method_frame(number, commands.Basic.Qos)
        + method_frame(number, commands.Basic.Get, queue=queue)
        + method_frame(number, commands.Queue.Delete, queue=queue)
        + method_frame(number, commands.Confirm.Select)
    )
    for kind in (
        commands.Queue.DeclareOk,
        commands.Queue.BindOk,
        commands.Basic.GetOk,
        commands.Basic.QosOk,
        commands.Basic.GetEmpty,
        commands.Queue.DeleteOk,
        commands.Confirm.SelectOk,
    ):
        channel.reply(kind)


def test_12_32_every_request_is_answered_however_late_the_client_reads(channel: Channel, unique: Unique) -> None:
    queue, body, count = unique(), bytes(1_000_000), 50
    channel.queue_declare(queue)
    channel.publish("", queue, body)
    channel.sync(queue)
    get = method_frame(channel.number, commands.Basic.Get, queue=queue)
    requeue = method_frame(channel.number, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True)
    purge = method_frame(channel.number, commands.Queue.Purge, queue=queue)
    wire = channel.connection.wire
    wire.send_bytes((get + requeue) * count + purge)
    answers, size = [], 0
    while commands.Queue.PurgeOk not in answers:
        came = wire.read_frame(60)
        if came.type == METHOD:
            answers.append(methods.parse(came.payload).kind)
        elif came.type == BODY:
            size += len(came.payload)
    assert answers == [commands.Basic.GetOk] * count + [commands.Queue.PurgeOk]
    assert size == count * len(body)


def test_12_32_channels_are_independent(connection: Connection, unique: Unique) -> None:
    channels = [connection.channel() for _ in range(20)]
    queues = [unique() for _ in channels]
    for channel, queue in zip(channels, queues, strict=True):
        channel.send(commands.Queue.Declare, queue=queue)
    for channel, queue in reversed(list(zip(channels, queues, strict=True))):
        assert channel.reply(commands.Queue.DeclareOk).queue == queue
