"""Streams keep messages, offsets and limits."""

from __future__ import annotations

from tests.conformance.bounded import refill
from tests.conformance.topology import numbered
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import Restarts
from tests.support.tables import Triple
from tests.support.wire import Channel

STREAM: Triple = ("x-queue-type", "S", "stream")
FIRST: Triple = ("x-stream-offset", "S", "first")
LAST: Triple = ("x-stream-offset", "S", "last")


def read(place: Restarts, stream: str, count: int, begin: Triple = FIRST) -> dict[int, bytes]:
    """Return messages by offset."""
    channel = place.channel()
    channel.qos(1000)
    channel.consume(stream, arguments=[begin])
    found: dict[int, bytes] = {}
    for delivery in channel.deliveries(count):
        assert not delivery.redelivered
        found[next(value for name, _, value in delivery.headers if name == "x-stream-offset")] = delivery.body
    return found


@row()
def messages_and_offsets_stay(place: Restarts) -> Steps:
    channel = place.channel()
    stream = place.queue(channel, STREAM, ("x-stream-max-segment-size-bytes", "l", 20_000))
    refill(channel, stream, *numbered(100))
    last = read(place, stream, 1, LAST)
    channel = yield
    assert channel.queue_declare(stream, passive=True).message_count == 100
    assert read(place, stream, 1, LAST).keys() == last.keys()
    refill(channel, stream, *numbered(200)[100:])
    assert read(place, stream, 200) == dict(enumerate(numbered(200)))
    assert read(place, stream, 1, ("x-stream-offset", "T", 5)) == {0: b"1"}


@row()
def limits_stay(place: Restarts) -> Steps:
    limits: list[Triple] = [("x-stream-max-segment-size-bytes", "l", 2000), ("x-max-length-bytes", "l", 6000)]

    def fill(channel: Channel) -> int:
        for body in numbered(50):
            refill(channel, stream, body.ljust(150))
        return next(iter(read(place, stream, 1)))

    channel = place.channel()
    stream = place.queue(channel, STREAM, *limits)
    first = fill(channel)
    assert 0 < first < 45
    channel = yield
    assert [*read(place, stream, 1)] == [first]
    assert first < fill(channel) < 95
