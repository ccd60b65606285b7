"""Runs long work on the event loop in time slices, so that other clients are served in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable
from operator import attrgetter
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS, TimeSlice

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds that all long work together takes per iteration of the event loop, if each step is short.
SLICE_SECONDS: Final = SLICE_MICROSECONDS / 1_000_000
_SLICES_PER_OLDEST: Final = 4
_taken: Final = attrgetter("taken")


class _Waiter(NamedTuple):
    """Work that waits for a slice, and the seconds that it has taken so far."""

    taken: float
    future: asyncio.Future[None]


class _SliceScheduler:
    """Shares one time slice per iteration of the event loop between all long work.

    What has taken the least time is next, so that what needs a few slices does not wait for what needs hundreds. Every
    fourth slice goes to what has waited longest.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: In order of arrival.
        self._waiting: list[_Waiter] = []
        self._granted = 0
        self._spent = 0.0
        self._scheduled = False

    def is_spent(self) -> bool:
        """Check whether the time slice of this iteration is used up."""
        return self._spent >= SLICE_SECONDS or bool(self._waiting)

    def spend(self, seconds: float) -> None:
        """Record time used by long work."""
        self._spent += seconds
        self._schedule()

    async def wait(self, taken: float) -> None:
        """Wait for an iteration of the loop that is reserved for the caller.

        Args:
            taken: Seconds that the work has taken so far.
        """
        future = self._loop.create_future()
        self._waiting.append(_Waiter(taken, future))
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._scheduled, self._spent = False, 0.0
        # Without those that were cancelled.
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        if self._waiting:
            self._granted += 1
            is_for_oldest = self._granted % _SLICES_PER_OLDEST == 0
            chosen = self._waiting[0] if is_for_oldest else min(self._waiting, key=_taken)
            self._waiting.remove(chosen)
            chosen.future.set_result(None)
        if self._waiting:
            self._schedule()


_SCHEDULERS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _SliceScheduler]] = WeakKeyDictionary()


def _scheduler() -> _SliceScheduler:
    loop = asyncio.get_running_loop()
    scheduler = _SCHEDULERS.get(loop)
    if scheduler is None:
        scheduler = _SCHEDULERS[loop] = _SliceScheduler(loop)
    return scheduler


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Iterate over items, and serve other clients in between whenever a time slice is over.

    Args:
        items: The items. Producing and processing one is not interrupted, and should be short.
    """
    scheduler, taken = _scheduler(), 0.0
    if scheduler.is_spent():
        await scheduler.wait(taken)
    started, own = time.perf_counter(), TimeSlice(_microseconds)
    try:
        for item in items:
            yield item
            if own.is_over():
                spent = time.perf_counter() - started
                taken += spent
                scheduler.spend(spent)
                await scheduler.wait(taken)
                started, own = time.perf_counter(), TimeSlice(_microseconds)
    finally:
        scheduler.spend(time.perf_counter() - started)


async def in_slices_async(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """Like in_slices(), for an asynchronous iterator that does not wait for I/O."""
    scheduler, taken = _scheduler(), 0.0
    own = TimeSlice(_microseconds)
    async for item in items:
        yield item
        if own.is_over():
            taken += SLICE_SECONDS
            scheduler.spend(SLICE_SECONDS)
            await scheduler.wait(taken)
            own = TimeSlice(_microseconds)


async def run_in_slices(steps: Iterable[object]) -> None:
    """Run all steps, and serve other clients in between whenever a time slice is over."""
    async for _ in in_slices(steps):
        pass


async def result_in_slices(steps: Generator[object, None, Result]) -> Result:
    """Like run_in_slices(); return the generator's return value."""
    returned = _Returned(steps)
    await run_in_slices(returned)
    return returned.value


class _Returned(Iterable[object], Generic[Result]):
    """Iterates over a generator and keeps its return value."""

    value: Result

    def __init__(self, steps: Generator[object, None, Result]) -> None:
        self._steps = steps

    def __iter__(self) -> Generator[object, None, None]:
        self.value = yield from self._steps
