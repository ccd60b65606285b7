"""Work that one queue makes for itself is done in slices of time, so that others are served in between."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.contents import _DROP_STEP
from leveret.broker.core.scheduling.slices import in_slices, run_in_slices
from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS, TimeSlice, Turn
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, FieldValue
from leveret.storage.message import Envelope, Message
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost
from tests.support.stepping_clock import SteppingClock


class Worker:
    """A queue and a connection in one; calls the given function when the turn ends."""

    def __init__(self, log: list[str], name: str, work: Callable[[], None] = lambda: None) -> None:
        self.scheduled = False
        self.log = log
        self.name = name
        self.work = work

    def deliver(self) -> None:
        assert not self.scheduled
        self.log.append(f"deliver {self.name}")
        self.work()

    def flush(self) -> None:
        self.log.append(f"flush {self.name}")
        self.work()


@pytest.fixture
def calls() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def turn(calls: list[Callable[[], None]]) -> Turn:
    return Turn(calls.append)


def test_queues_deliver_before_connections_write(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    turn.flush_later(Worker(log, "x"))
    turn.deliver_later(Worker(log, "a"))
    turn.flush_later(Worker(log, "y"))
    turn.deliver_later(Worker(log, "b"))
    assert len(calls) == 1, "one callback ends the turn"
    calls.pop()()
    assert log == ["deliver a", "deliver b", "flush x", "flush y"]
    assert calls == []


def test_what_confirms_durable_messages_makes_nothing_durable(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    turn.before_writing.append(lambda: log.append("write"))
    schedules = (turn.confirm_later, turn.flush_later, turn.deliver_later)
    for schedule in schedules:
        schedule(Worker(log, "x"))
        calls.pop()()
    assert log == ["flush x", "write", "flush x", "deliver x", "write"]
    log.clear()
    turn.confirm_later(Worker(log, "x"))
    turn.end_later()
    calls.pop()()
    assert log == ["write", "flush x"]


def _fail() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("also", [False, True], ids=["alone", "with the others"])
def test_an_exception_affects_no_other_queue_or_connection(
    calls: list[Callable[[], None]], caplog: pytest.LogCaptureFixture, also: bool
) -> None:
    turn = Turn(calls.append)
    turn.before_writing.append(_fail)
    log: list[str] = []
    for name, work in (("a", _fail), ("b", _fail if also else lambda: None), ("c", lambda: None)):
        turn.deliver_later(Worker(log, name, work))
        turn.flush_later(Worker(log, name, work))
    with caplog.at_level(logging.ERROR):
        calls.pop()()
    assert log == ["deliver a", "deliver b", "deliver c", "flush a", "flush b", "flush c"]
    assert len(caplog.records) == (5 if also else 3)
    assert {record.exc_info[0] for record in caplog.records if record.exc_info} == {ZeroDivisionError}
    turn.deliver_later(Worker(log, "d"))
    calls.pop()()
    assert log[-1] == "deliver d"


def test_being_noted_twice_means_one_run(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    worker = Worker(log, "a")
    for _ in range(3):
        turn.deliver_later(worker)
    calls.pop()()
    assert log == ["deliver a"]
    turn.deliver_later(worker)
    calls.pop()()
    assert log == ["deliver a", "deliver a"]


def test_what_a_delivery_sends_is_written_in_the_same_turn(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    connection = Worker(log, "x")
    turn.deliver_later(Worker(log, "a", lambda: turn.flush_later(connection)))
    calls.pop()()
    assert log == ["deliver a", "flush x"]
    # The turn may have asked for another end meanwhile, which then has nothing to do.
    while calls:
        calls.pop()()
    assert log == ["deliver a", "flush x"]


def test_work_made_by_a_write_waits_for_the_next_turn(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    queue = Worker(log, "a")
    turn.flush_later(Worker(log, "x", lambda: turn.deliver_later(queue)))
    calls.pop()()
    assert log == ["flush x"]
    assert len(calls) == 1
    calls.pop()()
    assert log == ["flush x", "deliver a"]


def test_a_queue_that_asks_again_while_it_delivers_has_another_turn(
    turn: Turn, calls: list[Callable[[], None]]
) -> None:
    log: list[str] = []
    queue = Worker(log, "a")
    queue.work = lambda: turn.deliver_later(queue) if len(log) < 3 else None
    turn.deliver_later(queue)
    while calls:
        assert len(calls) == 1
        calls.pop()()
    assert log == ["deliver a"] * 3
    assert not queue.scheduled


def test_what_work_causes_shares_its_time_slice() -> None:
    turn = Turn(lambda callback: None, clock := SteppingClock())
    seen: list[TimeSlice] = []

    def outer(time_slice: TimeSlice) -> None:
        seen.append(time_slice)
        seen.append(turn.slice())
        turn.share_slice(seen.append)
        while not time_slice.is_over():
            pass
        # What comes later gets no time of its own.
        assert turn.slice().is_over()

    turn.share_slice(outer)
    assert len({id(each) for each in seen}) == 1
    assert not turn.slice().is_over()
    assert clock() > 0


def test_an_error_ends_a_shared_slice() -> None:
    turn = Turn(lambda callback: None, SteppingClock())

    def fail(time_slice: TimeSlice) -> None:
        while not time_slice.is_over():
            pass
        raise ValueError

    with pytest.raises(ValueError):
        turn.share_slice(fail)
    assert not turn.slice().is_over()


_LETTERS = (
    ("x-dead-letter-exchange", FieldValue("S", b"")),
    ("x-dead-letter-routing-key", FieldValue("S", b"letters")),
)
_MESSAGES = 20_000


class Steps:
    """A loop of which a test sees every turn."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.vhost = new_vhost(self.loop, clock=SteppingClock())
        self.turn = self.vhost.turn

    def counts(self, *queues: ClassicQueue) -> list[list[int]]:
        """What is ready in each queue after each turn, until there is nothing left to do."""
        found = [[queue.store.ready_count for queue in queues]]
        while not self.loop.is_idle:
            callbacks, self.loop._soon = self.loop._soon, []
            for callback in callbacks:
                callback()
            found.append([queue.store.ready_count for queue in queues])
            assert len(found) < 10_000
        return found


