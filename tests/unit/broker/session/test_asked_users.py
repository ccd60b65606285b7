"""Users whom another server knows: their connections wait for its answers, and others go on."""

from __future__ import annotations

import pytest
from pamqp import commands

from leveret.broker.auth.backend_interface import Question
from leveret.broker.auth.backends.chain import AuthBackends
from tests.support.memory_broker import MemoryBroker, MemoryClient, kinds, method, publish, start_ok, tune_ok
from tests.support.queue_content import contents
from tests.support.stub_backend import StubBackend
from tests.support.transport import PROTOCOL_HEADER

START_OK = start_ok(response=b"\0stubby\0secret")
OPEN = method(0, commands.Connection.Open, virtual_host="/")


class Asking(MemoryBroker):
    """A broker that asks a stub before it looks among its own users."""

    def __init__(self) -> None:
        super().__init__()
        self.stub = StubBackend(self.loop.loop)
        self.server.backends = AuthBackends(self.accounts, ("stub", "internal"), {"stub": self.stub})


@pytest.fixture
def broker() -> Asking:
    return Asking()


@pytest.fixture
def stub(broker: Asking) -> StubBackend:
    broker.stub.allowed |= {
        Question("vhost", "/"),
        Question("queue", "/", "configure", "q"),
        Question("exchange", "/", "write", "amq.default"),
    }
    return broker.stub


@pytest.fixture
def client(broker: Asking, stub: StubBackend) -> MemoryClient:
    """A connection of the stub's user with channel 1 and the queue q."""
    opened = broker.connect()
    opened.send(PROTOCOL_HEADER, START_OK, tune_ok(), OPEN, method(1, commands.Channel.Open))
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.frames()
    stub.asked.clear()
    return opened


def test_a_login_waits_for_its_answer_and_other_connections_do_not(broker: Asking, stub: StubBackend) -> None:
    first, second = broker.connect(), broker.connect()
    stub.is_held = True
    first.send(PROTOCOL_HEADER, START_OK, tune_ok(), OPEN)
    assert kinds(first.methods()) == [commands.Connection.Start]
    second.send(PROTOCOL_HEADER)
    assert kinds(second.methods()) == [commands.Connection.Start]
    for _ in range(2):
        stub.go_on()
        broker.loop.run()
    assert kinds(first.methods()) == [commands.Connection.Tune, commands.Connection.OpenOk]
    assert [type(each).__name__ for each in stub.asked] == ["Login", "Question"]


def test_a_refused_login_is_told_as_any(broker: Asking, stub: StubBackend) -> None:
    client = broker.connect()
    client.send(PROTOCOL_HEADER, start_ok(response=b"\0stubby\0wrong"))
    assert kinds(client.methods()) == [commands.Connection.Start, commands.Connection.Close]


def test_a_virtual_host_is_refused(broker: Asking, stub: StubBackend) -> None:
    stub.allowed.clear()
    client = broker.connect()
    client.send(PROTOCOL_HEADER, START_OK, tune_ok(), OPEN)
    close = client.methods()[-1]
    assert (close.reply_code, close.reply_text) == (
        530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'stubby'",
    )


def test_methods_wait_in_order(broker: Asking, client: MemoryClient, stub: StubBackend) -> None:
    # The stub is asked about its user, too.
    other = broker.open()
    stub.is_held = True
    client.send(publish(1, "q", b"first"), publish(1, "q", b"second"), method(1, commands.Basic.Qos))
    assert client.methods() == []
    assert kinds(other.call(1, commands.Queue.Declare, queue="of-another")) == [commands.Queue.DeclareOk]
    assert not broker.vhost.queues["q"].ready_count()
    stub.go_on()
    broker.loop.run()
    assert kinds(client.methods()) == [commands.Basic.QosOk]
    assert contents(broker.vhost.queues["q"]) == ["first", "second"]
    # Known by now, and in the route that is kept.
    client.send(publish(1, "q", b"third"))
    assert stub.asked[1:] == [Question("exchange", "/", "write", "amq.default")]


def test_a_queue_without_name_is_asked_about_by_one_name(
    broker: Asking, client: MemoryClient, stub: StubBackend
) -> None:
    stub.is_held = True
    client.send(method(1, commands.Queue.Declare))
    [asked] = stub.asked
    assert isinstance(asked, Question)
    stub.allowed.add(asked)
    stub.go_on()
    broker.loop.run()
    assert client.only(commands.Queue.DeclareOk).queue == asked.name
    stub.is_held = False
    client.send(method(1, commands.Queue.Declare))
    assert len({each.name for each in stub.asked if isinstance(each, Question)}) == 2


def test_a_refusal_closes_the_channel(client: MemoryClient) -> None:
    [close] = client.call(1, commands.Queue.Declare, queue="other")
    assert (close.reply_code, close.reply_text) == (
        403,
        "ACCESS_REFUSED - access to queue 'other' in vhost '/' refused for user 'stubby'",
    )


def test_a_backend_that_is_away_is_named(client: MemoryClient, stub: StubBackend) -> None:
    stub.is_away = True
    [close] = client.call(1, commands.Queue.Declare, queue="other")
    assert close.reply_text == (
        "ACCESS_REFUSED - access to queue 'other' in vhost '/' refused for user 'stubby',"
        " backend rabbit_auth_backend_stub returned an error: timeout"
    )


def test_what_may_be_published_is_asked_again_after_a_while(
    broker: Asking, client: MemoryClient, stub: StubBackend
) -> None:
    client.send(publish(1, "q"))
    stub.allowed.clear()
    client.send(publish(1, "q"))
    assert client.methods() == []
    broker.loop.advance(16.0)
    client.send(publish(1, "q"))
    assert client.only(commands.Channel.Close).reply_code == 403


def test_a_client_that_goes_is_not_waited_for(broker: Asking, client: MemoryClient, stub: StubBackend) -> None:
    stub.is_held = True
    client.send(publish(1, "q", b"late"))
    client.abort()
    stub.go_on()
    broker.loop.run()
    assert not broker.vhost.queues["q"].ready_count()


def test_the_connection_ends_with_its_login(broker: Asking, stub: StubBackend) -> None:
    stub.expires_at = broker.broker.timers.now() / 1_000_000 + 60
    client = broker.connect()
    client.send(PROTOCOL_HEADER, START_OK, tune_ok(), OPEN)
    client.frames()
    broker.loop.advance(59.0)
    assert client.methods() == []
    broker.loop.advance(2.0)
    assert client.only(commands.Connection.Close).reply_code == 320


def test_a_secret_is_accepted_where_nothing_depends_on_it(client: MemoryClient, broker: Asking) -> None:
    for each in (client, broker.open()):
        renewed = each.call(0, commands.Connection.UpdateSecret, new_secret="other", reason="because")
        assert kinds(renewed) == [commands.Connection.UpdateSecretOk]
