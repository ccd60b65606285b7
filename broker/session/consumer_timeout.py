"""Closes channels with deliveries that are unacknowledged for too long, unless the consumer has a timeout of its own.

Source: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
"""

from __future__ import annotations

from functools import partial
from typing import Final

from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.session.ack_deadline import timeout_fault
from leveret.broker.session.connection import Connection, OpenConnections
from leveret.protocol.states import ChannelState
from leveret.storage.callbacks import call_each

#: Interval of the checks, as in RabbitMQ.
_CHECK_SECONDS: Final = 60.0


class ConsumerTimeout:
    """Checks the deliveries of all channels periodically.

    Args:
        timers: The broker's clock and timers.
        connections: The open connections.
        timeout_ms: Delivery acknowledgement timeout, in milliseconds.
    """

    def __init__(self, timers: Timers, connections: OpenConnections, timeout_ms: int) -> None:
        self._timers = timers
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._interval = min(_CHECK_SECONDS, timeout_ms / 1000)
        self._timer: Timer = timers.call_later(self._interval, self._check)

    def stop(self) -> None:
        """Stop the checks."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._timers.call_later(self._interval, self._check)
        checks = [partial(self._check_connection, connection) for connection in self._connections]
        call_each(checks, "for the acknowledgement timeout")

    def _check_connection(self, connection: Connection) -> None:
        now = self._timers.monotonic() / 1_000_000
        for channel in connection.channels if connection.is_open else ():
            if channel.state is ChannelState.OPEN and channel.unacked.is_overdue(now, self._timeout_ms / 1000):
                channel.fail(timeout_fault(channel.number, self._timeout_ms), 0)
