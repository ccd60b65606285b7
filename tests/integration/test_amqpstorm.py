"""AMQPStorm: a blocking client with a reader thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from amqpstorm.channel import Channel
from amqpstorm.connection import Connection
from amqpstorm.exception import AMQPMessageError
from amqpstorm.message import Message

from tests.integration.fixtures import Names
from tests.integration.waiting import wait_until
from tests.support.wire import parse_url


def _connect(url: str, *, password: str | None = None) -> Connection:
    address = parse_url(url)
    return Connection(
        address.host,
        address.user,
        address.password if password is None else password,
        port=address.port,
        virtual_host=address.vhost,
    )


@pytest.fixture
def connection(url: str, name: Names) -> Iterator[Connection]:
    """An open connection; it goes before the named queues are deleted."""
    with _connect(url) as opened:
        yield opened


@pytest.fixture
def channel(connection: Connection) -> Channel:
    """An open channel of `connection`."""
    return connection.channel()


@pytest.fixture
def queue(channel: Channel) -> str:
    """A server-named queue of `connection`."""
    queue: str = channel.queue.declare(exclusive=True)["queue"]
    return queue


def _get(channel: Channel, queue: str, *, no_ack: bool = False) -> Message | None:
    message = channel.basic.get(queue, no_ack=no_ack)
    assert message is None or isinstance(message, Message)
    return message


def _drain(channel: Channel, queue: str) -> list[str]:
    bodies = []
    while (message := _get(channel, queue, no_ack=True)) is not None:
        bodies.append(str(message.body))
    return bodies


def test_headers_and_a_large_body(channel: Channel, queue: str) -> None:
    channel.queue.bind(queue, "amq.topic", queue)
    headers = {"number": 7, "text": "grün", "nested": {"list": [1, None, True]}}
    body = "grün " * 300_000
    channel.basic.publish(body, queue, "amq.topic", properties={"headers": headers, "priority": 5})
    message = _get(channel, queue)
    assert message is not None
    assert message.body == body
    assert message.properties["headers"] == headers
    assert message.priority == 5
    message.ack()
    assert channel.basic.get(queue) is None


def test_confirms_and_returns(channel: Channel, queue: str) -> None:
    channel.confirm_deliveries()
    for number in range(50):
        assert channel.basic.publish(str(number), queue, mandatory=True) is True
    with pytest.raises(AMQPMessageError, match="not delivered"):
        channel.basic.publish("come back", "nobody", mandatory=True)
    assert _drain(channel, queue) == [str(number) for number in range(50)]
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    bounded = channel.queue.declare(exclusive=True, arguments=arguments)["queue"]
    assert channel.basic.publish("refused", bounded) is False


def test_consume_ack_nack(connection: Connection, channel: Channel, queue: str) -> None:
    received: list[tuple[str, bool]] = []
    consuming = connection.channel()

    def on_message(message: Message) -> None:
        received.append((str(message.body), bool(message.redelivered)))
        if not message.redelivered and message.body == "b":
            message.nack(requeue=True)
        else:
            message.ack()

    for body in "abc":
        channel.basic.publish(body, queue)
    consuming.basic.qos(prefetch_count=1)
    consuming.basic.consume(on_message, queue)

    def enough() -> bool:
        consuming.process_data_events()
        return len(received) == 4

    wait_until(enough, "four deliveries")
    assert received == [("a", False), ("b", False), ("b", True), ("c", False)]
    consuming.close()
    assert _drain(channel, queue) == []


def test_cancelled_consumers_get_no_more(connection: Connection, channel: Channel, queue: str) -> None:
    received: list[str] = []
    tag = channel.basic.consume(lambda message: received.append(str(message.body)), queue, no_ack=True)
    channel.basic.cancel(tag)
    channel.basic.publish("a", queue)
    assert _drain(channel, queue) == ["a"]
    assert received == []
    tag = channel.basic.consume(lambda message: received.append(str(message.body)), queue)
    assert channel.consumer_tags == [tag]
    connection.channel().queue.delete(queue)
    wait_until(lambda: channel.consumer_tags == [], "cancelled by the broker")
