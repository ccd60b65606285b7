"""Closes channels with deliveries that are unacknowledged for too long.

Deliveries have no timestamps. Each check records the next delivery tag of a channel with the time (a mark). A delivery
has timed out if its tag is below a mark that is older than the timeout.

Source: https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

from leveret.broker.session.channel import Channel
from leveret.broker.session.server import Server
from leveret.protocol.faults import ChannelFault, ReplyCode
from leveret.protocol.states import ChannelState

#: Interval of the checks, as in RabbitMQ.
_CHECK_SECONDS: Final = 60.0


class ConsumerTimeout:
    """Checks the deliveries of all channels periodically.

    Args:
        server: State shared by all connections.
        timeout_ms: Delivery acknowledgement timeout, in milliseconds.
    """

    def __init__(self, server: Server, timeout_ms: int) -> None:
        self._server = server
        self._timeout_ms = timeout_ms
        self._interval = min(_CHECK_SECONDS, timeout_ms / 1000)
        self._marks: WeakKeyDictionary[Channel, deque[tuple[float, int]]] = WeakKeyDictionary()
        self._timer: TimerHandle = server.loop.call_later(self._interval, self._check)

    def stop(self) -> None:
        """Stop the checks."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._server.loop.call_later(self._interval, self._check)
        now = self._server.loop.time()
        for connection in list(self._server.sockets):
            for channel in connection.channels:
                if channel.unacked and channel.state is ChannelState.OPEN:
                    self._check_channel(channel, now)
                else:
                    self._marks.pop(channel, None)

    def _check_channel(self, channel: Channel, now: float) -> None:
        marks = self._marks.setdefault(channel, deque())
        oldest = min(channel.unacked)
        while marks and marks[0][1] <= oldest:
            marks.popleft()
        if marks and now - marks[0][0] >= self._timeout_ms / 1000:
            text = (
                f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used:"
                f" {self._timeout_ms} ms. This timeout value can be configured, see consumers doc guide to learn"
                " more"
            )
            channel.fail(ChannelFault(ReplyCode.PRECONDITION_FAILED, text, 0), 0)
            return
        marks.append((now, channel.next_tag))
