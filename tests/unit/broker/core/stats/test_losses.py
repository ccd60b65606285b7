"""What queues and exchanges have lost: counted exactly, remembered for a day, and kept when they are deleted."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.counters.history import LOSSES, STEP, History
from leveret.broker.core.node import Node
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.stats.census import Sampler
from leveret.broker.core.vhosts.vhost import DAY, DeletedObjects
from leveret.storage.clock import Clock
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish

#: A full hour, so that all levels of detail have a sample there.
NOW = 1_795_230_000 // 3600 * 3600


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.open(channels=2)


def declare(broker: MemoryBroker, client: MemoryClient, name: str = "q", **given: Any) -> Queue:
    """Declare a queue; the arguments' names are without x-, with _ for -."""
    table = [
        (f"x-{key.replace('_', '-')}", "l", value)
        if isinstance(value, int)
        else (f"x-{key.replace('_', '-')}", "S", value.encode())
        for key, value in given.items()
    ]
    durable = given.get("queue_type") == "quorum"
    client.call(1, commands.Queue.Declare, queue=name, durable=durable, arguments=table)
    return broker.vhost.queues[name]


def send(client: MemoryClient, *keys: str, **more: Any) -> None:
    client.send(*(publish(2, key, b"x", **more) for key in keys))


def losses(counters: Any, retained: int = 0) -> dict[str, int]:
    """What has been lost, without what is 0."""
    row = zip(counters.LOSS_FIELDS, counters.loss_row(retained), strict=True)
    return {field: value for field, value in row if value}


