"""An event loop that the test advances: callbacks, timers and a clock, without sockets."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


class ManualTimer:
    """Timer handle returned by call_later()."""

    def __init__(self, when: float, order: int, callback: Callable[[], object]) -> None:
        self.when = when
        self.cancelled = False
        self.callback = callback
        self._order = order

    def __lt__(self, other: ManualTimer) -> bool:
        return (self.when, self._order) < (other.when, other._order)

    def cancel(self) -> None:
        """Cancel the timer."""
        self.cancelled = True


class ManualLoop:
    """The part of an event loop that connections use."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Callable[[], object]] = []
        self._timers: list[ManualTimer] = []
        self._order = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """This object, cast to an event loop."""
        return cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        """Return the time of the clock in seconds."""
        return self.now

    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in the next run(), as far as what it awaits is done."""
        return asyncio.Task(coroutine, loop=self.loop)

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self.loop)

    def get_debug(self) -> bool:
        """Return False; asked by tasks."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail: called for a task whose exception nobody has seen."""
        raise AssertionError(context)

    def call_soon(self, callback: Callable[..., object], *arguments: Any, context: object = None) -> None:
        """Schedule a callback for the next run()."""
        self._soon.append(lambda: callback(*arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> ManualTimer:
        """Schedule a callback after `delay` seconds of the clock."""
        self._order += 1
        timer = ManualTimer(self.now + delay, self._order, lambda: callback(*arguments))
        heapq.heappush(self._timers, timer)
        return timer

    def run(self) -> None:
        """Run all scheduled callbacks, and those that they schedule, until none is left."""
        rounds = 0
        while self._soon:
            rounds += 1
            assert rounds < 10_000, "callbacks keep scheduling callbacks"
            callbacks, self._soon = self._soon, []
            for callback in callbacks:
                callback()

    def advance(self, seconds: float) -> None:
        """Advance the clock; run each timer at its time, and callbacks after it."""
        end = self.now + seconds
        self.run()
        while self._timers and self._timers[0].when <= end:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.now = timer.when
                timer.callback()
                self.run()
        self.now = end

    def iterate(self) -> None:
        """Run the timers that are due now, and callbacks after them; timers that these set are left, however soon."""
        due = []
        while self._timers and self._timers[0].when <= self.now:
            due.append(heapq.heappop(self._timers))
        for timer in due:
            if not timer.cancelled:
                timer.callback()
        self.run()

    @property
    def pending_timers(self) -> int:
        """Number of timers that are not cancelled."""
        return sum(not timer.cancelled for timer in self._timers)

    @property
    def is_idle(self) -> bool:
        """Whether no callback is scheduled."""
        return not self._soon