@pytest.fixture
def steps() -> Steps:
    return Steps()


def fill(queue: ClassicQueue, count: int = _MESSAGES, expiration: int | None = None) -> None:
    envelope = Envelope(b"\0\1q", b"\0\x3c" + bytes(12), expiration_ms=expiration)
    for _ in range(0, count, 100):
        queue.publish([Message(envelope, b"m")] * 100, 100)


def shrink(vhost: VirtualHost, pattern: str = "^q", **definition: Any) -> None:
    policy = Policy("p", pattern, definition or {"max-length": 10}, 0, "queues")
    vhost.policies.set(replace(policy), operator=False)


def test_a_slice_ends_after_its_time() -> None:
    now = 0
    time_slice = TimeSlice(lambda: now)
    assert not time_slice.is_over()
    now = 4_999
    assert not time_slice.is_over()
    now = 5_000
    assert time_slice.is_over()


@pytest.mark.parametrize("arguments", [(), _LETTERS], ids=["dropped", "dead-lettered"])
@pytest.mark.parametrize(
    "definition",
    [{"max-length": 10}, {"max-length-bytes": 10}, {"max-length": 10, "overflow": "reject-publish"}],
)
def test_shrinking(steps: Steps, arguments: FieldTable, definition: dict[str, Any]) -> None:
    queue = declare(steps.vhost, arguments=arguments)
    letters = declare(steps.vhost, "letters")
    fill(queue)
    steps.loop.run()
    shrink(steps.vhost, "^q$", **definition)
    counts = [ready for (ready,) in steps.counts(queue)]
    assert counts[-1] == 10
    assert len(counts) > 3
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(counts))
    assert letters.store.ready_count == (_MESSAGES - 10 if arguments else 0)


def test_many_queues_share_the_slice_of_a_turn(steps: Steps) -> None:
    queues = [declare(steps.vhost, f"q{number}") for number in range(20)]
    for queue in queues:
        fill(queue, 2000)
    steps.loop.run()
    steps.vhost.policies.set(Policy("p", "^q", {"max-length": 0}, 0, "queues"), operator=False)
    totals = [sum(ready) for ready in steps.counts(*queues)]
    assert totals[-1] == 0
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(totals))


