"""Rules 11.40 to 11.49: how connections end."""

from __future__ import annotations

import socket
import time
import urllib.error
from collections.abc import Iterator

import pytest
from pamqp import commands

from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.timing import AT_ONCE, in_time, lifetime
from tests.support import content
from tests.support.management import Management
from tests.support.wire import BODY, HEADER, HEARTBEAT, METHOD, Connection, ConnectionClosed, frame, silent_close_times

HEARTBEAT_FRAME = frame(HEARTBEAT, 0, b"")
CLOSE = commands.Connection.Close
CLOSE_OK = commands.Connection.CloseOk


def test_11_43_exclusive_queues_are_gone_at_close_ok(connect: Connect, unique: Unique, vhost: str) -> None:
    owner, channel = connect(), connect().channel()
    queue = unique()
    owner.channel().queue_declare(queue, exclusive=True)
    owner.close()
    with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'"):
        channel.queue_declare(queue, passive=True)


@pytest.mark.parametrize("code", [0, 200, 320, 65535])
def test_11_43_any_reply_code_closes(connect: Connect, code: int) -> None:
    connection = connect()
    connection.wire.send_method(0, CLOSE, reply_code=code, reply_text="bye", class_id=1, method_id=2)
    connection.wire.expect(0, CLOSE_OK)


def test_11_44_the_server_leaves_tcp_to_the_client(connect: Connect) -> None:
    # At most the heartbeat timeout, and 30 s without one.
    def attempt() -> bool:
        patient, hasty = connect(heartbeat=0), connect(heartbeat=1)
        closed = time.monotonic()
        for connection in (patient, hasty):
            connection.wire.send_method(0, CLOSE, reply_code=200)
            connection.wire.expect(0, CLOSE_OK)
        seconds = lifetime(hasty, closed)
        with pytest.raises(TimeoutError):
            patient.wire.read_frame(0.5)
        hasty.abort()
        patient.abort()
        return 0.5 <= seconds <= 2.5

    assert in_time(attempt)


def test_11_45_after_close_only_close_counts(connect: Connect, unique: Unique, vhost: str) -> None:
    connection, channel = connect(), connect().channel()
    queue = unique()
    connection.channel(1)
    wire = connection.wire
    wire.send_method(0, CLOSE, reply_code=200)
    wire.send_method(1, commands.Queue.Declare, queue=queue)
    wire.send_method(2, commands.Channel.Open)
    wire.expect(0, CLOSE_OK)
    wire.send_method(0, CLOSE, reply_code=200)
    wire.expect(0, CLOSE_OK)
    connection.abort()
    with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'"):
        channel.queue_declare(queue, passive=True)


def test_11_45_a_close_ok_after_close_ends_tcp_at_once(connect: Connect) -> None:
    connection = connect()
    connection.wire.send_method(0, CLOSE, reply_code=200)
    connection.wire.expect(0, CLOSE_OK)
    connection.wire.send_method(0, CLOSE_OK)
    connection.wire.expect_silent_close()
    connection.abort()


def fail(connection: Connection) -> None:
    """Make the server close the connection, and read its connection.close."""
    connection.wire.send_method(0, commands.Channel.Open)
    close = connection.wire.expect(0, CLOSE)
    assert (close.reply_code, close.class_id, close.method_id) == (504, 20, 10)


def test_11_46_after_the_servers_close_only_close_counts(connect: Connect) -> None:
    connection = connect()
    fail(connection)
    wire = connection.wire
    wire.send_method(0, commands.Channel.Open)
    wire.send_method(1, commands.Channel.Open)
    wire.send_method(0, CLOSE, reply_code=200)
    wire.expect(0, CLOSE_OK)
    wire.send_method(0, CLOSE_OK)
    wire.expect_silent_close(within=AT_ONCE)
    connection.abort()


