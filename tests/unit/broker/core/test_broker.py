from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leveret.broker.core.broker import CLUSTER_ID, CLUSTER_NAME, Broker, ClientConnection, GlobalParameters
from leveret.broker.core.clients import ClientChannel
from leveret.broker.core.counters.counters import ConnectionCounters
from leveret.broker.core.events import Events
from leveret.broker.core.node import Node
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldValue
from leveret.storage.clock import Clock
from leveret.storage.definitions_database import Key
from tests.support.delayed import declare_delayed, publish_delayed
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers, declare, new_broker


class FakeOutput:
    """What has gone over a connection: nothing."""

    def __init__(self) -> None:
        self.counters = ConnectionCounters()


class FakeConnection:
    """A connection that only says whose it is, and what has gone over it."""

    def __init__(self, username: str, vhost_name: str) -> None:
        self.username = username
        self.vhost_name = vhost_name
        self.peer = ("127.0.0.1", 1)
        self.output = FakeOutput()


def connect(username: str, vhost_name: str) -> ClientConnection:
    return cast("ClientConnection", FakeConnection(username, vhost_name))


@pytest.fixture
def broker() -> Broker:
    loop = ManualLoop()
    return new_broker(loop)


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
        broker.connections.add(connection)
    assert set(broker.connections) == {*connections}
    assert dict(broker.connections.by_user) == {"ann": 2, "bob": 1}
    assert [broker.connections.by_vhost[name] for name in broker.vhosts] == [2, 1]
    broker.forget_connection(connections[0])
    assert broker.connections.by_user["ann"] == 1
    assert [broker.connections.by_vhost[name] for name in broker.vhosts] == [1, 1]
    assert set(broker.connections) == {*connections[1:]}


def test_a_connection_is_uncounted_once(broker: Broker) -> None:
    vhost = broker.add_vhost("v")
    stranger, connection = connect("ann", "v"), connect("ann", "v")
    broker.connections.add(connection)
    broker.forget_connection(stranger)
    broker.forget_connection(connection)
    broker.forget_connection(connection)
    assert (broker.connections.by_vhost[vhost.name], broker.connections.by_user["ann"]) == (0, 0)


def test_a_connection_may_outlive_its_vhost(broker: Broker) -> None:
    broker.add_vhost("v")
    connection = connect("ann", "v")
    broker.connections.add(connection)
    broker.delete_vhost("v")
    broker.add_vhost("v")
    broker.connections.add(connect("ann", "v"))
    broker.forget_connection(connection)
    assert (len(broker.connections), broker.connections.by_vhost["v"]) == (1, 1)


def test_channels_are_counted_by_user(broker: Broker) -> None:
    connections = broker.connections
    channels = [SimpleNamespace(client=connect(user, "v"), number=1) for user in ("ann", "ann", "bob")]
    for channel in channels:
        connections.channel_opened(cast("ClientChannel", channel))
    connections.channel_closed(cast("ClientChannel", channels[-1]))
    assert (connections.channel_count, connections.channels_by_user) == (2, {"ann": 2})


class Rows:
    """A journal in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, Key], Mapping[str, Any]] = {}

    def put(self, kind: str, key: Key, value: Mapping[str, Any]) -> None:
        self.kept[kind, key] = value

    def delete(self, kind: str, key: Key) -> None:
        self.kept.pop((kind, key), None)


def fill(vhost: VirtualHost) -> None:
    """Give a virtual host something of every kind that is kept."""
    exchanges = vhost.topology.exchanges
    vhost.declare_exchange("x", "topic", True, False, False, ())
    queue = declare(vhost, "q")
    vhost.topology.bind(exchanges["amq.direct"], exchanges["amq.fanout"], "k", (("a", FieldValue("l", 1)),))
    vhost.topology.bind(exchanges["amq.topic"], queue, "k", ())
    vhost.topology.bind(exchanges["x"], exchanges["amq.fanout"], "k", ())
    vhost.policies.set(Policy("p", "^q", {"max-length": 3}), operator=False)
    vhost.policies.set(Policy("o", "^q", {"max-length": 4}), operator=True)


def test_nothing_outlives_a_deleted_vhost(broker: Broker) -> None:
    rows = Rows()
    broker.record_to(rows)
    vhost = broker.add_vhost("v")
    fill(vhost)
    kinds = ["binding", "exchange", "operator_policy", "policy", "queue", "vhost"]
    assert sorted({kind for kind, _ in rows.kept}) == kinds
    broker.delete_vhost("v")
    assert rows.kept == {}
    assert not vhost.topology.exchanges["amq.direct"].bindings


def test_what_is_done_to_a_deleted_vhost_is_kept_nowhere(broker: Broker) -> None:
    """Requests that have begun before may still hold it."""
    rows = Rows()
    broker.record_to(rows)
    vhost = broker.add_vhost("v")
    broker.delete_vhost("v")
    fill(vhost)
    broker.save_vhost(vhost)
    broker.set_metadata(vhost, VirtualHostMetadata("again"))
    assert rows.kept == {}


def test_delayed_messages_of_a_deleted_vhost_are_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    publish_delayed(declare_delayed(broker.add_vhost("v")), 1000, b"1", b"2")
    broker.add_vhost("w")
    broker.delete_vhost("w")
    broker.delete_vhost("v")
    assert caplog.messages == ["vhost 'v' was deleted, and with its exchanges 2 delayed messages"]


def test_what_is_set_is_kept_and_what_is_cleared_is_not() -> None:
    parameters, journal = GlobalParameters(Events(Clock())), Rows()
    parameters.journal = journal
    assert parameters.set("a", {"x": [1, None]})
    assert not parameters.set("a", None)
    assert parameters.set("b", 1)
    assert parameters.clear("b")
    assert not parameters.clear("b")
    assert dict(parameters.values) == {"a": None}
    assert journal.kept == {("global_parameter", ("a",)): {"value": None}}


def test_a_broker_has_one_identity_for_good() -> None:
    parameters, other = (GlobalParameters(Events(Clock())) for _ in range(2))
    parameters.ensure_cluster_id()
    first = parameters.values[CLUSTER_ID]
    parameters.ensure_cluster_id()
    other.ensure_cluster_id()
    assert parameters.values[CLUSTER_ID] == first != other.values[CLUSTER_ID]


def test_a_parameter_names_the_cluster(broker: Broker) -> None:
    assert broker.cluster_name == broker.default_cluster_name
    broker.global_parameters.set(CLUSTER_NAME, "shop")
    assert broker.cluster_name == "shop"


def test_uptime_does_not_follow_the_system_clock() -> None:
    loop = ManualLoop()
    timers = ManualTimers(loop)
    node = Node(timers)
    loop.advance(60)
    timers.set_by = -500
    assert (node.started_at, node.uptime()) == (1_000_000, 60_000)
