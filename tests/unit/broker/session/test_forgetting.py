"""What connections and channels keep by names that clients choose goes away again."""

from __future__ import annotations

import gc

from pamqp import commands

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.session.channel import Channel
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish


def routes_remembered(client: MemoryClient) -> int:
    """How many queues the routes of a connection name."""
    remembered = client.connection.routes._publishes
    return sum(len(each.memo.queues) for each in remembered)


class TestRoutes:
    def test_those_of_a_deleted_queue_go_with_the_next_publish(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        client.send(*(publish(1, f"q{number}") for number in range(100)), publish(1, "q"))
        assert len(client.connection.routes._publishes) == 101
        client.call(1, commands.Queue.Delete, queue="q")
        client.send(publish(1, "elsewhere"))
        assert len(client.connection.routes._publishes) == 1
        assert routes_remembered(client) == 0

    def test_very_many_are_not_remembered(self, broker: MemoryBroker, client: MemoryClient) -> None:
        """Each routing key has a route of its own, which may lead to all the queues of a fanout exchange."""
        for number in range(100):
            client.send(
                method(1, commands.Queue.Declare, queue=f"f{number}"),
                method(1, commands.Queue.Bind, queue=f"f{number}", exchange="amq.fanout"),
            )
        client.methods()
        for number in range(3000):
            client.send(publish(1, str(number), exchange="amq.fanout"))
            assert routes_remembered(client) <= 100_000
        assert routes_remembered(client) > 10_000
        assert broker.vhost.queues["f0"].store.ready_count == 3000

    def test_the_end_of_a_connection_forgets_them(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(publish(1, "q"))
        client.call(1, commands.Queue.Delete, queue="q")
        client.abort()
        assert routes_remembered(client) == 0


class TestGetters:
    def open_channel(self, client: MemoryClient) -> Channel:
        return next(iter(client.connection.channels))

    def test_an_empty_queue_leaves_nothing(self, client: MemoryClient) -> None:
        client.call(1, commands.Basic.Get, queue="q")
        assert self.open_channel(client)._get_holders == {}

    def test_a_settled_message_leaves_nothing(self, client: MemoryClient) -> None:
        for settled in (
            method(1, commands.Basic.Ack, delivery_tag=0, multiple=True),
            method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True),
            method(1, commands.Basic.Recover, requeue=True),
        ):
            client.send(publish(1, "q"), method(1, commands.Basic.Get, queue="q"))
            assert len(self.open_channel(client)._get_holders) == 1
            client.send(settled)
            assert self.open_channel(client)._get_holders == {}

    def test_one_that_holds_another_message_stays(self, client: MemoryClient) -> None:
        client.send(publish(1, "q") * 2, method(1, commands.Basic.Get, queue="q") * 2)
        client.send(method(1, commands.Basic.Ack, delivery_tag=1))
        (holder,) = self.open_channel(client)._get_holders.values()
        assert holder.unacked == 1


def test_users_without_connections_are_not_counted(broker: MemoryBroker, client: MemoryClient) -> None:
    assert broker.broker.user_connections == {"guest": 1}
    assert broker.broker.user_channels == {"guest": 1}
    client.abort()
    assert list(broker.broker.user_connections) == []
    assert list(broker.broker.user_channels) == []


def test_a_deleted_exchange_is_forgotten(broker: MemoryBroker, client: MemoryClient) -> None:
    # No other test has one of this name.
    name = "soon forgotten"
    client.call(1, commands.Exchange.Declare, exchange=name, exchange_type="fanout")
    client.send(publish(1, "k", exchange=name))
    client.call(1, commands.Exchange.Delete, exchange=name)
    client.send(publish(1, "q"))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Exchange) and each.name == name]