@pytest.mark.parametrize("arguments", [(), _LETTERS], ids=["dropped", "dead-lettered"])
def test_expiry(steps: Steps, arguments: FieldTable) -> None:
    queue = declare(steps.vhost, arguments=arguments)
    fill(queue, expiration=1000)
    steps.loop.run()
    steps.loop.now += 2
    steps.turn.deliver_later(queue)
    counts = [ready for (ready,) in steps.counts(queue)]
    assert counts[-1] == 0
    assert all(0 <= before - after <= 5 * _DROP_STEP for before, after in itertools.pairwise(counts))


def test_the_settled_state_is_returned_on_request(steps: Steps) -> None:
    queue = declare(steps.vhost)
    fill(queue)
    shrink(steps.vhost)
    assert queue.store.ready_count > 10
    assert queue.ready_count() == 10


def test_after_stop_nothing_is_delivered_or_written(turn: Turn, calls: list[Callable[[], None]]) -> None:
    log: list[str] = []
    turn.before_writing.append(lambda: log.append("write"))
    turn.deliver_later(Worker(log, "a"))
    turn.stop()
    turn.flush_later(Worker(log, "x"))
    for call in calls:
        call()
    assert log == []


SLICE_SECONDS = SLICE_MICROSECONDS / 1_000_000


class Rounds:
    """Counts rounds of the event loop while something else runs."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.count += 1
        self._loop.call_soon(self._next)


def busy(steps: int, seconds: float) -> Iterator[int]:
    """Steps that take some time each."""
    for step in range(steps):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        yield step


def test_long_work_gives_way_by_time_not_by_count() -> None:
    async def run(steps: int, seconds: float) -> int:
        rounds = Rounds()
        await run_in_slices(busy(steps, seconds))
        return rounds.count

    assert asyncio.run(run(20, SLICE_SECONDS)) >= 20
    assert asyncio.run(run(1000, 0)) < 20


def test_many_that_work_at_once_take_turns() -> None:
    """One slice a round, however many there are: nobody else waits for all of them."""

    async def run() -> int:
        rounds = Rounds()
        await asyncio.gather(*(run_in_slices(busy(4, SLICE_SECONDS)) for _ in range(20)))
        return rounds.count

    # Two slices in a round at most: that of the one whose turn it is, and of one that has just come.
    assert asyncio.run(run()) >= 20 * 4 // 2


def test_short_work_does_not_wait_for_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten that have taken 10 slices each, and one that needs 6: it gets three of four slices, the others the fourth."""
    # Time passes with the steps alone, whatever else this machine does.
    nanoseconds = itertools.count(0, 1)
    passed = 0

    def now() -> int:
        return passed + next(nanoseconds)

    def steps_of(slices: int) -> Iterator[int]:
        nonlocal passed
        for step in range(slices):
            passed += SLICE_MICROSECONDS * 1000
            yield step

    monkeypatch.setattr(time, "perf_counter_ns", now)

    async def run() -> int:
        count, has_taken_hundred = 0, asyncio.Event()

        async def work(slices: int) -> None:
            nonlocal count
            async for _ in in_slices(steps_of(slices)):
                count += 1
                if count == 100:
                    has_taken_hundred.set()

        long = [asyncio.ensure_future(work(100)) for _ in range(10)]
        await has_taken_hundred.wait()
        before = count
        await work(6)
        between = count - before - 6
        for task in long:
            task.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        return between

    assert 1 <= asyncio.run(run()) <= 4


def test_those_that_were_given_up_take_no_turn() -> None:
    async def run() -> None:
        given_up = [asyncio.ensure_future(run_in_slices(busy(1000, SLICE_SECONDS))) for _ in range(5)]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        async with asyncio.timeout(20):
            await run_in_slices(busy(3, SLICE_SECONDS))

    asyncio.run(run())


def test_all_items_come_in_order_and_errors_come_through() -> None:
    async def collect() -> list[int]:
        return [item async for item in in_slices(busy(5, SLICE_SECONDS))]

    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    assert asyncio.run(collect()) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        asyncio.run(run_in_slices(failing()))
