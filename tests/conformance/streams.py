"""Streams: declares them, fills them with confirms, and consumes from any place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pamqp import commands

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import new_queue
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

STREAM: Final[Triple] = ("x-queue-type", "S", "stream")
FIRST: Final[Triple] = ("x-stream-offset", "S", "first")
#: A prefetch limit that no test reaches.
MANY: Final = 1000


def new_stream(channel: Channel, unique: Unique, *arguments: Triple) -> str:
    return new_queue(channel, unique, durable=True, arguments=[STREAM, *arguments])


def where(stream: str, vhost: str) -> str:
    """Return a stream as error texts name it."""
    return f"queue '{stream}' in vhost '{vhost}'"


def fill(connect: Connect, stream: str, *bodies: bytes) -> None:
    """Publish messages one after another, each when the one before it is confirmed."""
    with connect() as connection:
        channel = connection.channel()
        channel.rpc(commands.Confirm.Select)
        for body in bodies:
            channel.publish("", stream, body)
            channel.wait_until(lambda: bool(channel.confirms), "confirm")
            assert channel.confirms.popleft().ack


def consumer(connect: Connect, stream: str, *arguments: Triple, prefetch: int = MANY) -> Channel:
    """Return a channel of a new connection that consumes a stream."""
    channel = connect().channel()
    consume(channel, stream, *arguments, prefetch=prefetch)
    return channel


def consume(channel: Channel, stream: str, *arguments: Triple, prefetch: int = MANY, tag: str = "") -> None:
    channel.qos(prefetch)
    channel.rpc(commands.Basic.Consume, queue=stream, consumer_tag=tag, arguments=list(arguments))


def offset(delivery: Delivery) -> int:
    (found,) = [header for header in delivery.headers if header[0] == "x-stream-offset"]
    assert found[1] == "l"
    assert isinstance(found[2], int)
    return found[2]


def offsets(deliveries: Sequence[Delivery]) -> list[int]:
    return [offset(delivery) for delivery in deliveries]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Return bodies that are numbers: those of the offsets, in a stream without gaps."""
    return [b"%d" % number for number in range(start, start + count)]
