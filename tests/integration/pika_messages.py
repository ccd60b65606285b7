"""Messages by way of a pika.BlockingChannel."""

from __future__ import annotations

from typing import Any


def publish(channel: Any, queue: str, *bodies: str) -> None:
    """Publish these to the queue, through the default exchange."""
    for body in bodies:
        channel.basic_publish("", queue, body)


def drain(channel: Any, queue: str) -> list[str]:
    """Take all that waits in the queue; what the same channel has published before is there by then."""
    bodies = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        bodies.append(body.decode())
    return bodies
