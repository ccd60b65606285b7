from __future__ import annotations

from collections.abc import Iterator

import pytest
from pamqp import commands

from leveret.broker.session.ack_timeout import ConsumerTimeout
from tests.support.memory_broker import MemoryBroker, MemoryClient, method, publish

#: The timeout under test, in seconds; RabbitMQ's own is half an hour.
TIMEOUT = 10.0


@pytest.fixture
def timeout(broker: MemoryBroker) -> Iterator[ConsumerTimeout]:
    watching = ConsumerTimeout(broker.broker.timers, broker.connections.channels, int(TIMEOUT * 1000))
    yield watching
    watching.stop()


@pytest.fixture
def client(broker: MemoryBroker, timeout: ConsumerTimeout) -> MemoryClient:
    """A client with a queue of five messages."""
    opened = broker.open(channels=2)
    opened.call(1, commands.Queue.Declare, queue="q")
    opened.send(*(publish(2, "q", bytes((number,))) for number in range(5)))
    return opened


def closed(client: MemoryClient) -> list[tuple[int, str, int, int]]:
    return [
        (came.reply_code, came.reply_text, came.class_id, came.method_id)
        for came in client.methods()
        if came.kind is commands.Channel.Close
    ]


def get(client: MemoryClient) -> None:
    client.send(method(1, commands.Basic.Get, queue="q"))
    client.only(commands.Basic.GetOk)


@pytest.mark.parametrize("how", ["get", "consume"])
def test_a_delivery_that_is_unacknowledged_for_too_long_closes_its_channel(
    broker: MemoryBroker, client: MemoryClient, how: str
) -> None:
    if how == "get":
        get(client)
    else:
        client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
    broker.loop.advance(TIMEOUT * 0.9)
    assert closed(client) == []
    broker.loop.advance(TIMEOUT * 1.2)
    text = (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 10000 ms."
        " This timeout value can be configured, see consumers doc guide to learn more"
    )
    assert closed(client) == [(406, text, 0, 0)]
    client.send(method(1, commands.Channel.CloseOk))
    queue = broker.vhost.queues["q"]
    assert (queue.store.ready_count, queue.unacked_count) == (5, 0), "the messages are back"


@pytest.mark.parametrize("delay", [0.0, 1.0, 4.0, 9.9])
def test_it_takes_one_to_two_timeouts(broker: MemoryBroker, client: MemoryClient, delay: float) -> None:
    """The interval of the checks is that of the timeout, at most one minute, so closing may take one more."""
    broker.loop.advance(delay)
    get(client)
    broker.loop.advance(TIMEOUT - 0.01)
    assert closed(client) == []
    broker.loop.advance(TIMEOUT + 0.02)
    assert len(closed(client)) == 1


def test_the_oldest_delivery_counts(broker: MemoryBroker, client: MemoryClient) -> None:
    """Acknowledging later deliveries in time does not prevent the timeout."""
    get(client)
    for tag in range(2, 5):
        broker.loop.advance(TIMEOUT * 0.3)
        get(client)
        client.send(method(1, commands.Basic.Ack, delivery_tag=tag))
    assert closed(client) == []
    broker.loop.advance(TIMEOUT * 1.15)
    assert len(closed(client)) == 1


def test_a_consumer_that_acknowledges_in_time_is_not_closed(broker: MemoryBroker, client: MemoryClient) -> None:
    """There is always an unacknowledged delivery, but never an old one."""
    client.call(1, commands.Basic.Qos, prefetch_count=1)
    client.call(1, commands.Basic.Consume, queue="q", consumer_tag="c")
    for tag in range(1, 40):
        client.send(publish(2, "q", b"more"))
        broker.loop.advance(TIMEOUT * 0.6)
        client.send(method(1, commands.Basic.Ack, delivery_tag=tag))
        assert closed(client) == []


def test_acknowledged_deliveries_do_not_count(broker: MemoryBroker, client: MemoryClient) -> None:
    get(client)
    broker.loop.advance(TIMEOUT * 0.9)
    client.send(method(1, commands.Basic.Ack, delivery_tag=1))
    broker.loop.advance(TIMEOUT * 5)
    assert closed(client) == []


def test_a_closing_channel_is_not_closed_again(broker: MemoryBroker, client: MemoryClient) -> None:
    get(client)
    client.send(method(1, commands.Basic.Ack, delivery_tag=9))
    assert len(closed(client)) == 1
    broker.loop.advance(TIMEOUT * 5)
    assert closed(client) == []


def test_a_reopened_channel_number_starts_again(broker: MemoryBroker, client: MemoryClient) -> None:
    get(client)
    broker.loop.advance(TIMEOUT * 2.1)
    assert len(closed(client)) == 1
    client.send(method(1, commands.Channel.CloseOk), method(1, commands.Channel.Open))
    client.only(commands.Channel.OpenOk)
    get(client)
    broker.loop.advance(TIMEOUT * 0.95)
    assert closed(client) == []


def test_connections_in_the_handshake_are_skipped(broker: MemoryBroker, timeout: ConsumerTimeout) -> None:
    broker.connect()
    broker.loop.advance(TIMEOUT * 0.9)
    assert len(broker.connections) == 1


def test_after_stop_no_channel_is_closed(broker: MemoryBroker, client: MemoryClient, timeout: ConsumerTimeout) -> None:
    get(client)
    timeout.stop()
    broker.loop.advance(TIMEOUT * 5)
    assert closed(client) == []
