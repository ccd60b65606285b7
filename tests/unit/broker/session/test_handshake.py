from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from leveret.broker.config.kinds import ProductVersion
from leveret.broker.config.options import Compat
from leveret.broker.printable import escape_line
from leveret.broker.version import VERSION
from leveret.protocol.states import ConnectionState
from tests.support import tables
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, start_ok, tune_ok
from tests.support.transport import HEADER, HEARTBEAT, PROTOCOL_HEADER, frame

OPEN = method(0, commands.Connection.Open, virtual_host="/")
#: How long a failed handshake stays silent, in seconds.
SILENCE = 3.0


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.connect()


def expect_silence(broker: MemoryBroker, client: MemoryClient) -> None:
    """Check that further input is not answered, and that the socket is closed after 3 s."""
    assert client.connection.state is ConnectionState.SILENT
    client.send(OPEN, b"rubbish" * 100)
    broker.loop.advance(SILENCE - 0.01)
    assert not client.transport.closed
    assert client.frames() == []
    broker.loop.advance(0.02)
    assert client.transport.closed
    assert client.transport.take() == b""


def expect_close(client: MemoryClient, code: int, text: str, ids: tuple[int, int]) -> None:
    close = client.only(commands.Connection.Close)
    assert (close.reply_code, close.reply_text, (close.class_id, close.method_id)) == (code, text, ids)


class TestHeader:
    @pytest.mark.parametrize(
        ("header", "version"),
        [
            (PROTOCOL_HEADER, (0, 9)),
            (b"AMQP\x01\x01\x00\x09", (0, 9)),
            (b"AMQP\x01\x01\x08\x00", (8, 0)),
            (b"AMQP\x01\x01\x09\x01", (8, 0)),
        ],
    )
    def test_accepted_protocol_headers(self, client: MemoryClient, header: bytes, version: tuple[int, int]) -> None:
        client.send(header)
        start = client.only(commands.Connection.Start)
        assert (start.version_major, start.version_minor) == version
        assert set(start.mechanisms.split()) == {b"PLAIN", b"AMQPLAIN"}
        assert start.locales == b"en_US"
        assert [key for key, _, _ in start.server_properties] == sorted(key for key, _, _ in start.server_properties)

    @pytest.mark.parametrize(
        "header", [b"AMQP\x00\x00\x09\x00", b"HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00\x01", bytes(8)]
    )
    @pytest.mark.parametrize("more", [b"", PROTOCOL_HEADER, b"x" * 1000])
    def test_other_headers_are_answered_with_the_supported_one(
        self, broker: MemoryBroker, client: MemoryClient, header: bytes, more: bytes
    ) -> None:
        client.send(header + more)
        assert client.transport.take() == PROTOCOL_HEADER
        assert client.transport.closed
        assert len(broker.connections) == 0

    def test_the_header_may_arrive_byte_by_byte(self, client: MemoryClient) -> None:
        for octet in PROTOCOL_HEADER[:-1]:
            client.send(bytes((octet,)))
            assert client.frames() == []
        client.send(PROTOCOL_HEADER[-1:] + start_ok())
        assert [came.kind for came in client.methods()] == [commands.Connection.Start, commands.Connection.Tune]

    def test_seven_wrong_bytes_wait_for_the_eighth(self, client: MemoryClient) -> None:
        client.send(b"HTTP/1.")
        assert client.transport.take() == b""
        assert not client.transport.closed

    @pytest.mark.parametrize(
        ("compat", "product", "version"),
        [
            (Compat(), "RabbitMQ", "3.10.8"),
            (Compat(advertise=None), "Leveret", VERSION),
            (Compat(advertise=ProductVersion("Other", "4.0")), "Other", "4.0"),
        ],
        ids=["default", "none", "other"],
    )
    def test_the_product(self, compat: Compat, product: str, version: str) -> None:
        client = MemoryBroker(compat=compat).connect()
        client.send(PROTOCOL_HEADER)
        named = tables.plain(client.only(commands.Connection.Start).server_properties)
        assert (named["product"], named["version"]) == (product, version)
        assert named["platform"].startswith(f"Leveret {VERSION} on ")
        assert named["information"].startswith(f"Leveret {VERSION}.")


