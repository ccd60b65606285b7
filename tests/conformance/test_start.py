"""Rules 11.8 to 11.36: connection.start and SASL."""

from __future__ import annotations

from functools import partial

import pytest
from pamqp import commands

from tests.conformance import handshake
from tests.conformance.accounts import Accounts
from tests.conformance.fixtures import Connect, Poll
from tests.conformance.timing import AT_ONCE
from tests.support import tables
from tests.support.management import Management
from tests.support.wire import (
    ALL_CAPABILITIES,
    Connection,
    ConnectionClosed,
    Wire,
    frame,
    plain_response,
    raw_connect,
    start_ok,
)

REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism {}. For details see the broker logfile."


def amqplain(user: str, password: str) -> bytes:
    return tables.table_body([("LOGIN", "S", user), ("PASSWORD", "S", password)])


def test_11_9_server_properties_are_sorted_by_key(connection: Connection) -> None:
    found = [(key, letter) for key, letter, _ in connection.start.server_properties]
    assert found == [
        ("capabilities", "F"),
        ("cluster_name", "S"),
        ("copyright", "S"),
        ("information", "S"),
        ("platform", "S"),
        ("product", "S"),
        ("version", "S"),
    ]
    assert all(value for _, letter, value in connection.start.server_properties if letter == "S")


def test_11_10_capabilities(connection: Connection) -> None:
    capabilities = {key: value for key, _, value in connection.start.server_properties}["capabilities"]
    assert sorted(capabilities) == [
        (name, "t", 1)
        for name in (
            "authentication_failure_close",
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "consumer_priorities",
            "direct_reply_to",
            "exchange_exchange_bindings",
            "per_consumer_qos",
            "publisher_confirms",
        )
    ]


def test_11_11_mechanisms_and_locales(connection: Connection) -> None:
    assert sorted(connection.start.mechanisms.split()) == [b"AMQPLAIN", b"PLAIN"]
    assert connection.start.locales == b"en_US"
    assert (connection.start.version_major, connection.start.version_minor) == (0, 9)


@pytest.mark.parametrize("locale", ["fr_FR", "en_GB", ""])
def test_11_12_any_locale_is_accepted(broker_url: str, locale: str) -> None:
    with handshake.to_start(broker_url) as wire:
        wire.send_method(
            0, commands.Connection.StartOk, mechanism="PLAIN", response=plain_response("guest", "guest"), locale=locale
        )
        wire.expect(0, commands.Connection.Tune)


def test_11_12_capabilities_that_are_no_table_count_as_none(broker_url: str) -> None:
    # Without authentication_failure_close a wrong password gets no frame; see 1.21 for the time.
    with handshake.to_start(broker_url) as wire:
        wire.send_method(
            0,
            commands.Connection.StartOk,
            client_properties=[("capabilities", "S", "authentication_failure_close")],
            mechanism="PLAIN",
            response=plain_response("guest", "guest"),
        )
        wire.expect(0, commands.Connection.Tune)


def test_11_12_client_properties_of_every_type_are_accepted(connect: Connect) -> None:
    connect(
        client_properties=[
            ("t", "t", 1),
            ("b", "b", -1),
            ("B", "B", 255),
            ("s", "s", -1),
            ("u", "u", 65535),
            ("I", "I", -1),
            ("i", "i", 2**32 - 1),
            ("l", "l", -1),
            ("f", "f", 0.5),
            ("d", "d", 0.5),
            ("D", "D", (2, 314)),
            ("S", "S", "text"),
            ("x", "x", b"\xff"),
            ("T", "T", 0),
            ("A", "A", [("S", "a"), ("I", 1)]),
            ("F", "F", [("k", "V", None)]),
            ("V", "V", None),
        ]
    )


def test_11_13_connection_name_is_shown_by_management(connect: Connect, management: Management, poll: Poll) -> None:
    connection = connect(client_properties=[("connection_name", "S", "conformance 1.13")])
    name = connection.name

    def shown() -> bool:
        listed = management.request("GET", "connections")
        return any(row["name"] == name and row.get("user_provided_name") == "conformance 1.13" for row in listed)

    poll(shown)


def test_11_15_plain(connect: Connect) -> None:
    connect(response=b"\0guest\0guest")


