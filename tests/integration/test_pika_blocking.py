"""pika's BlockingConnection: exchanges, queues, publishing, transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import (
    ChannelClosedByBroker,
    ChannelWrongStateError,
    UnroutableError,
)

from tests.integration.fixtures import Names
from tests.integration.pika_messages import drain, publish
from tests.integration.waiting import wait_until


@pytest.fixture
def channel(blocking_connection: Any) -> Any:
    """An open channel of `blocking_connection`."""
    return blocking_connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """A server-named queue of `blocking_connection`."""
    return _queue(channel)


def _queue(channel: Any) -> str:
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    return queue


# --- declaring --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_exchange_is_declared_bound_and_deleted(channel: Any, queue: str, name: Names, kind: str) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, kind, durable=True)
    channel.exchange_declare(exchange, passive=True)
    channel.queue_bind(queue, exchange, "key", arguments={"colour": "red"})
    channel.basic_publish(exchange, "key", b"m", pika.BasicProperties(headers={"colour": "red"}))
    assert drain(channel, queue) == ["m"]
    channel.queue_unbind(queue, exchange, "key", arguments={"colour": "red"})
    channel.basic_publish(exchange, "key", b"m", pika.BasicProperties(headers={"colour": "red"}))
    assert drain(channel, queue) == []
    channel.exchange_delete(exchange)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.exchange_declare(exchange, passive=True)
    assert closed.value.reply_code == 404


def test_exchange_to_exchange(channel: Any, queue: str, name: Names) -> None:
    source, target = name("source"), name("target")
    channel.exchange_declare(source, "topic")
    channel.exchange_declare(target, "fanout")
    channel.exchange_bind(target, source, "logs.*")
    channel.queue_bind(queue, target)
    channel.basic_publish(source, "logs.kernel", b"m")
    channel.basic_publish(source, "mail", b"other")
    assert drain(channel, queue) == ["m"]
    channel.exchange_unbind(target, source, "logs.*")
    channel.basic_publish(source, "logs.kernel", b"m")
    assert drain(channel, queue) == []


def test_queue_declare_answers(channel: Any, name: Names) -> None:
    queue = name("queue")
    declared = channel.queue_declare(queue, auto_delete=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (queue, 0, 0)
    publish(channel, queue, "a", "b")
    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 2, "2 ready")
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(queue, lambda *_: None)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 1, "1 ready")


def test_server_named_queues(channel: Any) -> None:
    first, second = _queue(channel), _queue(channel)
    assert first != second
    assert first.startswith("amq.gen-")


def test_purge_and_delete_count(channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b")
    assert channel.queue_purge(queue).method.message_count == 2
    publish(channel, queue, "c")
    assert channel.queue_delete(queue).method.message_count == 1
    assert channel.queue_delete(queue).method.message_count == 0


def test_different_redeclaration(channel: Any, name: Names) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, durable=True)
    assert closed.value.reply_code == 406
    assert closed.value.reply_text == (
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/':"
        " received 'true' but current is 'false'"
    )


def test_exclusive_queue(url: str, blocking_connection: Any, channel: Any, name: Names) -> None:
    queue = name("queue")
    channel.queue_declare(queue, exclusive=True)
    uses: list[Callable[[Any], Any]] = [
        lambda strange: strange.queue_declare(queue, passive=True),
        lambda strange: strange.basic_get(queue),
        lambda strange: strange.basic_consume(queue, lambda *_: None),
        lambda strange: strange.queue_delete(queue),
    ]
    with pika.BlockingConnection(pika.URLParameters(url)) as other:
        for use in uses:
            with pytest.raises(ChannelClosedByBroker) as closed:
                use(other.channel())
            assert closed.value.reply_code == 405
        blocking_connection.close()
        with pytest.raises(ChannelClosedByBroker) as closed:
            other.channel().queue_declare(queue, passive=True)
        assert closed.value.reply_code == 404


# --- publishing -------------------------------------------------------------------------------------------


def test_confirmed_publishes(channel: Any, queue: str) -> None:
    channel.confirm_delivery()
    for number in range(100):
        channel.basic_publish("", queue, str(number), pika.BasicProperties(delivery_mode=2), mandatory=True)
    assert drain(channel, queue) == [str(number) for number in range(100)]


def test_unroutable_message_is_returned(channel: Any, queue: str) -> None:
    channel.confirm_delivery()
    properties = pika.BasicProperties(message_id="42", headers={"answer": 42})
    with pytest.raises(UnroutableError) as unroutable:
        channel.basic_publish("amq.direct", "nobody", b"come back", properties, mandatory=True)
    (returned,) = unroutable.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nobody")
    assert (returned.properties.message_id, returned.properties.headers) == ("42", {"answer": 42})
    assert returned.body == b"come back"
    # The channel stays open, and a message that is not mandatory is dropped.
    channel.basic_publish("amq.direct", "nobody", b"dropped")
    channel.basic_publish("", queue, b"kept", mandatory=True)
    assert drain(channel, queue) == ["kept"]


def test_return_without_confirms(blocking_connection: Any, channel: Any) -> None:
    returned: list[tuple[int, bytes]] = []
    channel.add_on_return_callback(lambda _, method, __, body: returned.append((method.reply_code, body)))
    channel.basic_publish("", "nobody", b"come back", mandatory=True)

    def came() -> bool:
        blocking_connection.process_data_events(time_limit=0.1)
        return bool(returned)

    wait_until(came, "a return")
    assert returned == [(312, b"come back")]


def test_publish_to_missing_exchange_closes_the_channel(blocking_connection: Any, channel: Any, name: Names) -> None:
    exchange = name("exchange")
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.basic_publish(exchange, "", b"m")
    assert (closed.value.reply_code, closed.value.reply_text) == (
        404,
        f"NOT_FOUND - no exchange '{exchange}' in vhost '/'",
    )
    with pytest.raises(ChannelWrongStateError):
        channel.basic_publish("", "", b"m")
    # Its number may be used again at once; the new channel starts afresh.
    again = blocking_connection.channel(channel.channel_number)
    again.basic_publish("", _queue(again), b"m")


def test_large_message(channel: Any, queue: str) -> None:
    body = bytes(range(256)) * 8192
    channel.basic_publish("", queue, body)
    _, _, received = channel.basic_get(queue, auto_ack=True)
    assert received == body


# --- transactions -----------------------------------------------------------------------------------------


def test_transaction_of_publishes(blocking_connection: Any, channel: Any, queue: str) -> None:
    observer = blocking_connection.channel()
    channel.tx_select()
    publish(channel, queue, "a", "b")
    channel.basic_qos()
    assert drain(observer, queue) == []
    channel.tx_commit()
    assert drain(observer, queue) == ["a", "b"]
    publish(channel, queue, "c")
    channel.tx_rollback()
    channel.tx_commit()
    assert drain(observer, queue) == []


def test_transaction_of_acks(blocking_connection: Any, channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b")
    other = blocking_connection.channel()
    other.tx_select()
    for tag in (1, 2):
        other.basic_get(queue)
        other.basic_ack(tag)
        if tag == 1:
            other.tx_commit()
    other.close()
    assert drain(channel, queue) == ["b"]


def test_commit_without_select(channel: Any) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    )
