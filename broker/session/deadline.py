"""The deadline of a connection."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Deadline:
    """A timer of which at most one is set.

    Args:
        loop: The event loop.
    """

    __slots__ = ("_loop", "_timer")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: TimerHandle | None = None

    def set(self, seconds: float, expired: Callable[[], object]) -> None:
        """Call a function after a delay, in place of what was to be called before.

        Args:
            seconds: Delay in seconds.
            expired: The function.
        """
        self.cancel()
        self._timer = self._loop.call_later(seconds, expired)

    def cancel(self) -> None:
        """Call nothing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
