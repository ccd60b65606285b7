"""A Leveret in a thread of the test process, whose inside a test can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self, TypeVar

from leveret import LeveretThread
from leveret.broker.app import App

T = TypeVar("T")


class ThreadedBroker(LeveretThread):
    """An embedded broker; a context manager that starts and stops it."""

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def app(self) -> App:
        """The broker; to be touched in its own thread only, see `call`."""
        return self._broker.running()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in the broker's thread and return its result."""
        return self._call(lambda: function(*arguments))

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock; timers that become due fire."""
        self.clock.advance(seconds)

    def set_alarms(self, *resources: str) -> None:
        """Set the alarms of resources (`memory`, `disk`), one after the other."""
        for resource in resources:
            self.call(self.app.broker.alarms.set, resource)

    def clear_alarms(self, *resources: str) -> None:
        """Clear the alarms of resources, one after the other."""
        for resource in resources:
            self.call(self.app.broker.alarms.clear, resource)
