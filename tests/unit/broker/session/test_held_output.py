from __future__ import annotations

import queue
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from leveret.protocol.constants import FRAME_HEARTBEAT
from leveret.storage.definitions_database import Changes, DefinitionsDatabase
from tests.support.memory_broker import MemoryBroker, MemoryClient, kinds


class Locked(DefinitionsDatabase):
    """A database that is locked until the test unlocks it."""

    is_locked = True

    def write(self, changes: Changes) -> None:
        """Write, or fail while locked."""
        if self.is_locked:
            raise sqlite3.OperationalError("database is locked")
        super().write(changes)


class Broker:
    """A broker whose definitions cannot be written."""

    def __init__(self, path: Path) -> None:
        self.memory = MemoryBroker()
        self.broker = self.memory.broker
        self.database = Locked(path / "definitions.sqlite")
        self.calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.broker.gate.attach(self.database, self.calls.put, self.broker.turn.end_later)
        self.broker.record_to(self.broker.gate)

    def open(self, **handshake: Any) -> MemoryClient:
        return self.memory.open(**handshake)

    def write(self) -> None:
        """Try to write, and process the result."""
        self.broker.gate.write()
        self.calls.get(timeout=30)()
        self.memory.loop.run()

    def unlock_and_retry(self) -> None:
        """Unlock the database, advance the time to the retry, and process its result."""
        self.database.is_locked = False
        self.memory.loop.advance(1)
        self.calls.get(timeout=30)()
        self.memory.loop.run()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.database.is_locked = False
    made.broker.gate.close()
    made.database.close()


DECLARE = {"queue": "q", "durable": True}


def test_a_reply_and_all_later_output_wait_for_the_disk(broker: Broker) -> None:
    client = broker.open()
    assert client.call(1, commands.Queue.Declare, **DECLARE) == []
    assert client.call(2, commands.Channel.Open) == []
    assert client.call(1, commands.Queue.Declare, queue="transient", exclusive=True) == []
    broker.write()
    assert client.methods() == []
    broker.unlock_and_retry()
    names = [method.queue for method in client.methods() if method.kind is commands.Queue.DeclareOk]
    assert names == ["q", "transient"]


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (commands.Queue.Declare, {**DECLARE, "passive": True}),
        (commands.Queue.Declare, DECLARE),
        (commands.Queue.Bind, {"queue": "q", "exchange": "amq.fanout"}),
        (commands.Queue.Purge, {"queue": "q"}),
        (commands.Queue.Delete, {"queue": "q"}),
        (commands.Basic.Consume, {"queue": "q"}),
        (commands.Basic.Get, {"queue": "q"}),
        (commands.Exchange.Declare, {"exchange": "x", "exchange_type": "direct", "durable": True}),
        (commands.Exchange.Declare, {"exchange": "x", "passive": True}),
        (commands.Exchange.Bind, {"destination": "x", "source": "amq.fanout"}),
        (commands.Exchange.Delete, {"exchange": "x"}),
    ],
)
def test_a_reply_that_depends_on_an_unwritten_definition_waits(
    broker: Broker, kind: Any, arguments: dict[str, Any]
) -> None:
    first, second = broker.open(), broker.open()
    first.call(1, commands.Exchange.Declare, exchange="x", exchange_type="direct", durable=True)
    first.call(1, commands.Queue.Declare, **DECLARE)
    assert second.call(1, kind, **arguments) == []
    broker.write()
    broker.unlock_and_retry()
    (answer,) = second.methods()
    assert answer.kind not in (commands.Channel.Close, commands.Connection.Close)


def test_other_connections_continue(broker: Broker) -> None:
    broker.database.is_locked = False
    other = broker.open()
    other.call(1, commands.Queue.Declare, queue="old", durable=True)
    broker.write()
    broker.memory.loop.run()
    other.methods()
    broker.database.is_locked = True
    broker.open().call(1, commands.Queue.Declare, **DECLARE)
    for kind, arguments in (
        (commands.Queue.Declare, {"queue": "old", "durable": True}),
        (commands.Queue.Declare, {"queue": "transient", "exclusive": True}),
        (commands.Basic.Get, {"queue": "old"}),
        (commands.Exchange.Declare, {"exchange": "amq.topic", "passive": True}),
    ):
        assert len(other.call(1, kind, **arguments)) == 1, arguments


def test_heartbeats_continue(broker: Broker) -> None:
    client = broker.open(heartbeat=2)
    client.call(1, commands.Queue.Declare, **DECLARE)
    broker.memory.loop.advance(1)
    broker.memory.loop.advance(1)
    assert {frame.type for frame in client.frames()} == {FRAME_HEARTBEAT}


def test_a_failed_turn_sends_no_output_that_depends_on_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path)

    def fail() -> None:
        raise RuntimeError("a mistake")

    client = broker.open()
    broker.broker.turn.before_writing[:] = [fail]
    assert client.call(1, commands.Queue.Declare, **DECLARE) == []
    broker.database.is_locked = False
    broker.write()
    broker.memory.loop.run()
    assert kinds(client.methods()) == [commands.Queue.DeclareOk]
    broker.broker.gate.close()
    broker.database.close()
