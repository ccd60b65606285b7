"""Clients that are connected while a page is looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel


class Client:
    """A connection of pika with one channel; a context manager that closes it."""

    def __init__(self, url: str, name: str | None = None, properties: dict[str, Any] | None = None) -> None:
        parameters = pika.URLParameters(url)
        named = {} if name is None else {"connection_name": name}
        parameters.client_properties = {**named, **(properties or {})}
        self.connection = pika.BlockingConnection(parameters)
        self.channel: BlockingChannel = self.connection.channel()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.connection.is_open:
            self.connection.close()

    def pump(self) -> None:
        """Handle what has come from the broker."""
        self.connection.process_data_events(0)


class Publishing:
    """Does something again and again in a thread, so that rates are more than 0 while a page is looked at."""

    def __init__(self, step: Callable[[], object], pause: float = 0.05) -> None:
        self._step = step
        self._pause = pause
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            self._step()
