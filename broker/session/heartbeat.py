"""Heartbeats of one connection."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from leveret.broker.session.output import Output
from leveret.protocol.constants import FRAME_END, FRAME_HEARTBEAT

HEARTBEAT_FRAME: Final = bytes((FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END))


class Heartbeat:
    """Sends and monitors heartbeats: checks output twice per interval and input once.

    As in RabbitMQ, a connection is dropped after two consecutive checks without input, 2 to 3 intervals after the last
    byte.

    Args:
        loop: The event loop.
        interval: Negotiated interval in seconds, 1..65535.
        output: Output buffer; gets a heartbeat if nothing was written for half an interval.
        on_missed: Called once when heartbeats of the client are missed.

    Attributes:
        interval: Negotiated interval in seconds.
        received: Set by the connection when bytes arrive.
        paused: Set by the connection while reading is paused.
    """

    __slots__ = (
        "_checks_input",
        "_half",
        "_loop",
        "_misses",
        "_on_missed",
        "_output",
        "_timer",
        "interval",
        "paused",
        "received",
    )

    def __init__(self, loop: AbstractEventLoop, interval: int, output: Output, on_missed: Callable[[], None]) -> None:
        self._loop = loop
        self.interval = interval
        self._half = interval / 2
        self._output = output
        self._on_missed = on_missed
        self._checks_input = False
        self._misses = 0
        self.received = self.paused = False
        self._timer: TimerHandle = loop.call_later(self._half, self._tick)

    def stop(self) -> None:
        """Stop sending and checking."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._half, self._tick)
        if not self._output.wrote:
            self._output.send_heartbeat(HEARTBEAT_FRAME)
        self._output.wrote = False
        self._checks_input = not self._checks_input
        if not self._checks_input:
            self._check_input()

    def _check_input(self) -> None:
        if self.received or self.paused:
            self._misses = 0
        else:
            self._misses += 1
        self.received = False
        if self._misses == 2:
            self.stop()
            self._on_missed()
