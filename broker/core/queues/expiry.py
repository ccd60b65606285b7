"""Timers of a queue: for its oldest message, and for the queue itself.

Source: https://www.rabbitmq.com/docs/ttl
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker.core.timers import Timer, Timers

#: The longest that a timer waits, in microseconds: a policy may name any number. It then looks again.
_LONGEST: Final = 86_400_000_000


class HeadTimer:
    """Calls when the message at the head of a queue expires.

    Args:
        timers: The clock.
        expire: Called at or after the time.
    """

    __slots__ = ("_at", "_expire", "_timer", "_timers")

    def __init__(self, timers: Timers, expire: Callable[[], None]) -> None:
        self._timers = timers
        self._expire = expire
        self._timer: Timer | None = None
        self._at = 0

    def arm(self, expires_at: int) -> None:
        """Call at a time, unless an earlier call is due anyway.

        Args:
            expires_at: Microseconds since 1970; 0 for never.
        """
        if not expires_at or (self._timer is not None and self._at <= expires_at):
            return
        self.cancel()
        self._at = expires_at
        self._timer = self._timers.call_later(_seconds(expires_at - self._timers.now()), self._fire)

    def end(self) -> None:
        """The queue is gone."""
        self.cancel()
        # Else the two would hold each other until the garbage collector looks.
        self._expire = _nothing

    def cancel(self) -> None:
        """Do not call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._expire()


class QueueExpiry:
    """Calls when a queue has not been used for as long as its x-expires allows.

    Consumers use it all the time; declaring it and basic.get use it for a moment.

    Args:
        timers: The clock.
        end: Called once when the lease has run out.
    """

    __slots__ = ("_end", "_held", "_milliseconds", "_since", "_timer", "_timers")

    def __init__(self, timers: Timers, end: Callable[[], object]) -> None:
        self._timers = timers
        self._end = end
        self._milliseconds: int | None = None
        self._since = timers.monotonic()
        self._held = False
        self._timer: Timer | None = None

    def set(self, milliseconds: int | None) -> None:
        """Set its length; None for ever. It starts again if that is another one."""
        if milliseconds != self._milliseconds:
            # A timer for a longer one would wake too late.
            self._stop()
            self._milliseconds = milliseconds
            self.renew()

    def hold(self, held: bool) -> None:
        """Note whether there are consumers; the last one that goes starts it again."""
        self._held = held
        self.renew()

    def renew(self) -> None:
        """The queue has been used."""
        self._since = self._timers.monotonic()
        if self._timer is None:
            self._arm()

    def cancel(self) -> None:
        """The queue is gone."""
        self._stop()
        self._milliseconds = None
        self._end = _nothing

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._milliseconds is not None and not self._held:
            left = self._since + self._milliseconds * 1000 - self._timers.monotonic()
            self._timer = self._timers.call_later(_seconds(left), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._milliseconds is None or self._held:
            return
        if self._timers.monotonic() - self._since >= self._milliseconds * 1000:
            self._end()
        else:
            self._arm()


def _nothing() -> None:
    """What is called when a queue is gone."""


def _seconds(microseconds: int) -> float:
    return min(max(0, microseconds), _LONGEST) / 1_000_000
