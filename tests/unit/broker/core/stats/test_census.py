"""Adding up what everybody has counted, and sampling it."""

from __future__ import annotations

import pytest
from pamqp import commands

from leveret.broker.core.counters.counters import BrokerStatistics, VirtualHostStatistics
from leveret.broker.core.counters.history import STEP
from leveret.broker.core.node import Node
from leveret.broker.core.stats.census import Census, Sampler
from leveret.storage.clock import Clock
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish

FIELDS = VirtualHostStatistics.FIELDS
NOW = 1_795_230_000


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    """A queue q with three messages, two channels."""
    opened = broker.open(channels=2)
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.send(*(publish(2, "q", b"x") for _ in range(3)))
    return opened


def totals(broker: MemoryBroker) -> dict[str, int]:
    """What has been counted, all virtual hosts together, without what is 0."""
    census = Census(broker.broker)
    for _ in census.steps():
        pass
    row = zip(FIELDS, census.total(), strict=True)
    return {field: value for field, value in row if value and not field.endswith("_oct")}


def test_everything_is_counted(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Basic.Get, queue="q")
    client.call(1, commands.Basic.Get, queue="q", no_ack=True)
    client.send(publish(2, "nowhere", b"x"))
    client.send(method(1, commands.Basic.Consume, queue="q"))
    assert totals(broker) == {
        "publish": 4,
        "drop_unroutable": 1,
        "get": 1,
        "get_no_ack": 1,
        "deliver": 1,
        "queue_declared": 1,
        "queue_created": 1,
        "messages_unacknowledged": 2,
    }


def test_settlements(broker: MemoryBroker, client: MemoryClient) -> None:
    client.send(method(1, commands.Basic.Consume, queue="q"))
    client.send(method(1, commands.Basic.Ack, delivery_tag=1))
    client.send(method(1, commands.Basic.Nack, delivery_tag=2, requeue=True))
    client.send(method(1, commands.Basic.Reject, delivery_tag=3, requeue=False))
    counted = totals(broker)
    assert (counted["ack"], counted["redeliver"], counted["deliver"], counted["drop"]) == (1, 1, 4, 1)


