"""Log lines about lost messages: what they say, and how many there are."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pamqp import commands

from leveret.broker.core.stats.loss_record import LossLog
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish

#: Seconds within which a check certainly takes place, and between two lines about one queue.
CHECK, QUIET = 11, 600


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def client(broker: MemoryBroker) -> MemoryClient:
    return broker.open(channels=2)


@pytest.fixture(autouse=True)
def started(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> Iterator[LossLog]:
    caplog.set_level(logging.INFO, "leveret.losses")
    loss_log = LossLog(broker.broker)
    loss_log.start()
    yield loss_log
    loss_log.stop()


def declare(client: MemoryClient, name: str = "q", **given: Any) -> None:
    table = [
        (f"x-{key.replace('_', '-')}", "l" if isinstance(value, int) else "S", value) for key, value in given.items()
    ]
    client.call(1, commands.Queue.Declare, queue=name, arguments=table)


def send(client: MemoryClient, key: str, count: int = 1, **more: Any) -> None:
    client.send(*(publish(2, key, b"x", **more) for _ in range(count)))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines since the last call."""
    found = [record.getMessage() for record in caplog.records if record.name == "leveret.losses"]
    caplog.clear()
    return found


def at(broker: MemoryBroker) -> str:
    """The time as the lines have it."""
    return datetime.fromtimestamp(broker.broker.timers.seconds()).astimezone().isoformat(" ", "seconds")


def test_a_queue_that_drops(broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture) -> None:
    declare(client, max_length=1)
    broker.loop.advance(CHECK)
    before = at(broker)
    send(client, "q", 4)
    assert lines(caplog) == [], "nothing is logged on the path of a message"
    broker.loop.advance(CHECK)
    (line,) = lines(caplog)
    assert line.startswith("queue 'q' in vhost '/' has lost 3 messages since ")
    assert line.endswith(": 3 over the limit")
    since = line.removesuffix(": 3 over the limit")[-len(before) :]
    assert abs((datetime.fromisoformat(before) - datetime.fromisoformat(since)).total_seconds()) <= CHECK


def test_there_is_one_line_in_ten_minutes(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, max_length=1)
    send(client, "q", 2)
    broker.loop.advance(CHECK)
    assert len(lines(caplog)) == 1
    for _ in range(30):
        send(client, "q", 2)
        broker.loop.advance(CHECK)
    assert lines(caplog) == []
    broker.loop.advance(QUIET)
    (line,) = lines(caplog)
    assert "has lost 60 messages since" in line
    broker.loop.advance(QUIET * 3)
    assert lines(caplog) == [], "nothing more was lost"
    send(client, "q", 1)
    broker.loop.advance(CHECK)
    (line,) = lines(caplog)
    assert "has lost 1 message since" in line


def test_all_reasons(broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture) -> None:
    declare(client, max_length=2, message_ttl=1000, overflow="reject-publish")
    send(client, "q", 5)
    client.send(method(1, commands.Basic.Get, queue="q"))
    client.send(method(1, commands.Basic.Reject, delivery_tag=1, requeue=False))
    broker.loop.advance(CHECK)
    (line,) = lines(caplog)
    assert "lost 5 messages" in line
    assert line.endswith(": 1 expired, 1 rejected, 3 refused")


def test_dead_letters_that_arrive_are_not_lost(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, "letters", max_length=2, overflow="reject-publish")
    declare(client, max_length=1, dead_letter_exchange="", dead_letter_routing_key="letters")
    send(client, "q", 3)
    broker.loop.advance(CHECK)
    assert lines(caplog) == []
    send(client, "q", 4)
    broker.loop.advance(CHECK)
    found = sorted(lines(caplog))
    # One loss: the dead letter is counted where it comes from.
    assert found[0].startswith("queue 'letters' in vhost '/' has refused 4 messages since")
    assert found[1].startswith("queue 'q' in vhost '/' has lost 4 messages since")
    assert found[1].endswith(": 6 over the limit, of these 2 arrived at the dead-letter exchange")


def test_what_users_remove_or_know_of_is_not_lost(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client)
    send(client, "q", 2)
    client.call(1, commands.Queue.Purge, queue="q")
    send(client, "q", 2)
    client.call(1, commands.Queue.Delete, queue="q")
    send(client, "nobody", mandatory=True)
    broker.loop.advance(CHECK)
    assert lines(caplog) == []


def test_exchanges_and_what_is_deleted(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, max_length=1)
    send(client, "q", 3)
    client.call(1, commands.Queue.Delete, queue="q")
    client.call(1, commands.Exchange.Declare, exchange="x", exchange_type="direct")
    client.send(*(publish(2, "k", b"x", exchange="x") for _ in range(2)))
    broker.loop.advance(CHECK)
    deleted, exchange = lines(caplog)
    assert deleted.startswith("deleted queue 'q' in vhost '/' has lost 2 messages")
    assert exchange.startswith("exchange 'x' in vhost '/' has lost 2 messages")
    assert exchange.endswith(": 2 unroutable")


def test_very_many_queues_share_a_line(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        declare(client, f"q{number}", max_length=0)
        send(client, f"q{number}", 2)
    broker.loop.advance(CHECK)
    found = lines(caplog)
    assert len(found) == 21
    assert found[-1] == "10 more queues and exchanges have lost 20 messages; list_losses names them"
    broker.loop.advance(CHECK)
    assert lines(caplog) == []


def test_losses_before_a_restart_are_not_logged_again(
    broker: MemoryBroker, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, max_length=1)
    counters = broker.vhost.queues["q"].counters
    counters.add_earlier((7,) * len(counters.LOSS_FIELDS))
    broker.loop.advance(CHECK)
    assert lines(caplog) == []


def test_after_stop_nothing_is_logged(
    broker: MemoryBroker, client: MemoryClient, started: LossLog, caplog: pytest.LogCaptureFixture
) -> None:
    declare(client, max_length=0)
    send(client, "q")
    started.stop()
    broker.loop.advance(QUIET)
    assert lines(caplog) == []
