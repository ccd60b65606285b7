"""Closing channels that leave a delivery unacknowledged for too long.

No delivery carries a time of its own. Each look remembers which tag comes next on a channel; a tag below the
mark of a look that lies the timeout back, and is still outstanding, is too old.

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

#: RabbitMQ looks once a minute.
_LOOK_SECONDS: Final = 60.0


class ConsumerTimeout:
    """Looks at all channels now and then.

    Args:
        server: Knows the connections.
        timeout_ms: How long a delivery may stay unacknowledged, in milliseconds.
    """

    def __init__(self, server: Server, timeout_ms: int) -> None:
        self._server = server
        self._timeout_ms = timeout_ms
        self._interval = min(_LOOK_SECONDS, timeout_ms / 1000)
        self._marks: WeakKeyDictionary[Channel, deque[tuple[float, int]]] = WeakKeyDictionary()
        self._timer: TimerHandle = server.loop.call_later(self._interval, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        self._timer = self._server.loop.call_later(self._interval, self._look)
        now = self._server.loop.time()
        for connection in list(self._server.sockets):
            for channel in connection.channels:
                if channel.unacked and channel.state is ChannelState.OPEN:
                    self._look_at(channel, now)
                else:
                    self._marks.pop(channel, None)

    def _look_at(self, channel: Channel, now: float) -> None:
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
