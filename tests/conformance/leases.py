"""Queues that expire, watched without renewing their lease."""

from __future__ import annotations

from tests.support.wire import Channel


def gone(channel: Channel, queue: str) -> bool:
    """Return whether a queue is gone; asks by publishing, which renews no lease."""
    channel.returns.clear()
    channel.publish("", queue, mandatory=True)
    channel.sync()
    return bool(channel.returns)