def test_11_16_amqplain(connect: Connect) -> None:
    connect(mechanism="AMQPLAIN", response=amqplain("guest", "guest"))
    # Further entries, and any order.
    response = tables.table_body([("x", "I", 1), ("PASSWORD", "S", "guest"), ("LOGIN", "S", "guest")])
    connect(mechanism="AMQPLAIN", response=response)


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
@pytest.mark.parametrize(
    ("user", "password"),
    [("guest", "wrong"), ("conformance-no-such-user", "guest"), ("guest", ""), ("", ""), ("Guest", "guest")],
)
def test_11_20_a_failed_login_is_answered_with_403(broker_url: str, mechanism: str, user: str, password: str) -> None:
    response = (plain_response if mechanism == "PLAIN" else amqplain)(user, password)
    with pytest.raises(ConnectionClosed) as refusal:
        Connection(broker_url, mechanism=mechanism, response=response)
    refusal.value.check(403, REFUSED.format(mechanism), (0, 0))


def test_11_20_the_server_closes_after_close_ok(broker_url: str) -> None:
    with handshake.to_start(broker_url) as wire:
        start_ok(wire, response=b"\0guest\0wrong")
        wire.expect_close(403, REFUSED.format("PLAIN"))
        wire.expect_silent_close(within=AT_ONCE)


def test_11_21_breaches_of_sasl_are_punished_in_silence(broker_url: str) -> None:
    def plain(response: bytes, capabilities: dict[str, bool] | None = None) -> partial[None]:
        return partial(start_ok, response=response, capabilities=capabilities)

    def other(mechanism: str, response: bytes) -> partial[None]:
        return partial(start_ok, mechanism=mechanism, response=response)

    def table(*entries: tables.Triple) -> partial[None]:
        return other("AMQPLAIN", tables.table_body(entries))

    login: tables.Triple = ("LOGIN", "S", "guest")
    password: tables.Triple = ("PASSWORD", "S", "guest")
    no_close = {**ALL_CAPABILITIES, "authentication_failure_close": False}
    handshake.expect_penalties(
        broker_url,
        handshake.to_start,
        {
            "1.15 authorization id": plain(b"guest\0guest\0guest"),
            "1.15 no password": plain(b"\0guest"),
            "1.15 extra part": plain(b"\0guest\0guest\0"),
            "1.15 empty": plain(b""),
            "1.16 no login": table(password),
            "1.16 no password": table(login),
            "1.16 lower case": table(("login", "S", "guest"), ("password", "S", "guest")),
            "1.16 no strings": table(("LOGIN", "I", 1), ("PASSWORD", "I", 1)),
            "1.16 length": other("AMQPLAIN", tables.table([login, password])),
            "1.19 unknown": other("FOO", b"\0guest\0guest"),
            "1.19 lower case": other("plain", b"\0guest\0guest"),
            "1.19 not offered": other("EXTERNAL", b""),
            "1.19 no mechanism": other("", b"\0guest\0guest"),
            "1.21 no capabilities": plain(b"\0guest\0wrong", {}),
            "1.21 capability is false": plain(b"\0guest\0wrong", no_close),
            "1.21 unknown user": plain(b"\0conformance-nobody\0guest", {}),
        },
    )


def test_11_14_undecodable_start_ok_is_punished_in_silence(broker_url: str) -> None:
    def raw_properties(body: bytes) -> partial[None]:
        return partial(_start_ok_with, properties=tables.longstr(body))

    handshake.expect_penalties(
        broker_url,
        handshake.to_start,
        {
            "1.14 unknown type": raw_properties(b"\x01aZ1234"),
            "1.14 cut value": raw_properties(b"\x01aS\0\0\0\xffabc"),
            "1.14 cut key": raw_properties(b"\xffa"),
            "1.8 over 4096 bytes": lambda wire: start_ok(wire, properties=[("long", "S", "x" * 5000)]),
        },
    )


def _start_ok_with(wire: Wire, properties: bytes) -> None:
    wire.send_method(
        0, commands.Connection.StartOk, client_properties=properties, mechanism="PLAIN", response=b"\0guest\0guest"
    )


def test_11_8_start_ok_of_4000_bytes_is_accepted(connect: Connect) -> None:
    connect(client_properties=[("long", "S", "x" * 3500)])


def test_11_36_heartbeats_are_accepted_while_shaking_hands(broker_url: str) -> None:
    heartbeat = frame(8, 0, b"")
    with raw_connect(broker_url) as wire:
        wire.send_bytes(heartbeat)
        wire.expect(0, commands.Connection.Start)
        wire.send_bytes(heartbeat)
        start_ok(wire)
        wire.send_bytes(heartbeat)
        wire.expect(0, commands.Connection.Tune)
        wire.send_bytes(heartbeat)
        handshake.tune_ok(wire)
        wire.send_bytes(heartbeat)
        wire.send_method(0, commands.Connection.Open, virtual_host="/")
        wire.expect(0, commands.Connection.OpenOk)


def test_11_20_users_may_log_in_with_their_own_password(connect: Connect, accounts: Accounts) -> None:
    connect(**accounts.login("reader")).channel()
