"""Power that goes while returned messages wait, and when they are due: none is lost, none is early."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final

import pytest

from leveret.broker.core.message_stores.data_directory import DiskMessageStores
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.storage.engine import EngineOptions, StorageEngine
from tests.crash.power_cuts import check_power_cuts
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, publish
from tests.support.queues import ManualTimers, declare, settle
from tests.support.simulated_files import ROOT, SimulatedFiles

#: Delays of the first, second and later retries in seconds; a turn takes 0.01.
_STEPS: Final = (0.015, 0.1, 0.03, 60.0)
_ARGUMENTS: Final = {"delayed_retry_steps": ",".join(f"{round(step * 1000)}ms" for step in _STEPS)}


class RetryBroker:
    """A queue with delayed retries, in a data directory.

    Args:
        files: The disk.
        options: Options of the engine.
        now: Time of the clock in seconds.
        kind: The type of the queue.
    """

    def __init__(self, files: SimulatedFiles, options: EngineOptions, now: float, kind: str) -> None:
        self.loop = ManualLoop()
        self.loop.now = now
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        turn = Turn(self.loop.call_soon)
        turn.before_writing.append(lambda: self.stores.write())
        timers = ManualTimers(self.loop)
        self.engine = StorageEngine(ROOT, self._calls.put, files=files, clock=timers, options=options)
        self.stores = DiskMessageStores(self.engine, turn.end_later, timers.real_call_later)
        vhost = VirtualHost("v", turn, timers, stores=self.stores)
        self.queue: Queue = declare(vhost, arguments=arguments(queue_type=kind, **_ARGUMENTS))

    def advance(self, seconds: float) -> None:
        self.loop.advance(seconds)
        while not self._calls.empty():
            self._calls.get()()

    def drain(self) -> list[str]:
        found = []
        while (entry := self.queue.get(None)) is not None:
            found.append(entry[1].body.decode())
        return found


class RetryLoad:
    """Publishes, acknowledges and requeues, and knows what has been promised."""

    def __init__(self, kind: str, files: SimulatedFiles, options: EngineOptions) -> None:
        self._kind = kind
        self._options = options
        self.broker = RetryBroker(files, options, 1000.0, kind)
        self.engine = self.broker.engine
        self._returns: dict[str, int] = {}
        #: When each waiting message is due, and of which of them that is certain on disk.
        self._due: dict[str, float] = {}
        self._promised: dict[str, float] = {}
        self.confirmed: set[bytes] = set()
        self._consumed: set[str] = set()

    def turn(self, rng: random.Random) -> None:
        """Publish something, take something, and end the turn."""
        broker = self.broker
        for _ in range(rng.choice((0, 1, 3))):
            body = f"{len(self._returns)}:" + "x" * rng.randrange(200)
            self._returns[body] = 0
            assert publish(broker.queue, body, persistent=True) == 1
        published = {body.encode() for body in self._returns}
        broker.stores.when_synced(lambda: self.confirmed.update(published))
        for _ in range(rng.choice((0, 2, 5))):
            self._take(rng)
        # What has returned is in the queue once the copy and the event are synced.
        broker.loop.run()
        self.engine.commit(partial(self._promised.update, dict(self._due)), events=True)
        broker.advance(0.01)
        if rng.random() < 0.1:
            self.engine.housekeeping()
        if rng.random() < 0.05:
            self.engine.checkpoint()

    def _take(self, rng: random.Random) -> None:
        holder = Holder(self.broker.queue)
        entry = self.broker.queue.get(holder)
        if entry is None:
            return
        body, now = entry[1].body.decode(), self.broker.loop.now
        assert self._due.pop(body, 0.0) <= now + 1e-6
        self._promised.pop(body, None)
        if rng.random() < 0.3:
            self._consumed.add(body)
            settle(holder, [entry], "acknowledge")
            return
        self._due[body] = now + _STEPS[min(self._returns[body], len(_STEPS) - 1)]
        self._returns[body] += 1
        settle(holder, [entry], "requeue")

    def missing(self, files: SimulatedFiles) -> set[bytes]:
        """Start a broker with what is left of the disk, and let all delays pass; return what was promised and lost."""
        broker = RetryBroker(files, self._options, self.broker.loop.now + 0.005, self._kind)
        assert broker.engine.report.failures == []
        broker.advance(0)
        found = broker.drain()
        early = [body for body in found if self._promised.get(body, 0.0) > broker.loop.now + 1e-6]
        assert not early, f"early: {early}"
        broker.advance(100)
        found += broker.drain()
        assert broker.queue.contents.delayed_count == 0
        kept = {body.encode() for body in (*found, *self._consumed)}
        return self.confirmed - kept


@pytest.mark.parametrize("redo_segments", [0, 3])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_power_goes_while_messages_wait_for_their_retry(power_cuts: int, kind: str, redo_segments: int) -> None:
    check_power_cuts(power_cuts, redo_segments, partial(RetryLoad, kind))
