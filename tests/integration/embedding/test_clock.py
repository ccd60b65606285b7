"""Everything that waits follows the clock, in order; sockets do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from leveret import LeveretThread
from tests.integration.embedding.clients import channel_of, publish_durably, ready

DAY = 86_400


@pytest.fixture
def channel(broker: LeveretThread) -> Iterator[BlockingChannel]:
    # On a busy machine a day takes its time, in which this thread sends nothing.
    with channel_of(broker.url, heartbeat=0) as made:
        yield made


def take(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Take all messages that are ready now: nothing is waited for."""
    return [channel.basic_get(queue, auto_ack=True)[2] for _ in range(ready(channel, queue))]


def test_delays_and_expiry_in_the_order_of_their_times(broker: LeveretThread, channel: BlockingChannel) -> None:
    """All have happened when advance() returns."""
    channel.queue_declare("end", durable=True)
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_bind("end", "later")
    for hours in (5, 1, 23):
        headers = {"x-delay": hours * 3_600_000}
        channel.basic_publish("later", "", b"delay %d" % hours, pika.BasicProperties(headers=headers, delivery_mode=2))
        name = f"ttl {hours}"
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
        channel.queue_declare(name, durable=True, arguments={**arguments, "x-message-ttl": hours * 3_600_000 + 60_000})
        publish_durably(channel, name, b"ttl %d" % hours)
    broker.clock.advance(timedelta(minutes=59))
    assert take(channel, "end") == []
    broker.clock.advance(DAY)
    assert take(channel, "end") == [b"delay 1", b"ttl 1", b"delay 5", b"ttl 5", b"delay 23", b"ttl 23"]


def test_what_a_delayed_message_starts_begins_at_its_time(broker: LeveretThread, channel: BlockingChannel) -> None:
    """Each of three queues begins its hour when the message arrives, on disk, in one advance."""
    channel.queue_declare("end", durable=True)
    for number, target in enumerate(("one", "two", "end")):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target, "x-message-ttl": 3_600_000}
        channel.queue_declare(("zero", "one", "two")[number], durable=True, arguments=arguments)
    publish_durably(channel, "zero", b"1")
    broker.clock.advance(3 * 3600 - 60)
    assert [ready(channel, name) for name in ("zero", "one", "two", "end")] == [0, 0, 1, 0]
    broker.clock.advance(120)
    assert ready(channel, "end") == 1
    _, properties, _ = channel.basic_get("end", auto_ack=True)
    last, middle, first = (entry["time"] for entry in properties.headers["x-death"])
    assert all(abs((late - early).total_seconds() - 3600) < 60 for late, early in ((last, middle), (middle, first)))


def test_retries_consumer_timeouts_and_queues_that_expire(broker: LeveretThread, channel: BlockingChannel) -> None:
    retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000, "x-delayed-retry-max": 60_000}
    channel.queue_declare("retried", durable=True, arguments=retries)
    publish_durably(channel, "retried", b"1")
    method, _, _ = channel.basic_get("retried")
    channel.basic_nack(method.delivery_tag)
    assert ready(channel, "retried") == 0
    broker.clock.advance(61)
    assert ready(channel, "retried") == 1
    channel.queue_declare("unused", arguments={"x-expires": DAY * 1000})
    channel.basic_get("retried")
    broker.clock.advance(DAY + 1)
    with pytest.raises(ChannelClosedByBroker, match="delivery acknowledgement on channel 1 timed out"):
        ready(channel, "retried")
    other = channel.connection.channel()
    broker.clock.advance(61)
    assert ready(other, "retried") == 1, "it has waited for its retry again"
    with pytest.raises(ChannelClosedByBroker, match="no queue 'unused'"):
        ready(other, "unused")


def test_streams_forget(broker: LeveretThread, channel: BlockingChannel) -> None:
    arguments = {"x-queue-type": "stream", "x-max-age": "1h", "x-stream-max-segment-size-bytes": 500}
    channel.queue_declare("stream", durable=True, arguments=arguments)
    publish_durably(channel, "stream", *[bytes(200) for _ in range(20)])
    broker.clock.advance(2 * 3600)
    publish_durably(channel, "stream", b"new")
    broker.clock.advance(10)
    assert ready(channel, "stream") < 20


def test_a_day_takes_no_time_and_costs_no_connection(broker: LeveretThread) -> None:
    """With a heartbeat; statistics of every five seconds would cost more than the day's events."""
    with channel_of(broker.url, heartbeat=10) as channel:
        for number in range(20):
            channel.queue_declare(f"q{number}", arguments={"x-message-ttl": 1000 * (number + 1)})
            channel.basic_publish("", f"q{number}", b"1")
        before, shown = time.monotonic(), broker.clock.now()
        broker.clock.advance(DAY)
        assert time.monotonic() - before < 60
        assert abs((broker.clock.now() - shown).total_seconds() - DAY) < 10
        assert [ready(channel, f"q{number}") for number in range(20)] == [0] * 20


def test_hundreds_of_timers(broker: LeveretThread, channel: BlockingChannel) -> None:
    """A minute apart, since the broker's time also passes while they are published."""
    channel.queue_declare("end", durable=True)
    for number in range(200):
        arguments = {"x-message-ttl": 60_000 * (200 - number), "x-dead-letter-exchange": "", "x-expires": DAY * 1000}
        channel.queue_declare(f"q{number}", arguments={**arguments, "x-dead-letter-routing-key": "end"})
        channel.basic_publish("", f"q{number}", b"%d" % number)
    broker.clock.advance(60 * 201)
    assert take(channel, "end") == [b"%d" % number for number in range(199, -1, -1)]
    broker.clock.advance(DAY)
    with pytest.raises(ChannelClosedByBroker, match="no queue"):
        ready(channel, "q100")


@pytest.mark.parametrize("seconds", [-1, timedelta(days=-1), float("nan")])
def test_a_clock_goes_forwards(broker: LeveretThread, seconds: float | timedelta) -> None:
    with pytest.raises(ValueError, match="a clock goes forwards"):
        broker.clock.advance(seconds)
