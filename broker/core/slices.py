"""Slices of time: long work on the event loop, and everybody else's turn in between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from leveret.broker.core.time_slice import SLICE_MICROSECONDS, TimeSlice

Item = TypeVar("Item")
Result = TypeVar("Result")

#: What all long work together takes between two looks at the sockets, if each step of it is short.
SLICE_SECONDS: Final = SLICE_MICROSECONDS / 1_000_000


class _Turns:
    """Long work of one event loop: it takes turns, so that many long requests hold up others no more than one.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent = 0.0
        self._scheduled = False

    def is_spent(self) -> bool:
        """Whether this round of the loop has no time left for long work."""
        return self._spent >= SLICE_SECONDS or bool(self._waiting)

    def spend(self, seconds: float) -> None:
        """Note that long work has run."""
        self._spent += seconds
        self._schedule()

    async def wait(self) -> None:
        """Wait for a round of the loop in which nobody else works."""
        future = self._loop.create_future()
        self._waiting.append(future)
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next_round)

    def _next_round(self) -> None:
        self._scheduled, self._spent = False, 0.0
        while self._waiting:
            future = self._waiting.popleft()
            # The others have been given up.
            if not future.done():
                future.set_result(None)
                break
        if self._waiting:
            self._schedule()


_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


def _turns() -> _Turns:
    loop = asyncio.get_running_loop()
    turns = _TURNS.get(loop)
    if turns is None:
        turns = _TURNS[loop] = _Turns(loop)
    return turns


def _microseconds() -> int:
    return time.perf_counter_ns() // 1000


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The same items; everybody else has a turn in between whenever a slice of time is over.

    Args:
        items: Getting one, and what is done with it, should be short: that is not interrupted.
    """
    turns = _turns()
    if turns.is_spent():
        await turns.wait()
    started, own = time.perf_counter(), TimeSlice(_microseconds)
    try:
        for item in items:
            yield item
            if own.is_over():
                turns.spend(time.perf_counter() - started)
                await turns.wait()
                started, own = time.perf_counter(), TimeSlice(_microseconds)
    finally:
        turns.spend(time.perf_counter() - started)


async def in_time(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """Like in_slices(), for what comes asynchronously but need not wait for anything."""
    turns = _turns()
    own = TimeSlice(_microseconds)
    async for item in items:
        yield item
        if own.is_over():
            turns.spend(SLICE_SECONDS)
            await turns.wait()
            own = TimeSlice(_microseconds)


async def take_slowly(steps: Iterable[object]) -> None:
    """Take all steps of something; everybody else has a turn in between whenever a slice of time is over."""
    async for _ in in_slices(steps):
        pass


async def result_of(steps: Generator[object, None, Result]) -> Result:
    """Take all steps of something like take_slowly(), and return what it returns."""
    returned = _Returned(steps)
    await take_slowly(returned)
    return returned.value


class _Returned(Iterable[object], Generic[Result]):
    """Steps, and what they return in the end.

    Args:
        steps: The steps.
    """

    value: Result

    def __init__(self, steps: Generator[object, None, Result]) -> None:
        self._steps = steps

    def __iter__(self) -> Generator[object, None, None]:
        self.value = yield from self._steps