def test_dead_letters_that_full_queues_refuse(broker: MemoryBroker, client: MemoryClient) -> None:
    dead = declare(broker, client, "dead", max_length=1, overflow="reject-publish")
    queue = declare(broker, client, max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    send(client, *"qqqq")
    lost = {"lost": 2, "drop_maxlen": 3, "dead_letter_maxlen": 3, "dead_letter_lost_maxlen": 2}
    assert losses(queue.counters) == lost
    # Lost once: the queue that they come from counts it.
    assert losses(dead.counters) == {"refuse": 2, "refuse_told": 2}


def test_dead_letters_that_wait_are_not_lost_yet(broker: MemoryBroker, client: MemoryClient) -> None:
    queue = declare(
        broker,
        client,
        queue_type="quorum",
        overflow="reject-publish",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_strategy="at-least-once",
    )
    send(client, "q")
    client.send(method(1, commands.Basic.Consume, queue="q"))
    client.send(method(1, commands.Basic.Reject, delivery_tag=1, requeue=False))
    assert queue.retained_count == 1
    waiting = {"drop_rejected": 1, "dead_letter_rejected": 1}
    assert losses(queue.counters, queue.retained_count) == waiting
    declare(broker, client, "dead")
    broker.loop.advance(600)
    assert queue.retained_count == 0
    assert losses(queue.counters)["drop_rejected"] == 1
    assert "lost" not in losses(queue.counters)


def test_direct_replies_are_not_lost(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Basic.Consume, queue="amq.rabbitmq.reply-to", no_ack=True)
    (name,) = broker.vhost.replies
    send(client, name)
    assert not broker.vhost.topology.exchanges[""].counters.has_losses


# -- samples ------------------------------------------------------------------------------------------------


def sample(broker: MemoryBroker, now: int, sampler: Sampler | None = None) -> None:
    for _ in (sampler or Sampler(broker.broker, Node(Clock()))).sample(now):
        pass


def test_only_what_has_lost_has_a_history(broker: MemoryBroker, client: MemoryClient) -> None:
    queue, other = declare(broker, client, max_length=1), declare(broker, client, "other")
    send(client, "q", "q", "other", "nowhere")
    sample(broker, NOW)
    assert queue.counters.losses is not None
    assert queue.counters.losses.history is not None
    assert queue.counters.losses.history.rates(NOW)[0] == 1 / STEP
    assert broker.vhost.topology.exchanges[""].counters.losses is not None
    assert other.counters.losses is None


@pytest.mark.parametrize(
    ("age", "before", "step"), [(300, 1, 5), (3600, 1, 60), (7200, 0, 600), (DAY, 0, 1800)], ids=str
)
def test_a_window_starts_where_the_finest_level_that_reaches_back_has_a_sample(
    age: int, before: int, step: int
) -> None:
    history = History(1, LOSSES)
    history.add(NOW - 4000, (1,))
    history.add(NOW, (3,))
    start = history.start(NOW + 3, age)
    assert (start.row[0], start.step) == (before, step)
    assert NOW + 3 - age - step < start.time <= NOW + 3 - age


def test_losses_are_known_for_a_day() -> None:
    history = History(1, LOSSES)
    for step in range(DAY // STEP):
        history.add(NOW + step * STEP, (step,))
    now = NOW + DAY - STEP
    for age in (60, 3600, 28_800, DAY - 3600):
        start = history.start(now, age)
        assert start.row[0] == (start.time - NOW) // STEP


def test_histories_are_fine_for_a_bounded_number(
    broker: MemoryBroker, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.broker.core.stats.census._DETAILED_LOSSES_MAX", 1)
    queues = [declare(broker, client, name, max_length=0) for name in ("q", "r")]
    send(client, "q", "r")
    sampler = Sampler(broker.broker, Node(Clock()))
    sample(broker, NOW, sampler)
    send(client, "q", "r")
    sample(broker, NOW + STEP, sampler)
    steps = []
    for queue in queues:
        assert queue.counters.losses is not None
        assert queue.counters.losses.history is not None
        steps.append(queue.counters.losses.history.start(NOW + STEP, 300).step)
    assert steps == [5, 1800]


# -- deletions ----------------------------------------------------------------------------------------------


def test_a_deleted_queue_is_known_by_name(broker: MemoryBroker, client: MemoryClient) -> None:
    declare(broker, client, max_length=1)
    send(client, "q", "q", "q")
    client.call(1, commands.Queue.Delete, queue="q")
    (deleted,) = broker.vhost.deleted_queues.recent
    assert deleted.name == "q"
    assert losses(deleted.counters) == {"lost": 2, "drop_maxlen": 2, "drop_deleted": 1}
    assert deleted.deleted_at == int(broker.loop.now)


def test_a_queue_that_has_lost_nothing_is_forgotten(broker: MemoryBroker, client: MemoryClient) -> None:
    declare(broker, client)
    client.call(1, commands.Queue.Delete, queue="q")
    assert not broker.vhost.deleted_queues.recent


def test_exclusive_queues_are_added_up(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Queue.Declare, queue="q", exclusive=True)
    send(client, "q")
    client.call(1, commands.Queue.Purge, queue="q")
    client.abort()
    deleted = broker.vhost.deleted_queues
    assert not deleted.recent
    assert losses(deleted.others) == {"drop_purged": 1}
    sample(broker, NOW)
    assert deleted.others.losses is not None


def test_a_deleted_exchange_is_known_by_name(broker: MemoryBroker, client: MemoryClient) -> None:
    client.call(1, commands.Exchange.Declare, exchange="e", exchange_type="direct")
    send(client, "nowhere", exchange="e")
    client.call(1, commands.Exchange.Delete, exchange="e")
    assert [each.name for each in broker.vhost.deleted_exchanges.recent] == ["e"]


def lossy(refused: int = 1) -> QueueCounters:
    counters = QueueCounters()
    counters.refused = refused
    return counters


def test_after_a_day_only_the_sum_is_kept() -> None:
    deleted = DeletedObjects(QueueCounters(), QueueCounters())
    deleted.add("q", lossy(), NOW)
    deleted.add("r", lossy(2), NOW + 60)
    deleted.sample(NOW + DAY + STEP)
    assert [each.name for each in deleted.recent] == ["r"]
    assert (deleted.earlier.refused, deleted.others.refused) == (1, 0)


def test_of_too_many_the_oldest_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leveret.broker.core.vhosts.vhost._DELETED_MAX", 2)
    deleted = DeletedObjects(QueueCounters(), QueueCounters())
    for number, name in enumerate("qrs", 1):
        deleted.add(name, lossy(number), NOW)
    assert [each.name for each in deleted.recent] == ["r", "s"]
    assert deleted.others.refused == 1
