from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from leveret.broker.core.broker import CLUSTER_ID, Broker, ClientConnection, GlobalParameters
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


def test_uptime_does_not_follow_the_system_clock() -> None:
    loop = ManualLoop()
    timers = ManualTimers(loop)
    node = Node(timers)
    loop.advance(60)
    timers.set_by = -500
    assert (node.started_at, node.uptime()) == (1_000_000, 60_000)
