from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from leveret.broker.core.scheduling.slices import in_slices, run_in_slices
from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS

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


def test_short_work_does_not_wait_for_long_work() -> None:
    """Ten that have taken 10 slices each, and one that needs 6: it gets three of four slices, the others the fourth."""

    async def run() -> int:
        count, has_taken_hundred = 0, asyncio.Event()

        async def work(slices: int) -> None:
            nonlocal count
            async for _ in in_slices(busy(slices, SLICE_SECONDS)):
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
