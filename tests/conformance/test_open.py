"""Rules 11.29 to 11.58: connection.open and the limits checked there; update-secret."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pamqp import commands

from tests.conformance import handshake
from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Poll
from tests.conformance.timing import in_time
from tests.support.wire import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    Channel,
    Connection,
    ConnectionClosed,
    Wire,
    frame,
    start_ok,
)

OPEN = (10, 40)


def expect_refusal(connect: Connect, text: str, **options: Any) -> None:
    with pytest.raises(ConnectionClosed) as refusal:
        connect(**options)
    refusal.value.check(530, text, OPEN)


def test_11_29_open_ok(broker_url: str) -> None:
    with handshake.to_tuned(broker_url) as wire:
        wire.send_method(0, commands.Connection.Open, virtual_host="/")
        assert wire.read_frame().payload == b"\0\x0a\0\x29\0"


@pytest.mark.parametrize("name", ["conformance-none", "", "//", "/conformance", "ä'☃"])
def test_11_31_missing_vhost(connect: Connect, name: str) -> None:
    expect_refusal(connect, f"NOT_ALLOWED - vhost {name} not found", vhost=name)


def test_11_31_a_missing_vhost_wins_over_missing_permission(connect: Connect, accounts: Accounts) -> None:
    text = "NOT_ALLOWED - vhost conformance-none not found"
    expect_refusal(connect, text, vhost="conformance-none", **accounts.login("stranger"))


def test_11_32_no_permission_in_the_vhost(connect: Connect, accounts: Accounts) -> None:
    name, user = accounts.vhost("empty"), accounts.default_user
    expect_refusal(connect, f"NOT_ALLOWED - access to vhost '{name}' refused for user '{user}'", vhost=name)


def test_11_32_no_permission_at_all(connect: Connect, accounts: Accounts, vhost: str) -> None:
    user = accounts.user("stranger")
    text = f"NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}'"
    expect_refusal(connect, text, **accounts.login("stranger"))


def test_11_32_an_entry_of_empty_patterns_is_enough(connect: Connect, accounts: Accounts) -> None:
    connect(**accounts.login("nobody")).channel()


def test_11_34_out_of_order_methods_are_punished_in_silence(broker_url: str) -> None:
    def opening(wire: Wire) -> None:
        wire.send_method(0, commands.Connection.Open, virtual_host="/")

    def closing(wire: Wire) -> None:
        wire.send_method(0, commands.Connection.Close, reply_code=200, reply_text="x")

    def channel_open(wire: Wire) -> None:
        wire.send_method(1, commands.Channel.Open)

    breaches = {
        "connection.open": opening,
        "connection.close": closing,
        "channel.open": channel_open,
        "tune-ok": handshake.tune_ok,
    }
    handshake.expect_penalties(broker_url, handshake.to_start, breaches)
    del breaches["tune-ok"]
    breaches["start-ok"] = lambda wire: start_ok(wire)
    handshake.expect_penalties(broker_url, handshake.to_tune, breaches)


def test_11_35_close_before_open(broker_url: str) -> None:
    with handshake.to_tuned(broker_url) as wire:
        wire.send_method(0, commands.Connection.Close, reply_code=200)
        wire.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state opening", (10, 50))


def test_11_35_second_tune_ok(broker_url: str) -> None:
    with handshake.to_tuned(broker_url) as wire:
        handshake.tune_ok(wire)
        wire.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state opening", (10, 31))


def test_11_35_channel_frame_before_open(broker_url: str) -> None:
    with handshake.to_tuned(broker_url) as wire:
        wire.send_method(1, commands.Channel.Open)
        wire.expect_close(505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>")


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        (frame(METHOD, 1, b"\0\x63\0\x63"), "type 1, all octets = <<0,99,0,99>>"),
        (frame(METHOD, 1, b"abc"), 'type 1, all octets = <<"abc">>'),
        (frame(METHOD, 1, b"\0\x3c\0\x28\0\0\0\0\0"), "type 1, all octets = <<0,60,0,40,0,0,0,0,0>>"),
        (frame(HEADER, 7, b"abc"), 'type 2, all octets = <<"abc">>'),
        (frame(BODY, 7, b"x" * 17), 'type 3, first 16 octets = <<"xxxxxxxxxxxxxxxx">>'),
        (frame(HEARTBEAT, 1, b""), "type 8, all octets = <<>>"),
        (frame(9, 1, b""), "type 9, all octets = <<>>"),
    ],
)
def test_11_35_nobody_looks_into_channel_frames_before_open(broker_url: str, octets: bytes, shown: str) -> None:
    with handshake.to_tuned(broker_url) as wire:
        wire.send_bytes(octets)
        wire.expect_close(505, f"UNEXPECTED_FRAME - {shown}")


def test_11_35_undecodable_arguments_are_punished_in_silence(broker_url: str) -> None:
    def raw(arguments: bytes) -> partial[None]:
        return partial(_send_raw_open, arguments=arguments)

    breaches = {"none": raw(b""), "trailing": raw(b"\1/\0\0x")}
    handshake.expect_penalties(broker_url, handshake.to_tuned, breaches)


def _send_raw_open(wire: Wire, arguments: bytes) -> None:
    wire.send_raw_method(0, *OPEN, arguments)


@pytest.mark.parametrize("step", [handshake.to_start, handshake.to_tune, handshake.to_tuned])
def test_11_34_an_unknown_method_drops_the_connection_at_once(broker_url: str, step: Callable[[str], Wire]) -> None:
    def attempt() -> bool:
        with step(broker_url) as wire:
            wire.send_raw_method(0, 99, 99)
            return wire.expect_eof() < 2

    assert in_time(attempt)


@pytest.mark.parametrize("secret", ["guest", "other", ""])
def test_11_55_update_secret_changes_nothing(connection: Connection, connect: Connect, secret: str) -> None:
    connection.rpc(commands.Connection.UpdateSecret, new_secret=secret, reason="conformance")
    connection.channel()
    connect()


def test_11_56_vhost_connection_limit(connect: Connect, accounts: Accounts, poll: Poll) -> None:
    name = accounts.vhost("max-connections")
    first = connect(vhost=name)
    user = accounts.default_user
    text = f"NOT_ALLOWED - access to vhost '{name}' refused for user '{user}': connection limit (1) is reached"
    expect_refusal(connect, text, vhost=name)
    first.channel()
    first.close()
    poll(lambda: _opens(connect, vhost=name))


def _opens(connect: Connect, **options: Any) -> bool:
    try:
        connect(**options)
    except ConnectionClosed:
        return False
    return True


def test_11_56_a_vhost_limit_of_0_refuses_all(connect: Connect, accounts: Accounts) -> None:
    name = accounts.vhost("no-connections")
    user = accounts.default_user
    text = f"NOT_ALLOWED - access to vhost '{name}' refused for user '{user}': connection limit (0) is reached"
    expect_refusal(connect, text, vhost=name)


def test_11_57_user_connection_limit(connect: Connect, accounts: Accounts, poll: Poll) -> None:
    login = accounts.login("max-connections")
    first = connect(**login)
    user = login["user"]
    text = f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (1) is reached"
    expect_refusal(connect, text, **login)
    first.channel()
    first.close()
    poll(lambda: _opens(connect, **login))


def test_11_57_a_user_limit_of_0_refuses_all(connect: Connect, accounts: Accounts) -> None:
    login = accounts.login("no-connections")
    user = login["user"]
    text = f"NOT_ALLOWED - connection refused for user '{user}': user connection limit (0) is reached"
    expect_refusal(connect, text, **login)


def test_11_30_the_vhost_limit_comes_first(connect: Connect, accounts: Accounts) -> None:
    # The user has neither a connection left nor permission there.
    name, login = accounts.vhost("no-connections"), accounts.login("no-connections")
    user = login["user"]
    text = f"NOT_ALLOWED - access to vhost '{name}' refused for user '{user}': connection limit (0) is reached"
    expect_refusal(connect, text, vhost=name, **login)


def test_11_30_the_user_limit_comes_before_permission(connect: Connect, accounts: Accounts) -> None:
    login = accounts.login("no-connections")
    text = f"NOT_ALLOWED - connection refused for user '{login['user']}': user connection limit (0) is reached"
    expect_refusal(connect, text, vhost=accounts.vhost("empty"), **login)


def test_11_58_user_channel_limit_counts_over_connections(connect: Connect, accounts: Accounts, poll: Poll) -> None:
    login = accounts.login("max-channels")
    first, second = connect(**login), connect(**login)
    opened: Channel = first.channel()
    second.channel()
    text = (
        f"NOT_ALLOWED - number of channels opened for user '{login['user']}'"
        " has reached the maximum allowed user limit of (2)"
    )
    with second.expect_connection_close(530, text, (0, 0)):
        second.channel()
    opened.close()

    def two_channels() -> bool:
        third = connect(**login)
        try:
            third.channel()
            third.channel()
        except ConnectionClosed:
            return False
        return True

    poll(two_channels)
