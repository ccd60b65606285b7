"""State that connections and channels keep by client-chosen names is bounded and released."""

from __future__ import annotations

import gc

from pamqp import commands

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.session.channel import Channel
from leveret.broker.session.shared_state import cached_route
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish


def cached_queue_count(client: MemoryClient) -> int:
    """Return the number of queues in the cached routes of a connection."""
    routes = map(cached_route, client.connection.host.routes._publishes)
    return sum(len(route.queues) for route in routes if route is not None)


class TestRoutes:
    def test_routes_of_a_deleted_queue_are_removed_at_the_next_publish(
        self, broker: MemoryBroker, client: MemoryClient
    ) -> None:
        client.send(*(publish(1, f"q{number}") for number in range(100)), publish(1, "q"))
        assert len(client.connection.host.routes._publishes) == 101
        client.call(1, commands.Queue.Delete, queue="q")
        client.send(publish(1, "elsewhere"))
        assert len(client.connection.host.routes._publishes) == 1
        assert cached_queue_count(client) == 0

    def test_the_cache_is_bounded(self, broker: MemoryBroker, client: MemoryClient) -> None:
        """Each routing key has its own route, which may have all queues of a fanout exchange."""
        for number in range(100):
            client.send(
                method(1, commands.Queue.Declare, queue=f"f{number}"),
                method(1, commands.Queue.Bind, queue=f"f{number}", exchange="amq.fanout"),
            )
        client.methods()
        for number in range(3000):
            client.send(publish(1, str(number), exchange="amq.fanout"))
            assert cached_queue_count(client) <= 100_000
        assert cached_queue_count(client) > 10_000
        assert broker.vhost.queues["f0"].store.ready_count == 3000

    def test_closing_a_connection_clears_the_cache(self, broker: MemoryBroker, client: MemoryClient) -> None:
        client.send(publish(1, "q"))
        client.call(1, commands.Queue.Delete, queue="q")
        client.abort()
        assert cached_queue_count(client) == 0


class TestGetters:
    def open_channel(self, client: MemoryClient) -> Channel:
        return next(iter(client.connection.channels))

    def test_get_on_an_empty_queue_leaves_no_holder(self, client: MemoryClient) -> None:
        client.call(1, commands.Basic.Get, queue="q")
        assert self.open_channel(client).unacked._get_holders == {}

    def test_settling_the_last_message_removes_its_holder(self, client: MemoryClient) -> None:
        for settled in (
            method(1, commands.Basic.Ack, delivery_tag=0, multiple=True),
            method(1, commands.Basic.Nack, delivery_tag=0, multiple=True, requeue=True),
            method(1, commands.Basic.Recover, requeue=True),
        ):
            client.send(publish(1, "q"), method(1, commands.Basic.Get, queue="q"))
            assert len(self.open_channel(client).unacked._get_holders) == 1
            client.send(settled)
            assert self.open_channel(client).unacked._get_holders == {}

    def test_a_holder_with_another_message_stays(self, client: MemoryClient) -> None:
        client.send(publish(1, "q") * 2, method(1, commands.Basic.Get, queue="q") * 2)
        client.send(method(1, commands.Basic.Ack, delivery_tag=1))
        (holder,) = self.open_channel(client).unacked._get_holders.values()
        assert holder.unacked == 1


def test_users_without_connections_are_not_counted(broker: MemoryBroker, client: MemoryClient) -> None:
    assert broker.broker.connections.by_user == {"guest": 1}
    assert broker.broker.connections.channels_by_user == {"guest": 1}
    client.abort()
    assert list(broker.broker.connections.by_user) == []
    assert list(broker.broker.connections.channels_by_user) == []


def test_a_deleted_exchange_is_freed(broker: MemoryBroker, client: MemoryClient) -> None:
    # No other test has one of this name.
    name = "soon forgotten"
    client.call(1, commands.Exchange.Declare, exchange=name, exchange_type="fanout")
    client.send(publish(1, "k", exchange=name))
    client.call(1, commands.Exchange.Delete, exchange=name)
    client.send(publish(1, "q"))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Exchange) and each.name == name]
