"""A broker whose clock is advanced by hours: messages, queues and consumers follow it, sockets follow real time."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.integration.pika_messages import publish
from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until

HOUR = 3600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    with ThreadedBroker(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture
def channel(broker: ThreadedBroker) -> Iterator[BlockingChannel]:
    # Silence of more than two minutes would end the connection, in real time.
    with pika.BlockingConnection(pika.URLParameters(f"{broker.url}?heartbeat=60")) as connection:
        yield connection.channel()


def ready(channel: BlockingChannel, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def test_messages_expire_and_wait_in_a_chain_of_delays(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    """The second delay begins when the first one ends, in the same advance."""
    for name, target in (("delay1", "delay2"), ("delay2", "work")):
        arguments = {"x-message-ttl": HOUR * 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_declare("work", durable=True)
    publish(channel, "delay1", "first", "second")
    assert ready(channel, "delay1") == 2
    broker.advance(HOUR - 60)
    assert [ready(channel, name) for name in ("delay1", "delay2", "work")] == [2, 0, 0]
    broker.advance(120)
    assert [ready(channel, name) for name in ("delay1", "delay2", "work")] == [0, 2, 0]
    publish(channel, "delay1", "third")
    assert ready(channel, "delay1") == 1
    broker.advance(2 * HOUR)
    wait_until(lambda: ready(channel, "work") == 3, "dead letters of both delays")
    bodies, deaths = [], []
    for method, properties, body in channel.consume("work", auto_ack=True, inactivity_timeout=30):
        assert method is not None
        bodies.append(body)
        deaths.append([entry["time"] for entry in properties.headers["x-death"]])
        if len(bodies) == 3:
            break
    channel.cancel()
    assert bodies == [b"first", b"second", b"third"]
    assert all(abs((late - early).total_seconds() - HOUR) < 60 for late, early in deaths)


def test_an_unused_queue_expires(broker: ThreadedBroker, channel: BlockingChannel) -> None:
    channel.queue_declare("unused", arguments={"x-expires": 2 * HOUR * 1000})
    broker.advance(HOUR)
    channel.queue_declare("unused", arguments={"x-expires": 2 * HOUR * 1000})
    broker.advance(1.5 * HOUR)
    assert ready(channel, "unused") == 0, "used an hour and a half before"
    broker.advance(2 * HOUR + 1)
    with pytest.raises(ChannelClosedByBroker, match="no queue 'unused'"):
        ready(channel, "unused")


def test_acknowledgement_timeout_closes_the_channel_and_not_the_connection(
    broker: ThreadedBroker, channel: BlockingChannel
) -> None:
    channel.queue_declare("held")
    publish(channel, "held", "body")
    wait_until(lambda: channel.basic_get("held")[0] is not None, "the message")
    broker.advance(HOUR)
    with pytest.raises(ChannelClosedByBroker, match="delivery acknowledgement on channel 1 timed out"):
        ready(channel, "held")
    other = channel.connection.channel()
    wait_until(lambda: ready(other, "held") == 1, "the message is back")
