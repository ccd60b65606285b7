"""A client of a broker inside the test's process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pika
from pika.adapters.blocking_connection import BlockingChannel


@contextmanager
def channel_of(url: str, heartbeat: int = 60) -> Iterator[BlockingChannel]:
    """Have a channel in confirm mode."""
    with pika.BlockingConnection(pika.URLParameters(f"{url}?heartbeat={heartbeat}")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def ready(channel: BlockingChannel, queue: str) -> int:
    """Return the number of ready messages of a queue."""
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def publish_durably(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    """Publish persistent messages, and wait for their confirms."""
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