def test_confirms(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(2, commands.Confirm.Select)
    client.send(*(publish(2, "q", b"x") for _ in range(2)))
    counted = totals(broker)
    assert (counted["publish"], counted["confirm"]) == (5, 2)
    channel = next(each for each in client.connection.channels if each.number == 2)
    assert channel.counters.publish_confirm == 2


def test_transactions_count_at_commit(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(2, commands.Tx.Select)
    client.send(publish(2, "q", b"x"))
    assert totals(broker)["publish"] == 3
    client.call(2, commands.Tx.Commit)
    assert totals(broker)["publish"] == 4


def test_what_has_gone_stays_counted(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Basic.Get, queue="q", no_ack=True)
    before = totals(broker)
    client.call(1, commands.Channel.Close)
    assert totals(broker) == before
    received = broker.vhost.statistics.connections.recv_oct
    client.abort()
    assert totals(broker) == before
    assert broker.vhost.statistics.connections.recv_oct > received


def test_a_deleted_queue_leaves_its_drops(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Queue.Purge, queue="q")
    client.call(1, commands.Queue.Delete, queue="q")
    counted = totals(broker)
    assert (counted["drop"], counted["queue_deleted"]) == (3, 1)
    assert broker.vhost.statistics.queues["classic"].dropped == {"purged": 3}
    assert "messages_ready" not in counted


def test_a_deleted_virtual_host_leaves_its_totals(broker: MemoryBroker, client: MemoryClient) -> None:
    client.abort()
    before = totals(broker)
    broker.broker.delete_vhost("/")
    after = totals(broker)
    assert (after["publish"], after["queue_deleted"]) == (before["publish"], 1)


def test_churn(broker: MemoryBroker, client: MemoryClient) -> None:
    statistics = broker.broker.statistics
    client.call(2, commands.Channel.Close)
    other = broker.open(channels=1)
    other.abort()
    assert (statistics.connection_created, statistics.connection_closed) == (2, 1)
    assert (statistics.channel_created, statistics.channel_closed) == (3, 2)


def test_a_redeclared_queue_is_declared_and_not_created(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Queue.Declare, queue="q")
    client.call(1, commands.Queue.Declare, queue="q", passive=True)
    statistics = broker.vhost.statistics
    assert (statistics.queue_declared, statistics.queue_created) == (2, 1)


# -- samples ------------------------------------------------------------------------------------------------


def sample(broker: MemoryBroker, sampler: Sampler, now: int) -> None:
    for _ in sampler.sample(now):
        pass
    assert broker.broker.last_sample == now


def test_samples_give_rates(broker: MemoryBroker, client: MemoryClient) -> None:
    node = Node(Clock())
    sampler = Sampler(broker.broker, node)
    sample(broker, sampler, NOW)
    client.send(*(publish(2, "q", b"x") for _ in range(10)))
    sample(broker, sampler, NOW + STEP)
    queue = broker.vhost.queues["q"].counters
    channel = next(each for each in client.connection.channels if each.number == 2).counters
    vhost, total = broker.vhost.statistics, broker.broker.statistics
    for followed, field in ((queue, "publish"), (channel, "publish"), (vhost, "publish"), (total, "messages_ready")):
        assert followed.history is not None
        assert followed.history.rates(NOW + STEP)[followed.FIELDS.index(field)] == 2.0
    assert client.connection.output.counters.history is not None
    assert node.statistics.history is not None


def test_what_is_idle_has_no_history(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Queue.Declare, queue="idle")
    sample(broker, Sampler(broker.broker, Node(Clock())), NOW)
    assert broker.vhost.queues["idle"].counters.history is None
    assert broker.vhost.topology.exchanges["amq.topic"].counters.history is None


def test_no_counter_goes_back() -> None:
    statistics = VirtualHostStatistics()
    row = tuple(range(10, 10 + len(FIELDS)))
    statistics.sample(NOW, row)
    less = tuple(value - 5 for value in row)
    assert statistics.monotonic_row(less) == (*row[:-3], *less[-3:])
    assert BrokerStatistics().monotonic_row(less) == less


def test_details_are_kept_for_a_bounded_number(
    broker: MemoryBroker, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.broker.core.stats.census._DETAILED_MAX", 1)
    client.call(1, commands.Queue.Declare, queue="r")
    client.send(publish(2, "r", b"x"))
    sample(broker, Sampler(broker.broker, Node(Clock())), NOW)
    detailed = [broker.vhost.queues[name].counters.is_detailed for name in ("q", "r")]
    assert detailed == [True, False]


def test_the_sampler_goes_on(broker: MemoryBroker, client: MemoryClient) -> None:
    sampler = Sampler(broker.broker, Node(Clock()))
    sampler.start()
    # Samples are due a moment after the full step.
    broker.loop.advance(1)
    for _ in range(3):
        broker.loop.advance(STEP)
        assert broker.broker.last_sample == int(broker.loop.now) // STEP * STEP
    sampler.stop()
    last = broker.broker.last_sample
    broker.loop.advance(3 * STEP)
    assert broker.broker.last_sample == last


def test_the_capacity_of_consumers(broker: MemoryBroker, client: MemoryClient) -> None:
    sampler = Sampler(broker.broker, Node(Clock()))
    counters = broker.vhost.queues["q"].counters
    client.send(method(1, commands.Basic.Qos, prefetch_count=1))
    client.send(method(1, commands.Basic.Consume, queue="q"))
    sample(broker, sampler, NOW)
    sample(broker, sampler, NOW + STEP)
    assert counters.capacity == 0.25
    client.send(method(1, commands.Basic.Ack, delivery_tag=0, multiple=True))
    client.send(method(1, commands.Basic.Ack, delivery_tag=0, multiple=True))
    sample(broker, sampler, NOW + 2 * STEP)
    assert counters.capacity == 0.625
