"""Expiry timers: of the message at the head of a queue, and of an unused queue (x-expires).

Source: https://www.rabbitmq.com/docs/ttl
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.core.scheduling.timers import Timer, Timers

#: Longest delay of a timer, in microseconds; a timer that fires too early is armed again. TTLs have no upper bound.
_LONGEST: Final = 86_400_000_000


class HeadTimer:
    """Timer for the expiry of the message at the head of a queue.

    Args:
        expire: Called at or after the expiry time.
    """

    __slots__ = ("_at", "_expire", "_timer", "_timers")

    def __init__(self, timers: Timers, expire: Callable[[], None]) -> None:
        self._timers = timers
        self._expire = expire
        self._timer: Timer | None = None
        self._at = 0

    def arm(self, expires_at: int) -> None:
        """Set the timer, unless it is set to an earlier time already.

        Args:
            expires_at: Expiry time in microseconds since 1970; 0 for none.
        """
        if not expires_at or (self._timer is not None and self._at <= expires_at):
            return
        self.cancel()
        self._at = expires_at
        self._timer = self._timers.call_later(_seconds(expires_at - self._timers.now()), self._fire)

    def close(self) -> None:
        """Cancel the timer of a deleted queue."""
        self.cancel()
        # Breaks the reference cycle with the queue, so that it is freed without the garbage collector.
        self._expire = _do_nothing

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._expire()


class QueueExpiry:
    """Timer for the expiry of an unused queue (x-expires).

    A queue is in use while it has consumers; declaring it and basic.get restart the timer.

    Args:
        on_expired: Called once when the queue has expired.
    """

    __slots__ = ("_in_use", "_milliseconds", "_on_expired", "_since", "_timer", "_timers")

    def __init__(self, timers: Timers, on_expired: Callable[[], object]) -> None:
        self._timers = timers
        self._on_expired = on_expired
        self._milliseconds: int | None = None
        self._since = timers.monotonic()
        self._in_use = False
        self._timer: Timer | None = None

    def set(self, milliseconds: int | None) -> None:
        """Set x-expires in milliseconds; None disables it. A changed value restarts the timer."""
        if milliseconds != self._milliseconds:
            # The timer of a longer value would fire too late.
            self._stop()
            self._milliseconds = milliseconds
            self.renew()

    def set_in_use(self, in_use: bool) -> None:
        """Set whether the queue has consumers; removing the last one restarts the timer."""
        self._in_use = in_use
        self.renew()

    def renew(self) -> None:
        """Restart the timer: the queue has been used."""
        self._since = self._timers.monotonic()
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Cancel the timer of a deleted queue."""
        self._stop()
        self._milliseconds = None
        self._on_expired = _do_nothing

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._milliseconds is not None and not self._in_use:
            left = self._since + self._milliseconds * 1000 - self._timers.monotonic()
            self._timer = self._timers.call_later(_seconds(left), self._check)

    def _check(self) -> None:
        self._timer = None
        if self._milliseconds is None or self._in_use:
            return
        if self._timers.monotonic() - self._since >= self._milliseconds * 1000:
            self._on_expired()
        else:
            self._arm()


def _do_nothing() -> None:
    """Do nothing: the callback after the queue is deleted."""


def _seconds(microseconds: int) -> float:
    return min(max(0, microseconds), _LONGEST) / 1_000_000
