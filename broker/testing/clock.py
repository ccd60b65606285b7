"""The clock of an embedded broker, which a test can advance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from leveret.broker.app import App

#: Seconds for what fell due to happen, and between two looks at it once threads work on it.
_DEADLINE: Final = 30.0
_PAUSE: Final = 0.001
#: Iterations of the event loop before that pause.
_SPINS: Final = 200
#: Iterations without work after which everything has reached the sockets.
_QUIET: Final = 3


class BrokerClock:
    """The clock of a broker in the running event loop.

    Expiry of messages and queues, delays, delayed retries, consumer timeouts, the retention of streams and the times of
    messages, events and statistics follow it. Heartbeats, handshakes and deadlines of sockets follow real time.

    Args:
        running: Returns the running broker.
    """

    def __init__(self, running: Callable[[], App]) -> None:
        self._running = running
        self._advancing = asyncio.Lock()

    def now(self) -> datetime:
        """Return the broker's time, in the time zone of the system.

        Raises:
            NotRunningError: The broker is not running.
        """
        return datetime.fromtimestamp(self._running().broker.timers.now() / 1_000_000).astimezone()

    async def advance(self, seconds: float | timedelta) -> None:
        """Let time pass. What falls due happens in order, each at its time, and has reached the sockets afterwards.

        What clients do about it happens in real time, so after the whole time has passed.

        Args:
            seconds: Seconds, at least 0.
        Raises:
            NotRunningError: The broker is not running.
            TimeoutError: What fell due has not happened within 30 s of real time.
            ValueError: The seconds are negative.
        """
        length = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not length >= 0:
            raise ValueError(f"a clock goes forwards: {length} s")
        async with self._advancing:
            app = self._running()
            await app.broker.timers.advance(length, lambda: settle(app))
            await settle(app)


async def settle(app: App) -> None:
    """Wait until everything that has begun is done, and its output has been given to the sockets.

    A disk that refuses writes is not waited for.

    Raises:
        TimeoutError: That takes longer than 30 s.
    """
    loop = asyncio.get_running_loop()
    deadline, spins, quiet = loop.time() + _DEADLINE, 0, 0
    while quiet < _QUIET:
        await asyncio.sleep(0 if spins < _SPINS else _PAUSE)
        spins += 1
        quiet = quiet + 1 if app.is_settled else 0
        if loop.time() > deadline:
            raise TimeoutError(f"the broker is still busy after {_DEADLINE:.0f} s")
