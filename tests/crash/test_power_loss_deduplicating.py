"""Power that goes while an exchange remembers values on disk: no value is there without its message, none is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from leveret.broker.core.deduplication.header_value import read_key
from leveret.broker.core.exchanges.deduplicating import DeduplicatingExchange
from leveret.broker.core.message_stores.data_directory import DiskMessageStores
from leveret.broker.core.messages.routing import route
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.field_table import FieldValue
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Envelope, Message
from tests.crash.power_cuts import check_power_cuts
from tests.support.delayed import bodies_in
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import envelope
from tests.support.queues import ManualTimers, declare
from tests.support.simulated_files import ROOT, SimulatedFiles

_ARGUMENTS = (("x-cache-size", FieldValue("l", 50)), ("x-cache-persistence", FieldValue("S", b"disk")))


class DeduplicatingBroker:
    """An exchange that drops duplicates, with a queue, in a data directory.

    Args:
        files: The disk.
        options: Options of the engine.
        now: Time of the clock in seconds.
    """

    def __init__(self, files: SimulatedFiles, options: EngineOptions, now: float) -> None:
        self.loop = ManualLoop()
        self.loop.now = now
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        turn = Turn(self.loop.call_soon)
        turn.before_writing.append(lambda: self.stores.write())
        timers = ManualTimers(self.loop)
        self.engine = StorageEngine(ROOT, self._calls.put, files=files, clock=timers, options=options)
        self.stores = DiskMessageStores(self.engine, turn.end_later, timers.real_call_later)
        self.vhost = VirtualHost("v", turn, timers, stores=self.stores)
        self.vhost.declare_exchange("d", DeduplicatingExchange.type_name, True, False, False, _ARGUMENTS)
        self.queue: Queue = declare(self.vhost)
        exchange = self.vhost.topology.exchanges["d"]
        assert isinstance(exchange, DeduplicatingExchange)
        self.exchange = exchange
        self.vhost.topology.bind(exchange, self.queue, "", ())

    def publish(self, common: Envelope, body: bytes) -> None:
        for target in route(self.vhost.topology, self.exchange, [""], ()).queues:
            target.publish([Message(common, body)], len(body))

    def remembered(self) -> set[bytes]:
        """Return the keys of all values that are remembered."""
        assert self.exchange.duplicates is not None
        return set(self.exchange.duplicates._values.expiries)

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)
        while not self._calls.empty():
            self._calls.get()()


class DeduplicatingLoad:
    """Publishes messages, some of them again, consumes, and knows what has been promised."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        self._options = options
        self.broker = DeduplicatingBroker(files, options, 1000.0)
        self.engine = self.broker.engine
        self._envelopes: dict[bytes, Envelope] = {}
        self.confirmed: set[bytes] = set()
        self._consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        """Publish something, consume something, and end the turn."""
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            if self._envelopes and rng.random() < 0.3:
                body = rng.choice(list(self._envelopes))
            else:
                body = b"%d:" % len(self._envelopes) + b"x" * rng.randrange(200)
                value = FieldValue("S", body)
                self._envelopes[body] = envelope(
                    "", exchange="d", persistent=True, headers=(("x-deduplication-header", value),)
                )
            broker.publish(self._envelopes[body], body)
        published = set(self._envelopes)
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        broker.advance(0.01)
        self._take(rng.choice((0, 1, 5)))
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            broker.engine.commit(events=True)
        if rng.random() < 0.1:
            broker.engine.housekeeping()
        if rng.random() < 0.05:
            broker.engine.checkpoint()

    def _take(self, count: int) -> None:
        for _ in range(count):
            entry = self.broker.queue.get(None)
            if entry is not None:
                self._consumed.add(entry[1].body)

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Start a broker with what is left of the disk; return what was promised and lost."""
        broker = DeduplicatingBroker(files, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        broker.advance(0)
        there = self._consumed.union(bodies_in(broker.queue))
        keys = {read_key(common.header): body for body, common in self._envelopes.items()}
        without = {keys[key] for key in broker.remembered()} - there
        assert not without, f"remembered without their messages: {without}"
        return self.confirmed - there


@pytest.mark.parametrize("redo_segments", [0, 3])
def test_power_goes_while_values_are_remembered(power_cuts: int, redo_segments: int) -> None:
    check_power_cuts(power_cuts, redo_segments, DeduplicatingLoad)
