"""Runs long work on the event loop in time slices, so that other clients are served in between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from leveret.broker.core.scheduling.time_slice import SLICE_MICROSECONDS, TimeSlice

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Seconds that all long work together takes per iteration of the event loop, if each step is short.
SLICE_SECONDS: Final = SLICE_MICROSECONDS / 1_000_000


class _SliceScheduler:
    """Shares one time slice per iteration of the event loop between all long work.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent = 0.0
        self._scheduled = False

    def is_spent(self) -> bool:
        """Check whether the time slice of this iteration is used up."""
        return self._spent >= SLICE_SECONDS or bool(self._waiting)

    def spend(self, seconds: float) -> None:
        """Record time used by long work."""
        self._spent += seconds
        self._schedule()

    async def wait(self) -> None:
        """Wait for an iteration of the loop that is reserved for the caller."""
        future = self._loop.create_future()
        self._waiting.append(future)
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._scheduled, self._spent = False, 0.0
        while self._waiting:
            future = self._waiting.popleft()
            # Cancelled waiters are skipped.
            if not future.done():
                future.set_result(None)
                break
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
    scheduler = _scheduler()
    if scheduler.is_spent():
        await scheduler.wait()
    started, own = time.perf_counter(), TimeSlice(_microseconds)
    try:
        for item in items:
            yield item
            if own.is_over():
                scheduler.spend(time.perf_counter() - started)
                await scheduler.wait()
                started, own = time.perf_counter(), TimeSlice(_microseconds)
    finally:
        scheduler.spend(time.perf_counter() - started)


async def in_slices_async(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """Like in_slices(), for an asynchronous iterator that does not wait for I/O."""
    scheduler = _scheduler()
    own = TimeSlice(_microseconds)
    async for item in items:
        yield item
        if own.is_over():
            scheduler.spend(SLICE_SECONDS)
            await scheduler.wait()
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
    """Iterates over a generator and keeps its return value.

    Args:
        steps: The generator.
    """

    value: Result

    def __init__(self, steps: Generator[object, None, Result]) -> None:
        self._steps = steps

    def __iter__(self) -> Generator[object, None, None]:
        self.value = yield from self._steps
