"""A broker in a thread of another Python program, and brokers that tests of one process take in turn."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, TypeVar

import uvloop

from leveret.broker.embedded import POLL_SECONDS, Definitions, Leveret, Options, not_in_time
from leveret.broker.testing.environment import NotRunningError
from leveret.broker.testing.messages import PublishedMessage, QueuedMessage, Snapshot

T = TypeVar("T")

#: Seconds that starting and stopping in a thread may take, and other calls.
_DEADLINE: Final = 30.0
_CALL_DEADLINE: Final = 300.0


class LoopThread:
    """An event loop in a thread of its own, for what other threads ask of it.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine in it, and return its result.

        Raises:
            TimeoutError: It has no result in time; it goes on.
            RuntimeError: It is called in the thread itself, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("the broker's own thread cannot wait for it")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def end(self, seconds: float) -> None:
        """Cancel what goes on in it, and wait for its end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)

    def _run(self) -> None:
        with self._runner:
            self._loop.run_forever()


def wait_until(condition: Callable[[], T], timeout: float) -> T:
    """Wait until a condition holds, and return its value; see Leveret.wait_until()."""
    deadline = monotonic() + timeout
    while not (value := condition()):
        if monotonic() > deadline:
            raise not_in_time(timeout, value)
        sleep(POLL_SECONDS)
    return value


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
        self._thread: LoopThread | None = None
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
        if self._thread is not None and self._thread.is_running:
            self._wait_for(self._broker.start())
            return
        self._thread = LoopThread("leveret")
        self._thread.start()
        # Removes the temporary data directory if the program ends without calling stop().
        atexit.register(self.stop)
        try:
            self._thread.run(self._broker.start(), _DEADLINE)
        except TimeoutError:
            raise TimeoutError(f"the broker did not start within {_DEADLINE:.0f} s") from None
        except BaseException:
            self._thread.end(_DEADLINE)
            raise

    def stop(self) -> None:
        """Stop the broker, and wait until it has stopped. Does nothing if it is not running."""
        atexit.unregister(self.stop)
        if self._thread is None or not self._thread.is_running:
            return
        try:
            with suppress(TimeoutError):
                self._thread.run(self._broker.stop(), _DEADLINE)
        finally:
            self._thread.end(_DEADLINE)

    def reset(self, options: Options | None = None, definitions: Definitions | None = None) -> None:
        """Begin anew with the same URLs; see Leveret.reset()."""
        self._wait_for(self._broker.reset(options, definitions))

    def kill(self) -> None:
        """End as ``kill -9`` would; see Leveret.kill()."""
        self._wait_for(self._broker.kill())

    def restart(self) -> None:
        """Kill it, and start it again on the same data; see Leveret.restart()."""
        self._wait_for(self._broker.restart())

    def snapshot(self) -> Snapshot:
        """Return the present state; see Leveret.snapshot()."""
        return self._wait_for(self._broker.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot; see Leveret.restore()."""
        self._wait_for(self._broker.restore(snapshot))

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
        return wait_until(condition, timeout)

    # -- the thread ---------------------------------------------------------------------------------------

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the broker, and return its result."""

        async def call() -> T:
            return function()

        return self._wait_for(call())

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the broker in its thread, and return its result.

        Raises:
            NotRunningError: The thread has not been started, or has ended.
            RuntimeError: It is called in the thread of the broker.
        """
        if self._thread is None or not self._thread.is_running:
            work.close()
            raise NotRunningError
        return self._thread.run(work, _CALL_DEADLINE)


class ThreadClock:
    """The clock of a broker in a thread; see BrokerClock.

    Args:
        wait_for: Runs a coroutine in its thread.
    """

    def __init__(self, broker: Leveret, wait_for: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._broker = broker
        self._wait_for = wait_for

    def now(self) -> datetime:
        """Return the broker's time; see BrokerClock.now()."""
        return self._broker.clock.now()

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass; see BrokerClock.advance()."""
        self._wait_for(self._broker.clock.advance(seconds))


# -- brokers that tests take in turn --------------------------------------------------------------------------

#: Brokers that nobody uses; the one used last is taken first, so that tests see the same URL again and again.
_IDLE: Final[list[LeveretThread]] = []


@contextmanager
def clean_broker(options: Options | None = None, definitions: Definitions | None = None) -> Iterator[LeveretThread]:
    """Have a broker without connections and data: one that runs already, or a new one. A context manager.

    It stops with the process, or when stop_clean_brokers() is called.

    Args:
        options: Options by name, for as long as the broker is had.
        definitions: What exists at first; see Leveret.
    Raises:
        ConfigError: An option does not exist, or its value is invalid.
        DefinitionsError: A definition is invalid.
        StartError: It cannot start; the text says why.
    """
    broker = _IDLE.pop() if _IDLE else LeveretThread()
    try:
        try:
            broker.reset(options, definitions)
        except NotRunningError:
            # It is new, or the last test has stopped it.
            broker.start()
            broker.reset(options, definitions)
        yield broker
    finally:
        _IDLE.append(broker)


def stop_clean_brokers() -> None:
    """Stop the brokers that nobody uses."""
    while _IDLE:
        _IDLE.pop().stop()
