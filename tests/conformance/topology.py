"""Declares queues and exchanges with new names, fills and empties them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance.fixtures import Connect, Unique
from tests.support.tables import Triple
from tests.support.wire import Channel, ChannelClosed, Delivery


def new_queue(channel: Channel, unique: Unique, *bodies: bytes, hint: str = "q", **options: Any) -> str:
    """Declare a queue with a new name and publish messages to it."""
    queue = unique(hint)
    channel.queue_declare(queue, **options)
    fill(channel, queue, *bodies)
    return queue


def new_exchange(channel: Channel, unique: Unique, type: str = "direct", *, hint: str = "x", **options: Any) -> str:
    exchange = unique(hint)
    channel.exchange_declare(exchange, type, **options)
    return exchange


def bound_queue(channel: Channel, unique: Unique, exchange: str, *keys: str, arguments: Sequence[Triple] = ()) -> str:
    """Declare a queue with a new name and bind it with each of the keys, all with the same arguments."""
    queue = new_queue(channel, unique)
    for key in keys:
        channel.queue_bind(queue, exchange, key, arguments=list(arguments))
    return queue


def fill(channel: Channel, queue: str, *bodies: bytes) -> None:
    """Publish to a queue through the default exchange and wait until all messages are enqueued."""
    for body in bodies:
        channel.publish("", queue, body)
    if bodies:
        channel.sync(queue)


def drain(channel: Channel, queue: str) -> list[bytes]:
    """Get all ready messages of a queue without acknowledgement; return their bodies in order."""
    found: list[bytes] = []
    while (delivery := channel.get(queue, no_ack=True)) is not None:
        found.append(delivery.body)
    return found


def got(channel: Channel, queue: str, *, no_ack: bool = False) -> Delivery:
    """Get a message with basic.get; assert that the queue is not empty."""
    delivery = channel.get(queue, no_ack=no_ack)
    assert delivery is not None, f"queue {queue} is empty"
    return delivery


def counts(channel: Channel, queue: str) -> tuple[int, int]:
    """Return the numbers of ready messages and of consumers of a queue."""
    declared = channel.queue_declare(queue, passive=True)
    return declared.message_count, declared.consumer_count


def exists(connect: Connect, queue: str) -> bool:
    """Return whether a queue exists and is not exclusive to another connection."""
    channel = connect().channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosed as closed:
        if closed.code != 404:
            raise
        return False
    return True


def bodies(deliveries: Iterable[Delivery]) -> list[bytes]:
    return [delivery.body for delivery in deliveries]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(1, count + 1)]
