"""An event loop that stands still until the test moves it: callbacks, timers and a clock, without sockets."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Any, cast


class ManualTimer:
    """What call_later() returns.

    Attributes:
        when: The time at which it is due, in seconds.
        cancelled: It will not run.
    """

    def __init__(self, when: float, order: int, callback: Callable[[], object]) -> None:
        self.when = when
        self.cancelled = False
        self.callback = callback
        self._order = order

    def __lt__(self, other: ManualTimer) -> bool:
        return (self.when, self._order) < (other.when, other._order)

    def cancel(self) -> None:
        """Do not run it."""
        self.cancelled = True


class ManualLoop:
    """As much of an event loop as a connection uses.

    Attributes:
        now: The clock, in seconds.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Callable[[], object]] = []
        self._timers: list[ManualTimer] = []
        self._order = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Itself, under the type that the code asks for."""
        return cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        """The clock."""
        return self.now

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Run a callback with the next run()."""
        self._soon.append(lambda: callback(*arguments))

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> ManualTimer:
        """Run a callback once the clock has moved so far."""
        self._order += 1
        timer = ManualTimer(self.now + delay, self._order, lambda: callback(*arguments))
        heapq.heappush(self._timers, timer)
        return timer

    def run(self) -> None:
        """Run all callbacks, and those that they ask for, until none is left."""
        rounds = 0
        while self._soon:
            rounds += 1
            assert rounds < 10_000, "the loop does not come to rest"
            callbacks, self._soon = self._soon, []
            for callback in callbacks:
                callback()

    def advance(self, seconds: float) -> None:
        """Move the clock, running each timer at its time and the callbacks after it."""
        end = self.now + seconds
        self.run()
        while self._timers and self._timers[0].when <= end:
            timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self.now = timer.when
                timer.callback()
                self.run()
        self.now = end

    @property
    def pending_timers(self) -> int:
        """Timers that will run."""
        return sum(not timer.cancelled for timer in self._timers)

    @property
    def is_idle(self) -> bool:
        """Whether no callback waits."""
        return not self._soon