class TestStartOk:
    @pytest.fixture(autouse=True)
    def greeted(self, client: MemoryClient) -> None:
        client.send(PROTOCOL_HEADER)
        client.frames()

    @pytest.mark.parametrize(
        ("mechanism", "response"),
        [
            ("PLAIN", b"\0guest\0guest"),
            ("AMQPLAIN", tables.table_body([("LOGIN", "S", "guest"), ("PASSWORD", "S", "guest")])),
        ],
    )
    def test_a_successful_login_is_answered_with_tune(
        self, client: MemoryClient, mechanism: str, response: bytes
    ) -> None:
        client.send(start_ok(mechanism=mechanism, response=response))
        tune = client.only(commands.Connection.Tune)
        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131_072, 60)

    @pytest.mark.parametrize("response", [b"\0guest\0wrong", b"\0nobody\0guest", b"\0guest\0", b"\0\xff\0\xff"])
    def test_a_refused_login_is_answered_with_close_if_the_client_supports_it(
        self, broker: MemoryBroker, client: MemoryClient, response: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        client.send(start_ok(response=response))
        user = escape_line(response.split(b"\0")[1].decode(errors="surrogateescape"))
        assert f"PLAIN login refused: user '{user}' - invalid credentials" in caplog.text
        text = (
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
            " For details see the broker logfile."
        )
        expect_close(client, 403, text, (0, 0))
        broker.loop.advance(SILENCE - 0.01)
        assert not client.transport.closed
        broker.loop.advance(0.02)
        assert client.transport.closed

    def test_its_close_ok_ends_the_wait(self, client: MemoryClient) -> None:
        client.send(start_ok(response=b"\0guest\0wrong"))
        client.send(method(0, commands.Connection.CloseOk))
        assert client.transport.closed

    def test_other_clients_get_no_answer(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(start_ok(response=b"\0guest\0wrong", capabilities=()))
        expect_silence(broker, client)

    @pytest.mark.parametrize(
        ("mechanism", "response"),
        [
            ("PLAIN", b""),
            ("PLAIN", b"guest\0guest"),
            ("PLAIN", b"admin\0guest\0guest"),
            ("PLAIN", b"\0guest\0guest\0"),
            ("AMQPLAIN", b"\0guest\0guest"),
            ("AMQPLAIN", tables.table([("LOGIN", "S", "guest"), ("PASSWORD", "S", "guest")])),
            ("AMQPLAIN", tables.table_body([("login", "S", "guest"), ("password", "S", "guest")])),
            ("FOO", b""),
            ("plain", b"\0guest\0guest"),
            ("EXTERNAL", b""),
            ("", b""),
        ],
    )
    def test_malformed_logins(
        self, broker: MemoryBroker, client: MemoryClient, mechanism: str, response: bytes
    ) -> None:
        client.send(start_ok(mechanism=mechanism, response=response))
        expect_silence(broker, client)

    @pytest.mark.parametrize(
        "octets",
        [
            OPEN,
            tune_ok(),
            method(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
            method(1, commands.Channel.Open),
            frame(HEADER, 1, bytes(14)),
            PROTOCOL_HEADER,
            frame(1, 0, b"\x00\x0a\x00"),
            frame(9, 0, b""),
            start_ok()[:-1] + b"\x00",
            frame(1, 0, b"\x00\x0a\x00\x0b" + bytes(5000)),
        ],
    )
    def test_unexpected_input_is_not_answered_or_drops_the_connection(
        self, broker: MemoryBroker, client: MemoryClient, octets: bytes
    ) -> None:
        client.send(octets)
        assert client.frames() == []
        broker.loop.advance(SILENCE + 0.01)
        assert client.transport.closed
        assert len(broker.connections) == 0

    @pytest.mark.parametrize("before", [b"", start_ok()])
    def test_an_unknown_method_drops_the_connection_at_once(self, client: MemoryClient, before: bytes) -> None:
        client.send(before + frame(1, 0, b"\x00\x63\x00\x63"))
        assert client.transport.closed

    def test_a_user_restricted_to_loopback(self, broker: MemoryBroker) -> None:
        far = broker.connect(peername=("10.0.0.9", 4711))
        far.send(PROTOCOL_HEADER)
        far.frames()
        far.send(start_ok())
        assert far.only(commands.Connection.Close).reply_code == 403

    def test_heartbeats_are_accepted(self, client: MemoryClient) -> None:
        client.send(frame(HEARTBEAT, 0, b"") * 3 + start_ok())
        client.only(commands.Connection.Tune)

    def test_capabilities_are_stored(self, client: MemoryClient) -> None:
        client.send(start_ok(capabilities=("connection.blocked",)))
        handshake = client.connection._handshake
        assert handshake is not None
        assert handshake.capabilities.blocked
        assert not handshake.capabilities.consumer_cancel_notify


class TestTuneOk:
    @pytest.fixture(autouse=True)
    def logged_in(self, client: MemoryClient) -> None:
        client.send(PROTOCOL_HEADER + start_ok())
        client.frames()

    @pytest.mark.parametrize("frame_max", [4096, 8192, 131_072])
    @pytest.mark.parametrize("channel_max", [1, 2047])
    @pytest.mark.parametrize("heartbeat", [0, 1, 60, 65_535])
    def test_valid_limits_are_accepted(
        self, client: MemoryClient, frame_max: int, channel_max: int, heartbeat: int
    ) -> None:
        client.send(tune_ok(channel_max, frame_max, heartbeat))
        connection = client.connection
        assert connection.state is ConnectionState.AWAIT_OPEN
        assert (connection.frame_max, connection.reader.frame_max, connection.channel_max) == (
            frame_max,
            frame_max,
            channel_max,
        )
        assert client.frames() == []

    @pytest.mark.parametrize(
        ("channel_max", "frame_max"),
        [(2047, 0), (2047, 4095), (2047, 131_073), (0, 131_072), (2048, 131_072), (65_535, 131_072)],
    )
    def test_invalid_limits_are_not_answered(
        self, broker: MemoryBroker, client: MemoryClient, channel_max: int, frame_max: int
    ) -> None:
        client.send(tune_ok(channel_max, frame_max))
        expect_silence(broker, client)

    def test_unexpected_input_is_not_answered(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(start_ok())
        expect_silence(broker, client)

    def test_open_may_follow_tune_ok_immediately(self, client: MemoryClient) -> None:
        client.send(tune_ok() + OPEN + method(1, commands.Channel.Open))
        assert [came.kind for came in client.methods()] == [commands.Connection.OpenOk, commands.Channel.OpenOk]


def test_without_a_server_limit_any_channel_max_is_accepted() -> None:
    client = MemoryBroker(channel_max=0).connect()
    client.send(PROTOCOL_HEADER + start_ok() + tune_ok(0))
    assert client.connection.channel_max == 65_535


class TestOpen:
    @pytest.fixture(autouse=True)
    def tuned(self, client: MemoryClient) -> None:
        client.send(PROTOCOL_HEADER + start_ok() + tune_ok())
        client.frames()

    def test_the_vhost_is_open(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(OPEN)
        assert client.only(commands.Connection.OpenOk).known_hosts == ""
        connection = client.connection
        assert (connection.state, connection.username, connection.vhost_name) == (ConnectionState.RUNNING, "guest", "/")
        assert set(broker.broker.connections) == {connection}
        assert broker.broker.connections.by_vhost["/"] == 1

    @pytest.mark.parametrize("name", ["", "//", "nope", "ä"])
    def test_an_unknown_vhost(self, client: MemoryClient, name: str) -> None:
        client.send(method(0, commands.Connection.Open, virtual_host=name))
        expect_close(client, 530, f"NOT_ALLOWED - vhost {name} not found", (10, 40))

    def test_a_vhost_without_permission(self, broker: MemoryBroker, client: MemoryClient) -> None:
        broker.broker.add_vhost("theirs")
        client.send(method(0, commands.Connection.Open, virtual_host="theirs"))
        expect_close(client, 530, "NOT_ALLOWED - access to vhost 'theirs' refused for user 'guest'", (10, 40))
        assert set(broker.broker.connections) == set()

    @pytest.mark.parametrize(
        ("octets", "code", "text", "ids"),
        [
            (
                method(0, commands.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
                504,
                "CHANNEL_ERROR - unexpected method in connection state opening",
                (10, 50),
            ),
            (tune_ok(), 504, "CHANNEL_ERROR - unexpected method in connection state opening", (10, 31)),
            (
                method(0, commands.Basic.Publish),
                504,
                "CHANNEL_ERROR - unexpected method in connection state opening",
                (60, 40),
            ),
            (
                method(1, commands.Channel.Open),
                505,
                "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>",
                (0, 0),
            ),
            (frame(9, 0, b""), 501, "FRAME_ERROR - type 9, all octets = <<>>: unknown_frame", (0, 0)),
            # Nobody looks into the frames of channels.
            (frame(1, 1, b"abc"), 505, 'UNEXPECTED_FRAME - type 1, all octets = <<"abc">>', (0, 0)),
            (frame(9, 1, b""), 505, "UNEXPECTED_FRAME - type 9, all octets = <<>>", (0, 0)),
            (frame(8, 1, b""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", (0, 0)),
            (
                method(3, commands.Basic.Publish, routing_key="k" * 9),
                505,
                "UNEXPECTED_FRAME - type 1, first 16 octets = <<0,60,0,40,0,0,0,9,107,107,107,107,107,107,107,107>>",
                (0, 0),
            ),
            (
                method(1, commands.Basic.Ack, delivery_tag=1) * 2,
                505,
                "UNEXPECTED_FRAME - type 1, all octets = <<0,60,0,80,0,0,0,0,0,0,0,1,0>>",
                (0, 0),
            ),
        ],
    )
    def test_unexpected_methods_close_the_connection(
        self, client: MemoryClient, octets: bytes, code: int, text: str, ids: tuple[int, int]
    ) -> None:
        client.send(octets)
        expect_close(client, code, text, ids)
        client.send(method(0, commands.Connection.CloseOk))
        assert client.transport.closed

    @pytest.mark.parametrize("arguments", [b"", b"\1/\0\0x"])
    def test_undecodable_input_is_not_answered(
        self, broker: MemoryBroker, client: MemoryClient, arguments: bytes
    ) -> None:
        client.send(frame(1, 0, b"\x00\x0a\x00\x28" + arguments))
        expect_silence(broker, client)

    def test_an_unknown_method_drops_the_connection(self, client: MemoryClient) -> None:
        client.send(frame(1, 0, b"\x00\x63\x00\x63"))
        assert client.frames() == []
        assert client.transport.closed

    @pytest.mark.parametrize(
        ("limit", "text"),
        [
            (
                "vhost",
                "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached",
            ),
            (
                "user",
                "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached",
            ),
        ],
    )
    def test_limits_of_connections(self, broker: MemoryBroker, client: MemoryClient, limit: str, text: str) -> None:
        if limit == "vhost":
            broker.vhost.max_connections = 1
        else:
            broker.accounts.set_user_limits("guest", 1, None)
        first = broker.open()
        client.send(OPEN)
        expect_close(client, 530, text, (10, 40))
        first.abort()
        broker.open()

    @pytest.mark.parametrize("unlimited", [None, -1])
    def test_no_limit_and_a_negative_one_are_the_same(
        self, broker: MemoryBroker, client: MemoryClient, unlimited: int | None
    ) -> None:
        broker.vhost.max_connections = unlimited
        broker.accounts.set_user_limits("guest", unlimited, unlimited)
        client.send(OPEN, method(1, commands.Channel.Open))
        assert [came.kind for came in client.methods()] == [commands.Connection.OpenOk, commands.Channel.OpenOk]

    def test_a_limit_of_none_at_all(self) -> None:
        broker = MemoryBroker(connection_max=0)
        client = broker.connect()
        client.send(PROTOCOL_HEADER + start_ok() + tune_ok())
        client.frames()
        client.send(OPEN)
        expect_close(client, 530, "NOT_ALLOWED - connection refused: node connection limit (0) is reached", (10, 40))


STAGES: list[tuple[str, list[bytes]]] = [
    ("nothing", []),
    ("half a header", [PROTOCOL_HEADER[:5]]),
    ("a header", [PROTOCOL_HEADER]),
    ("half a start-ok", [PROTOCOL_HEADER, start_ok()[:20]]),
    ("a login", [PROTOCOL_HEADER, start_ok()]),
    ("a tune-ok", [PROTOCOL_HEADER, start_ok(), tune_ok()]),
]


@pytest.mark.parametrize(("sent", "octets"), STAGES, ids=[name for name, _ in STAGES])
def test_the_handshake_has_to_be_done_in_time(sent: str, octets: list[bytes]) -> None:
    broker = MemoryBroker(handshake_timeout=2000)
    client = broker.connect()
    client.send(*octets)
    client.frames()
    broker.loop.advance(1.9)
    assert not client.transport.closed
    broker.loop.advance(0.2)
    assert client.transport.closed
    assert client.transport.take() == b""
    assert len(broker.connections) == 0


def test_an_open_connection_has_all_the_time(broker: MemoryBroker) -> None:
    client = broker.open()
    broker.loop.advance(3600)
    assert not client.transport.closed


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100])
def test_the_result_does_not_depend_on_how_input_is_split(broker: MemoryBroker, size: int) -> None:
    octets = PROTOCOL_HEADER + start_ok() + tune_ok() + OPEN + method(1, commands.Channel.Open)
    client = broker.connect()
    for at in range(0, len(octets), size):
        client.send(octets[at : at + size])
    kinds: list[Any] = [came.kind for came in client.methods()]
    assert kinds == [
        commands.Connection.Start,
        commands.Connection.Tune,
        commands.Connection.OpenOk,
        commands.Channel.OpenOk,
    ]
