"""Power that goes while messages wait in a delayed exchange, and while they leave it: none is lost, none is early."""

from __future__ import annotations

import random
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

import pytest

from leveret.broker.core.message_stores.data_directory import DiskMessageStores
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.storage.engine import EngineOptions, StorageEngine
from leveret.storage.message import Message
from tests.crash.power_cuts import check_power_cuts
from tests.support.delayed import bind, bodies_in, declare_delayed, delayed_envelope
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers, declare
from tests.support.simulated_files import ROOT, SimulatedFiles

#: Delays in milliseconds; a turn takes 10.
_DELAYS: Final = (1, 10, 15, 30, 100, 1000, 60_000)


class DelayedBroker:
    """A delayed exchange with a queue, in a data directory.

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
        vhost = VirtualHost("v", turn, timers, stores=self.stores)
        self.waiting = declare_delayed(vhost)
        self.queue: Queue = declare(vhost)
        bind(vhost, self.queue)

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)
        while not self._calls.empty():
            self._calls.get()()


class DelayedLoad:
    """Publishes, consumes, and knows what has been promised."""

    def __init__(self, files: SimulatedFiles, options: EngineOptions) -> None:
        self._options = options
        self.broker = DelayedBroker(files, options, 1000.0)
        self.engine = self.broker.engine
        #: When each is due, by body.
        self._due: dict[bytes, float] = {}
        self.confirmed: set[bytes] = set()
        self._consumed: set[bytes] = set()

    def turn(self, rng: random.Random) -> None:
        """Publish something, consume something, and end the turn."""
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            body, delay = b"%d:" % len(self._due) + b"x" * rng.randrange(200), rng.choice(_DELAYS)
            self._due[body] = broker.loop.now + delay / 1000
            assert broker.waiting.publish([Message(delayed_envelope(delay), body)], len(body)) == 1
        published = set(self._due)
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        broker.advance(0.01)
        self._take(broker, rng.choice((0, 1, 5)))
        if rng.random() < 0.2:
            # Whatever has been written of the event log is synced.
            broker.engine.commit(events=True)
        if rng.random() < 0.1:
            broker.engine.housekeeping()
        if rng.random() < 0.05:
            broker.engine.checkpoint()

    def _take(self, broker: DelayedBroker, count: int) -> None:
        for _ in range(count):
            entry = broker.queue.get(None)
            if entry is not None:
                self._check_time([entry[1].body], broker.loop.now)
                self._consumed.add(entry[1].body)

    def _check_time(self, found: list[bytes], now: float) -> None:
        early = [body for body in found if self._due[body] > now + 1e-6]
        assert not early, f"early: {early}"

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Start a broker with what is left of the disk, and let all delays pass; return what was promised and lost."""
        broker = DelayedBroker(files, self._options, self.broker.loop.now + 0.02)
        assert broker.engine.report.failures == []
        broker.advance(0)
        found = bodies_in(broker.queue)
        self._check_time(found, broker.loop.now)
        known = {body for body in found if body not in self._consumed}
        broker.advance(100)
        later = bodies_in(broker.queue)
        assert [self._due[body] for body in later] == sorted(self._due[body] for body in later)
        assert broker.waiting.count == 0
        return self.confirmed - self._consumed - known - set(later)


@pytest.mark.parametrize("redo_segments", [0, 3])
def test_power_goes_while_messages_are_delayed(power_cuts: int, redo_segments: int) -> None:
    check_power_cuts(power_cuts, redo_segments, DelayedLoad)
