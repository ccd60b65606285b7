"""The broker's clock, advanced by hand on a running event loop."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from leveret.broker.core.scheduling.timers import Timers
from tests.support.manual_loop import ManualLoop
from tests.support.queues import ManualTimers

HOUR = 3600.0


@pytest.fixture
async def timers() -> Timers:
    return Timers(asyncio.get_running_loop().call_later)


async def test_wall_clock_and_monotonic_time_advance_together(timers: Timers) -> None:
    for read in (timers.now, timers.monotonic):
        before = read()
        await timers.advance(HOUR)
        assert 0 <= read() - before - 3_600_000_000 < 60_000_000


async def test_due_timers_fire_in_order_each_at_its_time(timers: Timers) -> None:
    start, fired = timers.monotonic(), []

    def fire(name: str) -> None:
        fired.append((name, (timers.monotonic() - start) // 1_000_000))

    for name, seconds in (("third", 300), ("first", 100), ("second", 200), ("also second", 200), ("late", HOUR)):
        timers.call_later(seconds, partial(fire, name))
    await timers.advance(HOUR - 60)
    assert fired == [("first", 100), ("second", 200), ("also second", 200), ("third", 300)]
    assert len(timers.pending) == 1


async def test_timers_that_a_timer_sets_fire_in_the_same_advance(timers: Timers) -> None:
    fired: list[str] = []

    def chain(left: int) -> None:
        fired.append(f"chain {left}")
        if left:
            # As at the end of a turn.
            asyncio.get_running_loop().call_soon(timers.call_later, 600, partial(chain, left - 1))

    timers.call_later(600, partial(chain, 3))
    timers.call_later(1500, lambda: fired.append("other"))
    await timers.advance(2399)
    assert fired == ["chain 3", "chain 2", "other", "chain 1"]


async def test_a_timer_that_is_not_due_yet_waits_for_the_rest_only(timers: Timers) -> None:
    fired = asyncio.Event()
    timers.call_later(HOUR, fired.set)
    await timers.advance(HOUR - 0.5)
    assert len(timers.pending) == 1
    await asyncio.wait_for(fired.wait(), 30)
    assert not timers.pending


async def test_a_cancelled_timer_does_not_fire(timers: Timers) -> None:
    fired: list[str] = []
    second = timers.call_later(20, lambda: fired.append("second"))
    timers.call_later(10, second.cancel)
    third = timers.call_later(30, lambda: fired.append("third"))
    third.cancel()
    third.cancel()
    await timers.advance(HOUR)
    assert (fired, timers.pending) == ([], {})


async def test_real_timers_do_not_follow_an_advance(timers: Timers) -> None:
    fired: list[str] = []
    timer = timers.real_call_later(60, lambda: fired.append("real"))
    await timers.advance(HOUR)
    timer.cancel()
    assert fired == []


def test_without_an_advance_it_is_the_event_loop_that_fires() -> None:
    loop = ManualLoop()
    timers = ManualTimers(loop)
    fired: list[float] = []
    timers.call_later(2.5, lambda: fired.append(loop.now))
    cancelled = timers.call_later(1, lambda: fired.append(loop.now))
    cancelled.cancel()
    loop.advance(2)
    assert (fired, len(timers.pending)) == ([], 1)
    loop.advance(1)
    assert (fired, len(timers.pending)) == ([1002.5], 0)


@pytest.mark.parametrize("ends", ["fires", "is cancelled"])
def test_the_callback_of_a_timer_that_has_ended_is_freed_without_garbage_collection(ends: str) -> None:
    class Owner:
        def on_timer(self) -> None: ...

    loop, owner = ManualLoop(), Owner()
    timers = ManualTimers(loop)
    timer = timers.call_later(1, owner.on_timer)
    freed = weakref.ref(owner)
    gc.disable()
    try:
        if ends == "is cancelled":
            timer.cancel()
        loop.advance(2)
        del timer, owner
        assert freed() is None
    finally:
        gc.enable()


async def test_after_stop_nothing_is_called(timers: Timers) -> None:
    called: list[str] = []
    timers.call_later(0, partial(called.append, "before"))
    timers.stop()
    timers.call_later(0, partial(called.append, "after")).cancel()
    timers.call_later(0, partial(called.append, "after"))
    for _ in range(3):
        await asyncio.sleep(0.01)
    assert called == []
