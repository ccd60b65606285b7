"""Has consumers get again what they have not acknowledged."""

from __future__ import annotations

from typing import cast

from leveret.broker.app import App
from leveret.broker.core.queues.holders import Consumer
from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.channel import Channel
from leveret.broker.session.connection import Connection
from leveret.broker.testing.lookup import find_queue


def redeliver(app: App, name: str, vhost: str | None) -> int:
    """Return the unacked messages of a queue to it, and ignore their acknowledgements from now on.

    Args:
        app: The broker.
        name: Name of the queue.
        vhost: Name of its virtual host; None for the default one.
    Returns:
        The number of messages.
    Raises:
        LookupError: There is no such queue.
        ValueError: It is a stream.
    """
    queue = find_queue(app, name, vhost)
    if queue.traits.keeps_messages:
        raise ValueError(f"'{name}' is a stream: its messages are not requeued")
    connections = [cast("Connection", connection) for connection in app.broker.connections]
    return sum(_return(channel, queue) for connection in connections for channel in connection.channels)


def _return(channel: Channel, queue: Queue) -> int:
    """Return what a channel holds of a queue; return the number of messages."""
    unacked = channel.unacked
    count = 0
    for holder in {holder: None for holder, _ in unacked.held.values() if holder.queue is queue}:
        entries = unacked.take_expired(holder)
        count += len(entries)
        queue.release(holder, entries, "abandoned")
        if isinstance(holder, Consumer):
            channel.shared_prefetch.release(len(entries))
            queue.unblock(holder)
        queue.requeue(entries, abandoned=True)
    return count
