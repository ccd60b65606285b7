"""Heartbeats of one connection."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from leveret.broker.session.output import Output
from leveret.protocol.constants import FRAME_END, FRAME_HEARTBEAT

HEARTBEAT_FRAME: Final = bytes((FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END))


class Heartbeat:
    """Looks twice per interval whether anything was sent, once whether anything came.

    RabbitMQ drops a peer at the second look in a row that finds nothing new, 2 to 3 intervals after the last
    byte.

    Args:
        loop: Runs the timer.
        interval: Negotiated interval in seconds, 1..65535.
        output: Where a heartbeat is sent when nothing was written for half an interval.
        dead: Called once when the peer is taken for dead.

    Attributes:
        interval: As negotiated, in seconds.
        received: Set by the owner when bytes come.
        paused: Set by the owner while it does not read.
    """

    __slots__ = ("_dead", "_half", "_look", "_loop", "_misses", "_output", "_timer", "interval", "paused", "received")

    def __init__(self, loop: AbstractEventLoop, interval: int, output: Output, dead: Callable[[], None]) -> None:
        self._loop = loop
        self.interval = interval
        self._half = interval / 2
        self._output = output
        self._dead = dead
        self._look = False
        self._misses = 0
        self.received = self.paused = False
        self._timer: TimerHandle = loop.call_later(self._half, self._tick)

    def stop(self) -> None:
        """Send and look no more."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._half, self._tick)
        if not self._output.wrote:
            self._output.send_heartbeat(HEARTBEAT_FRAME)
        self._output.wrote = False
        self._look = not self._look
        if not self._look:
            self._check()

    def _check(self) -> None:
        if self.received or self.paused:
            self._misses = 0
        else:
            self._misses += 1
        self.received = False
        if self._misses == 2:
            self.stop()
            self._dead()
