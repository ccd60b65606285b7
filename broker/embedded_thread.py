"""A broker in a thread of another Python program."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, TypeVar

import uvloop

from leveret.broker.app import StartError
from leveret.broker.config.config_errors import DefinitionsError
from leveret.broker.embedded import POLL_SECONDS, Definitions, Leveret, Options, not_in_time
from leveret.broker.testing.environment import NotRunningError
from leveret.broker.testing.messages import PublishedMessage, QueuedMessage, Snapshot

T = TypeVar("T")

#: Seconds that starting and stopping in a thread may take, and other calls.
_DEADLINE: Final = 30.0
_CALL_DEADLINE: Final = 300.0


class LeveretThread:
    """A broker in a separate thread: a context manager. For arguments and attributes see Leveret.

    Its methods may be called in any other thread.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        options: Options | None = None,
        definitions: Definitions | None = None,
    ) -> None:
        self._broker = Leveret(data_dir, options, definitions)
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.clock = ThreadClock(self._broker, self._wait_for)
        self.faults = self._broker.faults.for_thread(self._call)

    @property
    def url(self) -> str:
        """AMQP URL of the default user and virtual host."""
        return self._broker.url

    @property
    def http_url(self) -> str:
        """URL of the HTTP API, with the default user."""
        return self._broker.http_url

    @property
    def data_dir(self) -> Path:
        """The data directory; that of a temporary broker changes with a reset."""
        return self._broker.data_dir

    # -- start and end ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it; after kill() on the same data, with the same URLs.

        Raises:
            StartError: It cannot start; the text says why.
            TimeoutError: It did not start within 30 s.
        """
        if self._thread is not None and self._thread.is_alive():
            self._wait_for(self._broker.start)
            return
        self._started.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="leveret", daemon=True)
        self._thread.start()
        # Removes the temporary data directory if the program ends without calling stop().
        atexit.register(self.stop)
        if not self._started.wait(_DEADLINE):
            raise TimeoutError(f"the broker did not start within {_DEADLINE:.0f} s")
        if self._failure is not None:
            raise self._failure
        if self._broker.url == "":
            raise StartError("the broker did not start")

    def stop(self) -> None:
        """Stop the broker, and wait until it has stopped. Does nothing if it is not running."""
        atexit.unregister(self.stop)
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_DEADLINE)

    def reset(self, options: Options | None = None, definitions: Definitions | None = None) -> None:
        """Begin anew with the same URLs; see Leveret.reset()."""
        self._wait_for(lambda: self._broker.reset(options, definitions))

    def kill(self) -> None:
        """End as ``kill -9`` would; see Leveret.kill()."""
        self._wait_for(self._broker.kill)

    def restart(self) -> None:
        """Kill it, and start it again on the same data; see Leveret.restart()."""
        self._wait_for(self._broker.restart)

    def snapshot(self) -> Snapshot:
        """Return the present state; see Leveret.snapshot()."""
        return self._wait_for(self._broker.snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; see Leveret.restore()."""
        self._wait_for(lambda: self._broker.restore(snapshot))

    def __enter__(self) -> LeveretThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- looking ------------------------------------------------------------------------------------------

    def messages(self, queue: str, vhost: str | None = None) -> list[QueuedMessage]:
        """Return the messages of a queue without taking them; see Leveret.messages()."""
        return self._call(lambda: self._broker.messages(queue, vhost))

    def published(self, exchange: str | None = None, vhost: str | None = None) -> list[PublishedMessage]:
        """Return what clients have published over AMQP since the start or the last reset; see Leveret.published()."""
        return self._call(lambda: self._broker.published(exchange, vhost))

    def wait_until(self, condition: Callable[[], T], timeout: float = 10.0) -> T:
        """Wait until a condition holds, and return its value; it is asked in this thread. See Leveret.wait_until()."""
        deadline = monotonic() + timeout
        while not (value := condition()):
            if monotonic() > deadline:
                raise not_in_time(timeout, value)
            sleep(POLL_SECONDS)
        return value

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._broker.start()
        except (StartError, DefinitionsError) as failure:
            self._failure = failure
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self._broker.stop()

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the broker, and return its result."""

        async def call() -> T:
            return function()

        return self._wait_for(call)

    def _wait_for(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine of the broker in its thread, and return its result.

        Raises:
            NotRunningError: The thread has not been started, or has ended.
            RuntimeError: It is called in the thread of the broker, which would wait for itself.
        """
        loop = self._loop
        if loop is None or self._thread is None or not self._thread.is_alive():
            raise NotRunningError
        if threading.current_thread() is self._thread:
            raise RuntimeError("the broker's own thread cannot wait for it")

        async def run() -> T:
            return await make()

        return asyncio.run_coroutine_threadsafe(run(), loop).result(_CALL_DEADLINE)


class ThreadClock:
    """The clock of a broker in a thread; see BrokerClock.

    Args:
        wait_for: Runs a coroutine in its thread.
    """

    def __init__(self, broker: Leveret, wait_for: Callable[[Callable[[], Awaitable[Any]]], Any]) -> None:
        self._broker = broker
        self._wait_for = wait_for

    def now(self) -> datetime:
        """Return the broker's time; see BrokerClock.now()."""
        return self._broker.clock.now()

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass; see BrokerClock.advance()."""
        self._wait_for(lambda: self._broker.clock.advance(seconds))
