"""Delayed messages that a start finds on disk: they are entered in slices, and overdue ones come first."""

from __future__ import annotations

import pytest

from leveret.broker.core.delays.waiting import WaitingMessages
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.storage.engine import EngineOptions, StorageEngine
from tests.support.delayed import bind, bodies_in, declare_delayed, publish_delayed
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers, declare
from tests.support.simulated_files import ROOT, SimulatedFiles, flip
from tests.support.stepping_clock import SteppingClock


class Start:
    """A start of a broker with a delayed exchange and a queue.

    Args:
        files: The disk.
        now: Time of both clocks, in seconds.
    """

    def __init__(self, files: SimulatedFiles, now: float) -> None:
        self.loop = ManualLoop()
        self.loop.now = now
        timers = ManualTimers(self.loop)
        turn = Turn(self.loop.call_soon, SteppingClock())
        turn.before_writing.append(lambda: self.stores.write())
        options = EngineOptions(segment_bytes=20_000, disk_free_limit=0, ballast_bytes=0)
        self.engine = StorageEngine(ROOT, files=files, clock=timers, options=options, on_work=turn.end_later)
        self.stores = MessageStores(self.engine, turn.end_later, timers.real_call_later)
        self.vhost = VirtualHost("v", turn, timers, stores=self.stores)
        self.waiting: WaitingMessages = declare_delayed(self.vhost)
        self.queue: ClassicQueue = declare(self.vhost)
        bind(self.vhost, self.queue)

    def stop(self) -> None:
        self.loop.run()
        assert self.stores.close()


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def test_all_are_found_in_their_order(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    expected = []
    for number in range(3000):
        delay = 1000 + number * 7919 % 3000
        expected.append((delay, number, b"%d" % number))
        publish_delayed(before.waiting, delay, b"%d" % number)
    before.stop()
    after = Start(files, 1000.5)
    assert after.waiting.count == 3000
    # Messages that are published while the others are entered come in their order too.
    publish_delayed(after.waiting, 1000, b"new")
    expected.append((1500, 3000, b"new"))
    after.loop.advance(0)
    after.loop.advance(5)
    found = [body for _, _, body in sorted(expected)]
    assert bodies_in(after.queue) == found


def test_overdue_ones_come_at_once_and_none_comes_early(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    for delay in (30_000, 10_000, 20_000):
        publish_delayed(before.waiting, delay, b"%d" % delay)
    before.stop()
    after = Start(files, 1020.0)
    after.loop.advance(0)
    assert bodies_in(after.queue) == [b"10000", b"20000"]
    after.loop.advance(9.99)
    assert bodies_in(after.queue) == []
    after.loop.advance(0.01)
    assert bodies_in(after.queue) == [b"30000"]


def test_what_was_routed_or_cancelled_is_gone(files: SimulatedFiles) -> None:
    before = Start(files, 1000.0)
    publish_delayed(before.waiting, 10, b"routed")
    publish_delayed(before.waiting, 10_000, b"stays")
    before.loop.advance(1)
    assert bodies_in(before.queue) == [b"routed"]
    before.stop()
    after = Start(files, 1020.0)
    after.loop.advance(0)
    assert bodies_in(after.queue) == [b"stays"]


def test_a_damaged_one_is_lost_and_the_others_come(files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> None:
    before = Start(files, 1000.0)
    for number in range(100):
        publish_delayed(before.waiting, 1000, b"body %03d" % number)
    before.stop()
    for path in [each for each in files.snapshot() if each.endswith(".seg")]:
        octets = files.read_all(path) or b""
        if b"body 050" in octets:
            flip(files, path, octets.index(b"body 050"), 1)
    after = Start(files, 1020.0)
    after.loop.advance(1)
    assert bodies_in(after.queue) == [b"body %03d" % number for number in range(100) if number != 50]
    assert "cannot be read" in caplog.text
    assert after.waiting.count == 0
