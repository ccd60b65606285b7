from __future__ import annotations

from typing import cast

import pytest

from broker.core.broker import Broker, ClientConnection
from broker.core.stats.counters import ConnectionCounters
from broker.core.turn import Turn
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers


class FakeOutput:
    """What has gone over a connection: nothing."""

    def __init__(self) -> None:
        self.counters = ConnectionCounters()


class FakeConnection:
    """A connection that only says whose it is, and what has gone over it."""

    def __init__(self, username: str, vhost_name: str) -> None:
        self.username = username
        self.vhost_name = vhost_name
        self.output = FakeOutput()


def connect(username: str, vhost_name: str) -> ClientConnection:
    return cast("ClientConnection", FakeConnection(username, vhost_name))


@pytest.fixture
def broker() -> Broker:
    loop = ManualLoop()
    return Broker(Turn(loop.call_soon), ManualTimers(loop))


def test_a_vhost_is_made_once(broker: Broker) -> None:
    vhost = broker.add_vhost("v")
    assert broker.add_vhost("v") is vhost
    assert broker.add_vhost("w") is not vhost
    assert list(broker.vhosts) == ["v", "w"]
    assert vhost.name == "v"


def test_vhosts_share_nothing(broker: Broker) -> None:
    first, second = broker.add_vhost("v"), broker.add_vhost("w")
    first.topology.declare_exchange("x", "fanout", True, False, False, ())
    assert "x" not in second.topology.exchanges
    assert first.queues is not second.queues


def test_open_connections_are_counted_by_user_and_vhost(broker: Broker) -> None:
    broker.add_vhost("v")
    broker.add_vhost("w")
    connections = [connect("ann", "v"), connect("ann", "w"), connect("bob", "v")]
    for connection in connections:
        broker.register(connection)
    assert broker.connections == {*connections}
    assert dict(broker.user_connections) == {"ann": 2, "bob": 1}
    assert [vhost.connection_count for vhost in broker.vhosts.values()] == [2, 1]
    broker.unregister(connections[0])
    assert broker.user_connections["ann"] == 1
    assert [vhost.connection_count for vhost in broker.vhosts.values()] == [1, 1]
    assert broker.connections == {*connections[1:]}


def test_a_connection_is_uncounted_once(broker: Broker) -> None:
    vhost = broker.add_vhost("v")
    stranger, connection = connect("ann", "v"), connect("ann", "v")
    broker.register(connection)
    broker.unregister(stranger)
    broker.unregister(connection)
    broker.unregister(connection)
    assert (vhost.connection_count, broker.user_connections["ann"]) == (0, 0)


def test_a_connection_may_outlive_its_vhost(broker: Broker) -> None:
    broker.add_vhost("v")
    connection = connect("ann", "v")
    broker.register(connection)
    del broker.vhosts["v"]
    broker.unregister(connection)
    assert not broker.connections
