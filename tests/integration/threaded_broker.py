"""A Leveret in a thread of the test process, whose inside a test can reach."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from leveret.broker.app import App
from leveret.broker.config.options import Settings

_DEADLINE = 180.0
T = TypeVar("T")


class ThreadedBroker:
    """A started broker with a uvloop of its own; a context manager that stops it.

    Args:
        data_dir: folder for what is durable.
        options: further settings by name; the ports are free ones.

    Attributes:
        app: the broker; to be touched in its own thread only, see `call`.
        url: AMQP URL of the default user and vhost.
        http_url: URL of the management API for the default user.
    """

    def __init__(self, data_dir: Path, **options: Any) -> None:
        self._settings = Settings(
            host=("127.0.0.1",), port=0, management_port=0, prometheus_port=0, data_dir=data_dir, **options
        )
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self.url = self.http_url = ""

    def __enter__(self) -> ThreadedBroker:
        self._thread.start()
        assert self._started.wait(_DEADLINE), "the broker did not start"
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the broker, if it runs."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_DEADLINE)
        assert not self._thread.is_alive(), "the broker did not stop"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self.app = App(self._settings)
        await self.app.start()
        [(host, port)] = self.app.addresses["amqp"]
        self.url = f"amqp://guest:guest@{host}:{port}/%2F"
        [(host, port)] = self.app.addresses["management"]
        self.http_url = f"http://guest:guest@{host}:{port}"
        self._started.set()
        await self._stopping.wait()
        await self.app.stop()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in the broker's thread and return its result."""

        async def called() -> T:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(_DEADLINE)

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock; timers that become due fire."""
        advancing = self.app.broker.timers.advance(seconds)
        asyncio.run_coroutine_threadsafe(advancing, self._loop).result(_DEADLINE)

    def set_alarms(self, *resources: str) -> None:
        """Set the alarms of resources (`memory`, `disk`), one after the other."""
        for resource in resources:
            self.call(self.app.broker.alarms.set, resource)

    def clear_alarms(self, *resources: str) -> None:
        """Clear the alarms of resources, one after the other."""
        for resource in resources:
            self.call(self.app.broker.alarms.clear, resource)
