from __future__ import annotations

import pytest
from pamqp import commands

from leveret.broker.config.kinds import ProductVersion
from leveret.broker.config.options import Compat
from leveret.broker.session.handshake import Capabilities
from leveret.broker.version import VERSION
from leveret.protocol.field_table import FieldTable, FieldValue, longstr
from tests.support import tables
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, start_ok, tune_ok
from tests.support.transport import PROTOCOL_HEADER

OPEN = method(0, commands.Connection.Open, virtual_host="/")


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.connect()


def expect_close(client: MemoryClient, code: int, text: str, ids: tuple[int, int]) -> None:
    close = client.only(commands.Connection.Close)
    assert (close.reply_code, close.reply_text, (close.class_id, close.method_id)) == (code, text, ids)


class TestHeader:
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


def test_without_a_server_limit_any_channel_max_is_accepted() -> None:
    client = MemoryBroker(channel_max=0).connect()
    client.send(PROTOCOL_HEADER + start_ok() + tune_ok(0))
    assert client.connection.channel_max == 65_535


class TestOpen:
    @pytest.fixture(autouse=True)
    def tuned(self, client: MemoryClient) -> None:
        client.send(PROTOCOL_HEADER + start_ok() + tune_ok())
        client.frames()

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


#: Capabilities, by the attributes that they set.
CAPABILITIES = {
    "authentication_failure_close": "authentication_failure_close",
    "connection.blocked": "blocked",
    "consumer_cancel_notify": "consumer_cancel_notify",
}


def capabilities(value: FieldValue) -> set[str]:
    properties: FieldTable = (("product", longstr("x")), ("capabilities", value))
    read = Capabilities(properties)
    return {name for name, attribute in CAPABILITIES.items() if getattr(read, attribute)}


@pytest.mark.parametrize("name", CAPABILITIES)
def test_only_a_true_bool_sets_a_capability(name: str) -> None:
    others = (("basic.nack", FieldValue("t", True)),)
    assert capabilities(FieldValue("F", (*others, (name, FieldValue("t", True))))) == {name}
    for value in (FieldValue("t", False), longstr("true"), FieldValue("I", 1), FieldValue("V", None)):
        assert capabilities(FieldValue("F", (*others, (name, value)))) == set()
