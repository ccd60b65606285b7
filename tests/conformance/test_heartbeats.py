"""Rules 11.26 to 11.42: heartbeats, with the shortest timeout there is, one second."""

from __future__ import annotations

import time

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import no_queue
from tests.conformance.timing import in_time, lifetime
from tests.support.wire import HEARTBEAT, Connection, ConnectionDropped, Frame

# A heartbeat frame, to be sent so slowly that no whole frame comes within the timeout.
FRAME = b"\x08\0\0\0\0\0\0\xce"


def test_11_38_the_server_sends_one_each_half_timeout(connect: Connect) -> None:
    def attempt() -> bool:
        connection = connect(heartbeat=1)
        started, times = time.monotonic(), []
        for _ in range(4):
            assert connection.wire.read_frame(30) == Frame(HEARTBEAT, 0, b"")
            times.append(time.monotonic() - started)
            connection.wire.send_frame(HEARTBEAT, 0, b"")
        gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
        return all(0.2 <= gap <= 1.1 for gap in gaps) and times[-1] < 3

    assert in_time(attempt)


def test_11_38_traffic_suppresses_heartbeats(connect: Connect) -> None:
    def attempt() -> bool:
        connection = connect(heartbeat=1)
        channel = connection.channel()
        end = time.monotonic() + 2.3
        while time.monotonic() < end:
            channel.sync()
            time.sleep(0.05)
        # 3.10.8 sends the first one, at T/2, whatever else it has sent.
        return connection.heartbeats <= 1

    assert in_time(attempt)


def test_11_39_a_silent_peer_is_dropped_and_its_messages_come_back(
    connect: Connect, connection: Connection, unique: Unique, poll: Poll, vhost: str
) -> None:
    other = connection.channel()

    def attempt() -> bool:
        silent = connect(heartbeat=1)
        queue, exclusive = unique(), unique()
        channel = silent.channel()
        channel.queue_declare(queue)
        channel.queue_declare(exclusive, exclusive=True)
        channel.publish("", queue, b"x")
        channel.sync(queue)
        last_heard = time.monotonic()
        assert channel.get(queue) is not None
        # 1.40: only heartbeats before the end, no connection.close.
        seconds = lifetime(silent, last_heard)

        poll(lambda: bool(other.queue_declare(queue, passive=True).message_count == 1))
        delivery = other.get(queue)
        assert delivery is not None
        assert delivery.redelivered
        asking = connection.channel()
        with asking.expect_channel_close(404, no_queue(exclusive, vhost)):
            asking.queue_declare(exclusive, passive=True)
        return 1.8 <= seconds <= 3.8

    assert in_time(attempt)


def test_11_39_any_bytes_count_as_life(connect: Connect) -> None:
    def attempt() -> bool:
        connection = connect(heartbeat=1)
        try:
            for octet in FRAME:
                connection.wire.send_bytes(bytes([octet]))
                time.sleep(0.5)
            connection.channel()
        except (ConnectionDropped, OSError):
            return False
        return True

    assert in_time(attempt)


def test_11_26_a_timeout_of_0_disables_heartbeats(connect: Connect) -> None:
    connection = connect(heartbeat=0)
    with pytest.raises(TimeoutError):
        connection.wire.read_frame(1.5)
    connection.channel()


@pytest.mark.parametrize("opened", [False, True])
def test_11_42_heartbeat_on_a_channel(connection: Connection, opened: bool) -> None:
    if opened:
        connection.channel(1)
    with connection.expect_connection_close(505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", (0, 0)):
        connection.wire.send_frame(HEARTBEAT, 1, b"")


@pytest.mark.parametrize(("body", "printed"), [(b"abc", '<<"abc">>'), (b"\0\xff", "<<0,255>>")])
def test_11_42_heartbeat_with_a_payload(connection: Connection, body: bytes, printed: str) -> None:
    text = f"FRAME_ERROR - type 8, all octets = {printed}: unknown_frame"
    with connection.expect_connection_close(501, text, (0, 0)):
        connection.wire.send_frame(HEARTBEAT, 0, body)


def test_11_26_heartbeats_are_accepted_when_disabled(connection: Connection) -> None:
    connection.wire.send_frame(HEARTBEAT, 0, b"")
    connection.wire.send_method(1, commands.Channel.Open)
    connection.attach(1).reply(commands.Channel.OpenOk)
