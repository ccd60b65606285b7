"""Long work for one event, or many events in one read: other clients are served in between."""

from __future__ import annotations

import itertools

import pytest
from pamqp import commands

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.scheduling import turn
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable
from tests.support.memory_broker import MemoryBroker, MemoryClient, kinds, method, publish
from tests.support.stepping_clock import SteppingClock


@pytest.fixture
def broker() -> MemoryBroker:
    """A broker whose clock advances by a millisecond with each reading."""
    made = MemoryBroker()
    made.broker.turn._clock = SteppingClock()
    return made


def step(broker: MemoryBroker) -> None:
    """Run one iteration of the event loop."""
    callbacks, broker.loop._soon = broker.loop._soon, []
    for callback in callbacks:
        callback()


def steps_until(broker: MemoryBroker, client: MemoryClient) -> int:
    """Count the iterations of the event loop until a client receives something."""
    for count in range(1, 2000):
        step(broker)
        if client.transport.written:
            return count
    raise AssertionError("nothing comes")


def bind_wild(client: MemoryClient, depth: int) -> None:
    """Bind the queue q to amq.topic with every pattern of this many words."""
    for pattern in itertools.product("*#a", repeat=depth):
        client.send(method(1, commands.Queue.Bind, queue="q", exchange="amq.topic", routing_key=".".join(pattern)))
    client.methods()


class TestARouteThatTakesLong:
    KEY = ".".join("a" * 20 + "b" * 40)

    def test_other_connections_are_served_in_between(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        other = broker.open()
        client.feed(
            publish(1, self.KEY, b"m", exchange="amq.topic")
            + method(1, commands.Queue.Declare, queue="q", passive=True)
        )
        assert not client.transport.reading
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert not client.transport.written
        broker.loop.run()
        assert client.only(commands.Queue.DeclareOk).message_count == 1
        assert client.transport.reading

    def test_confirms_and_order_are_unchanged(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        client.call(1, commands.Confirm.Select)
        keys = [self.KEY, "short", self.KEY + ".c", self.KEY]
        client.send(*(publish(1, key, str(place).encode(), exchange="amq.topic") for place, key in enumerate(keys)))
        assert client.methods()[-1].delivery_tag == 4
        entries, _ = broker.vhost.queues["q"].store.take(10, 1 << 30)
        assert [message.body for _, message, _ in entries] == [b"0", b"1", b"2", b"3"]

    def test_a_change_during_the_search_applies_to_the_next_publish(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        bind_wild(client, 6)
        other = broker.open()
        other.call(1, commands.Queue.Declare, queue="late")
        wild = publish(1, self.KEY, b"m", exchange="amq.topic")
        client.feed(wild)
        other.call(1, commands.Queue.Bind, queue="late", exchange="amq.topic", routing_key="#")
        client.send(wild)
        assert broker.vhost.queues["q"].store.ready_count == 2
        # Whether the first one finds it depends on how far the search has come.
        assert broker.vhost.queues["late"].store.ready_count in (1, 2)

    def test_closing_the_connection_cancels_the_search(self, broker: MemoryBroker, client: MemoryClient) -> None:
        bind_wild(client, 6)
        client.feed(publish(1, self.KEY, b"m", exchange="amq.topic"))
        client.abort()
        assert broker.loop.is_idle
        assert broker.vhost.queues["q"].store.ready_count == 0


class TestKeysThatHaveNoSay:
    @pytest.mark.parametrize("exchange", ["amq.headers", "amq.fanout"])
    def test_a_message_with_thousands_of_keys_is_searched_once(
        self, broker: MemoryBroker, client: MemoryClient, exchange: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.call(1, commands.Queue.Bind, queue="q", exchange=exchange)
        found = type(broker.vhost.topology.exchanges[exchange])
        looks: list[str] = []
        destinations = found.destinations

        def counted(self: Exchange, key: str, headers: FieldTable) -> object:
            looks.append(key)
            return destinations(self, key, headers)

        monkeypatch.setattr(found, "destinations", counted)
        copies = [("CC", "A", [("S", f"{number}") for number in range(6000)])]
        client.send(publish(1, "k", b"m", exchange=exchange, headers=copies))
        assert looks == ["k"]
        assert broker.vhost.queues["q"].store.ready_count == 1


class TestManyEventsAtOnce:
    def test_they_are_handled_in_slices(self, broker: MemoryBroker, client: MemoryClient) -> None:
        other = broker.open()
        names = [f"n{number}" for number in range(500)]
        client.feed(b"".join(method(1, commands.Queue.Declare, queue=name) for name in names))
        assert 0 < len(broker.vhost.queues) < 200
        assert not client.transport.reading
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        broker.loop.run()
        assert [came.queue for came in client.methods()] == names
        assert client.transport.reading


class TestAQueueThatShrinks:
    @pytest.mark.parametrize(
        ("asked", "answer"),
        [
            (method(1, commands.Queue.Declare, queue="q", passive=True), commands.Queue.DeclareOk),
            (method(1, commands.Queue.Purge, queue="q"), commands.Queue.PurgeOk),
            (method(1, commands.Queue.Delete, queue="q"), commands.Queue.DeleteOk),
            (method(1, commands.Basic.Get, queue="q", no_ack=True), commands.Basic.GetOk),
        ],
        ids=["declare", "purge", "delete", "get"],
    )
    def test_only_the_requesting_client_waits(
        self, broker: MemoryBroker, client: MemoryClient, asked: bytes, answer: type
    ) -> None:
        client.send(publish(1, "q", b"m") * 10_000)
        other = broker.open()
        broker.vhost.policies.set(Policy("p", "^q", {"max-length": 10}, 0, "queues"), operator=False)
        client.feed(asked)
        other.feed(method(1, commands.Queue.Declare, queue="other"))
        assert steps_until(broker, other) <= 3
        assert not client.transport.written
        broker.loop.run()
        (came,) = client.methods()
        assert kinds([came]) == [answer]
        assert came.message_count == (9 if answer is commands.Basic.GetOk else 10)


def test_the_turn_has_the_slices() -> None:
    assert not turn.Turn(lambda _: None).slice().is_over()


def test_the_exclusive_queues_of_a_client_that_leaves(broker: MemoryBroker, client: MemoryClient) -> None:
    owner, other = broker.open(), broker.open()
    for number in range(300):
        owner.send(method(1, commands.Queue.Declare, queue=f"own{number}", exclusive=True))
    owner.transport.lose()
    step(broker)
    assert len(broker.vhost.queues) > 200
    assert len(other.call(1, commands.Queue.Declare, queue="other")) == 1
    broker.loop.advance(0)
    assert sorted(broker.vhost.queues) == ["other", "q"]
    assert broker.vhost._owned == {}