WRONG = {
    "unknown method": frame(METHOD, 1, b"\0\x63\0\x63"),
    "short method": frame(METHOD, 1, b"\0"),
    "unknown table type": frame(METHOD, 1, b"\0\x32\0\x0a\0\0\1q\0\0\0\0\4\1kZ\0"),
    "body": frame(BODY, 1, b"x"),
    "frame type": frame(9, 1, b"x"),
    "heartbeat": frame(HEARTBEAT, 1, b""),
    "cut arguments": frame(METHOD, 0, b"\0\x0a\0\x32x"),
    "frame type on channel 0": frame(9, 0, b"x"),
    "header on channel 0": frame(HEADER, 0, content.header(0)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("by_client", [True, False], ids=["closed by the client", "closed by the server"])
def test_11_45_after_a_close_mistakes_do_not_count(connect: Connect, wrong: bytes, by_client: bool) -> None:
    connection = connect()
    wire = connection.wire
    connection.channel(1)
    if by_client:
        wire.send_method(0, CLOSE, reply_code=200)
        wire.expect(0, CLOSE_OK)
    else:
        fail(connection)
    wire.send_bytes(wrong)
    wire.send_method(0, CLOSE, reply_code=200)
    wire.expect(0, CLOSE_OK)
    wire.send_method(0, CLOSE_OK)
    wire.expect_silent_close()
    connection.abort()


def test_11_45_but_unreadable_input_ends_tcp_in_three_seconds(connect: Connect) -> None:
    unreadable = {"end octet": frame(HEARTBEAT, 0, b"", end=0), "size": frame(METHOD, 1, b"", size=200_000)[:7]}
    wires = {}
    for name, octets in unreadable.items():
        connection = connect()
        fail(connection)
        connection.wire.send_bytes(octets)
        connection.wire.send_method(0, CLOSE_OK)
        wires[name] = connection.wire
    times = silent_close_times(wires, 20)
    assert min(times.values()) > 2.5, times


@pytest.mark.parametrize("by_client", [True, False], ids=["closed by the client", "closed by the server"])
def test_11_45_an_unknown_method_on_channel_0_ends_tcp_at_once(connect: Connect, by_client: bool) -> None:
    connection = connect()
    if by_client:
        connection.wire.send_method(0, CLOSE, reply_code=200)
        connection.wire.expect(0, CLOSE_OK)
    else:
        fail(connection)
    connection.wire.send_raw_method(0, 99, 99)
    connection.wire.expect_silent_close()
    connection.abort()


def test_11_46_close_ok_ends_tcp_at_once(connect: Connect) -> None:
    connection = connect()
    fail(connection)
    connection.wire.send_method(0, CLOSE_OK)
    connection.wire.expect_silent_close(within=AT_ONCE)
    connection.abort()


def test_11_46_an_unanswered_close_ends_after_the_timeout(connect: Connect) -> None:
    def attempt() -> bool:
        connection = connect(heartbeat=1)
        failed = time.monotonic()
        fail(connection)
        seconds = lifetime(connection, failed)
        connection.abort()
        return 0.5 <= seconds <= 2.5

    assert in_time(attempt)


def ending(connection: Connection) -> tuple[int, str]:
    """Wait for the end of TCP; return how many heartbeats came before, and whether it was RST or FIN."""
    heartbeats = 0
    while True:
        connection.wire.socket.settimeout(60)
        try:
            octets = connection.wire.socket.recv(len(HEARTBEAT_FRAME), socket.MSG_WAITALL)
        except ConnectionResetError:
            return heartbeats, "RST"
        if not octets:
            return heartbeats, "FIN"
        assert octets == HEARTBEAT_FRAME
        heartbeats += 1


def test_11_46_heartbeats_go_on_while_an_answer_is_awaited(connect: Connect) -> None:
    connection = connect(heartbeat=4)
    # What is sent in a half of the timeout takes the place of its heartbeat: so the next half has one.
    time.sleep(1.5)
    fail(connection)
    heartbeats, end = ending(connection)
    assert 1 <= heartbeats <= 3
    assert end == "RST"


def test_11_44_heartbeats_go_on_after_close_ok(connect: Connect) -> None:
    connection = connect(heartbeat=4)
    time.sleep(1.5)
    connection.wire.send_method(0, CLOSE, reply_code=200)
    connection.wire.expect(0, CLOSE_OK)
    heartbeats, end = ending(connection)
    assert 1 <= heartbeats <= 3
    assert end == "RST"


def test_11_46_close_ok_is_followed_by_a_reset(connect: Connect) -> None:
    connection = connect(heartbeat=0)
    fail(connection)
    connection.wire.send_method(0, CLOSE_OK)
    assert ending(connection) == (0, "RST")


def test_11_40_the_socket_of_a_silent_peer_is_reset(connect: Connect) -> None:
    assert ending(connect(heartbeat=1))[1] == "RST"


def test_11_46_an_unknown_method_on_channel_0_resets(connect: Connect) -> None:
    connection = connect(heartbeat=0)
    connection.wire.send_raw_method(0, 99, 99)
    assert ending(connection) == (0, "RST")


def test_11_47_exclusive_queues_are_gone_at_the_servers_close(connect: Connect, unique: Unique, vhost: str) -> None:
    owner, channel = connect(), connect().channel()
    queue = unique()
    owner.channel().queue_declare(queue, exclusive=True)
    fail(owner)
    with channel.expect_channel_close(404, f"NOT_FOUND - no queue '{queue}' in vhost '{vhost}'"):
        channel.queue_declare(queue, passive=True)
    owner.abort()


@pytest.mark.parametrize("reason", [None, "conformance says so"])
def test_11_48_closed_by_management(
    connection: Connection, management: Management, poll: Poll, reason: str | None
) -> None:
    headers = {} if reason is None else {"X-Reason": reason}

    def deleted() -> bool:
        # A new connection may not be known to the statistics yet.
        try:
            management.request("DELETE", "connections", connection.name, headers=headers)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                raise
            return False
        return True

    with connection.expect_connection_close(
        320, f"CONNECTION_FORCED - {reason or 'Closed via management plugin'}", (0, 0)
    ):
        poll(deleted)


@pytest.fixture
def doomed(management: Management, accounts: Accounts) -> Iterator[str]:
    """The name of a user and of a virtual host where that user and the default one may do everything."""
    name = accounts.prefix + "doomed"
    management.request("PUT", "vhosts", name, body={})
    management.request("PUT", "users", name, body={"password": name, "tags": ""})
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    for user in (name, accounts.default_user):
        management.request("PUT", "permissions", name, user, body=permission)
    yield name
    for kind in ("vhosts", "users"):
        try:
            management.request("DELETE", kind, name)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != 404:
                raise


def test_11_48_user_deleted(connect: Connect, management: Management, doomed: str) -> None:
    connection = connect(user=doomed, password=doomed, vhost=doomed)
    with connection.expect_connection_close(320, f"CONNECTION_FORCED - user '{doomed}' is deleted", (0, 0)):
        management.request("DELETE", "users", doomed)


def test_11_48_vhost_deleted(connect: Connect, management: Management, doomed: str) -> None:
    connection = connect(user=doomed, password=doomed, vhost=doomed)
    management.request("DELETE", "vhosts", doomed)
    with pytest.raises(ConnectionClosed) as caught:
        connection.read()
    assert (caught.value.code, caught.value.ids) == (320, (0, 0))
    # In 3.10.8 the end of the virtual host's processes and its removal race to close the connections.
    texts = [f"CONNECTION_FORCED - vhost '{doomed}' is {state}" for state in ("deleted", "down")]
    assert caught.value.text in texts


def test_11_49_a_lost_permission_leaves_connections_and_consumers(
    connect: Connect, management: Management, doomed: str
) -> None:
    connection = connect(user=doomed, password=doomed, vhost=doomed)
    channel = connection.channel()
    queue = channel.queue_declare("").queue
    channel.consume(queue, no_ack=True)
    management.request("DELETE", "permissions", doomed, doomed)
    connection.channel()
    publisher = connect(vhost=doomed).channel()
    publisher.publish("", queue, b"still here")
    assert channel.next_delivery().body == b"still here"
