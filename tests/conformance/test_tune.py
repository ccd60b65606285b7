"""Rules 11.23 to 11.37: connection.tune and tune-ok."""

from __future__ import annotations

from functools import partial

import pytest
from pamqp import commands

from tests.conformance import handshake
from tests.conformance.fixtures import Connect, Unique
from tests.support.methods import MethodType, payload
from tests.support.wire import Connection, method_frame


def test_11_23_tune_offers_the_defaults(connection: Connection) -> None:
    tune = connection.tune
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


def test_11_25_breaches_of_tune_are_punished_in_silence(broker_url: str) -> None:
    tune_ok = handshake.tune_ok
    handshake.expect_penalties(
        broker_url,
        handshake.to_tune,
        {
            "frame_max below 4096": partial(tune_ok, frame_max=4095),
            "frame_max 0": partial(tune_ok, frame_max=0),
            "frame_max above the server's": partial(tune_ok, frame_max=131073),
            "channel_max 0": partial(tune_ok, channel_max=0),
            "channel_max above the server's": partial(tune_ok, channel_max=2048),
            "channel_max 65535": partial(tune_ok, channel_max=65535),
        },
    )


@pytest.mark.parametrize("frame_max", [4096, 4097, 131072])
def test_11_24_frame_max_within_bounds_is_accepted(connect: Connect, unique: Unique, frame_max: int) -> None:
    channel = connect(frame_max=frame_max).channel()
    queue, body = unique(), b"b" * 140000
    channel.queue_declare(queue)
    channel.publish("", queue, body)
    channel.sync(queue)
    delivery = channel.get(queue, no_ack=True)
    assert delivery is not None
    assert delivery.body == body


@pytest.mark.parametrize("heartbeat", [0, 1, 60, 61, 600, 65535])
def test_11_26_any_heartbeat_is_accepted(connect: Connect, heartbeat: int) -> None:
    connect(heartbeat=heartbeat).channel()


def test_11_27_channel_max_counts_open_channels(connect: Connect) -> None:
    connection = connect(channel_max=3)
    for number in (5, 2047, 65535):
        connection.channel(number)
    text = "NOT_ALLOWED - number of channels opened (3) has reached the negotiated channel_max (3)"
    with connection.expect_connection_close(530, text, (0, 0)):
        connection.channel(1)


@pytest.mark.parametrize("kind", [commands.Queue.Declare, commands.Basic.Ack, commands.Channel.Close])
def test_11_27_it_is_counted_before_the_channel_is_missed(connect: Connect, kind: MethodType) -> None:
    connection = connect(channel_max=1)
    connection.channel(5)
    text = "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)"
    with connection.expect_connection_close(530, text, (0, 0)):
        connection.wire.send_method(6, kind)


def test_11_27_a_closed_channel_makes_room(connect: Connect) -> None:
    connection = connect(channel_max=1)
    for _ in range(3):
        connection.channel(7).close()
    connection.channel(8)


def test_11_27_a_channel_that_the_server_closed_makes_room(connect: Connect, vhost: str) -> None:
    connection = connect(channel_max=1)
    first = connection.channel(1)
    with first.expect_channel_close(404, f"NOT_FOUND - no exchange 'conformance.none' in vhost '{vhost}'"):
        first.exchange_declare("conformance.none", passive=True)
    connection.channel(2)


def test_11_28_frame_max_governs_what_the_server_accepts(connect: Connect) -> None:
    channel = connect(frame_max=4096).channel()
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,4097,4088}"
    channel.send(commands.Basic.Publish, routing_key="conformance.none")
    with channel.expect_connection_close(501, text, (0, 0)):
        channel.connection.wire.send_frame(3, 1, b"x" * 4097)


def test_11_37_tune_ok_and_open_may_be_pipelined(broker_url: str) -> None:
    with handshake.to_tune(broker_url) as wire:
        wire.send_bytes(
            method_frame(0, commands.Connection.TuneOk, channel_max=2047, frame_max=131072, heartbeat=0)
            + method_frame(0, commands.Connection.Open, virtual_host="/")
            + method_frame(1, commands.Channel.Open)
        )
        assert wire.read_frame().payload == payload(commands.Connection.OpenOk)
        wire.expect(1, commands.Channel.OpenOk)
