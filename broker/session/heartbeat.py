"""Heartbeats of one connection."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from leveret.broker.session.output import Output
from leveret.protocol.constants import FRAME_END, FRAME_HEARTBEAT

log = logging.getLogger("leveret.connection")

HEARTBEAT_FRAME: Final = bytes((FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END))


class Heartbeat:
    """Sends and monitors heartbeats: checks output twice per interval and input once.

    As in RabbitMQ, a connection is dropped after two consecutive checks without input, 2 to 3 intervals after the last
    byte.

    Args:
        loop: The event loop.
        output: Output buffer; gets a heartbeat if nothing was written for half an interval.
        name: Name of the connection, for the log.

    Attributes:
        interval: Negotiated interval in seconds; 0 for no heartbeats.
        received: Set by the connection when bytes arrive.
        paused: Set while input is not read, or the client need not send heartbeats.
    """

    __slots__ = ("_checks_input", "_loop", "_misses", "_name", "_output", "_timer", "interval", "paused", "received")

    def __init__(self, loop: AbstractEventLoop, output: Output, name: str) -> None:
        self._loop = loop
        self._name = name
        self._output = output
        self._checks_input = False
        self._misses = 0
        self._timer: TimerHandle | None = None
        self.interval = 0
        self.received = self.paused = False

    def start(self, interval: int, on_missed: Callable[[], None]) -> None:
        """Start sending and checking.

        Args:
            interval: Negotiated interval in seconds, 1..65535.
            on_missed: Called once when heartbeats of the client are missed. The timer holds it, to leave no reference
                cycle behind.
        """
        self.interval = interval
        self._timer = self._loop.call_later(interval / 2, self._tick, on_missed)

    def stop(self) -> None:
        """Stop sending and checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, on_missed: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(self.interval / 2, self._tick, on_missed)
        if not self._output.wrote:
            self._output.send_heartbeat(HEARTBEAT_FRAME)
        self._output.wrote = False
        self._checks_input = not self._checks_input
        if not self._checks_input and self._misses_input():
            self.stop()
            log.error("closing AMQP connection %s: missed heartbeats from client", self._name)
            on_missed()

    def _misses_input(self) -> bool:
        """Check whether the second interval without input is over."""
        self._misses = 0 if self.received or self.paused else self._misses + 1
        self.received = False
        return self._misses == 2
