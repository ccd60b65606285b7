"""Runs long work of coroutines in time slices, so that other clients are served in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS, Slices, TimeSlice

Item = TypeVar("Item")
Result = TypeVar("Result")

_SLICES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Slices]] = WeakKeyDictionary()


def share_slices(loop: asyncio.AbstractEventLoop, slices: Slices) -> None:
    """Have the coroutines of an event loop share their slices with the broker that runs in it."""
    _SLICES[loop] = slices


def _slices() -> Slices:
    loop = asyncio.get_running_loop()
    slices = _SLICES.get(loop)
    if slices is None:
        slices = _SLICES[loop] = Slices(loop.call_soon, _microseconds)
    return slices


async def _wait(slices: Slices, taken: int) -> None:
    """Wait for an iteration of the loop in which the caller has the slice."""
    future = asyncio.get_running_loop().create_future()

    def go_on(time_slice: TimeSlice) -> bool:
        if future.done():
            # It was cancelled.
            return False
        future.set_result(None)
        return True

    slices.wait(taken, go_on)
    await future


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Iterate over items, and serve other clients in between whenever a time slice is over.

    Args:
        items: The items. Producing and processing one is not interrupted, and should be short.
    """
    slices, taken = _slices(), 0
    if slices.is_spent:
        await _wait(slices, taken)
    own = TimeSlice(_microseconds)
    try:
        for item in items:
            yield item
            if own.is_over():
                spent = own.used()
                taken += spent
                slices.spend(spent)
                await _wait(slices, taken)
                own = TimeSlice(_microseconds)
    finally:
        slices.spend(own.used())


async def in_slices_async(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """Like in_slices(), for an asynchronous iterator that does not wait for I/O."""
    slices, taken = _slices(), 0
    own = TimeSlice(_microseconds)
    async for item in items:
        yield item
        if own.is_over():
            taken += SLICE_MICROSECONDS
            slices.spend(SLICE_MICROSECONDS)
            await _wait(slices, taken)
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
