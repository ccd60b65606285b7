"""pika's BlockingConnection: queues with limits, dead letters, priorities."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from tests.integration.fixtures import Names
from tests.integration.pika_messages import drain, publish
from tests.integration.waiting import wait_until


@pytest.fixture
def channel(blocking_connection: Any) -> Any:
    """An open channel of `blocking_connection`."""
    return blocking_connection.channel()


@pytest.fixture
def confirming(blocking_connection: Any) -> Any:
    """Another channel of `blocking_connection`, in confirm mode: a publish returns when it is confirmed."""
    opened = blocking_connection.channel()
    opened.confirm_delivery()
    return opened


def _declare(channel: Any, queue: str, **arguments: object) -> str:
    """Declare a queue with arguments, underscores for dashes; return its name."""
    channel.queue_declare(queue, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    return queue


def _ready(channel: Any, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def _arrival(channel: Any, queue: str) -> tuple[Any, bytes]:
    """Wait for a message and take it; return its properties and body."""
    wait_until(lambda: _ready(channel, queue) > 0, f"a message in {queue}")
    _, properties, body = channel.basic_get(queue, auto_ack=True)
    return properties, body


def test_the_oldest_is_dropped(channel: Any, confirming: Any, name: Names) -> None:
    queue = _declare(channel, name("bounded"), x_max_length=3)
    publish(confirming, queue, "1", "2", "3", "4", "5")
    assert drain(channel, queue) == ["3", "4", "5"]


def test_rejected_publish_raises(channel: Any, confirming: Any, name: Names) -> None:
    queue = _declare(channel, name("bounded"), x_max_length=2, x_overflow="reject-publish")
    publish(confirming, queue, "1", "2")
    with pytest.raises(NackError) as nacked:
        confirming.basic_publish("", queue, b"3", pika.BasicProperties(message_id="third"))
    # No basic.return came: the message was routable.
    assert nacked.value.messages == []
    assert drain(channel, queue) == ["1", "2"]
    publish(confirming, queue, "4")
    assert drain(channel, queue) == ["4"]


def test_rejected_by_one_queue_of_two(channel: Any, confirming: Any, name: Names) -> None:
    exchange, full, roomy = name("exchange"), name("full"), name("roomy")
    channel.exchange_declare(exchange, "fanout")
    _declare(channel, full, x_max_length_bytes=4, x_overflow="reject-publish")
    _declare(channel, roomy)
    channel.queue_bind(full, exchange)
    channel.queue_bind(roomy, exchange)
    confirming.basic_publish(exchange, "", b"1234")
    with pytest.raises(NackError):
        confirming.basic_publish(exchange, "", b"5")
    assert drain(channel, full) == ["1234"]
    assert drain(channel, roomy) == ["1234", "5"]


def test_transaction_with_a_rejected_publish(channel: Any, blocking_connection: Any, name: Names) -> None:
    queue = _declare(channel, name("bounded"), x_max_length=1, x_overflow="reject-publish")
    transactional = blocking_connection.channel()
    transactional.tx_select()
    publish(transactional, queue, "1", "2")
    with pytest.raises(ChannelClosedByBroker) as closed:
        transactional.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (406, "PRECONDITION_FAILED - partial tx completion")
    assert drain(channel, queue) == ["1"]


def test_dead_letters_of_an_overflow(channel: Any, name: Names) -> None:
    letters = _declare(channel, name("letters"))
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": letters}
    queue = _declare(channel, name("bounded"), x_max_length=1, **arguments)
    publish(channel, queue, "1", "2")
    properties, body = _arrival(channel, letters)
    assert body == b"1"
    (death,) = properties.headers["x-death"]
    assert isinstance(death.pop("time"), datetime)
    assert death == {"count": 1, "reason": "maxlen", "queue": queue, "exchange": "", "routing-keys": [queue]}
    assert properties.headers["x-first-death-queue"] == queue
    assert drain(channel, queue) == ["2"]


def test_expired_messages_are_retried(channel: Any, name: Names) -> None:
    """The common retry loop: rejected from the work queue, waiting in another, back to the work queue."""
    work, waiting = name("work"), name("waiting")
    _declare(channel, work, x_dead_letter_exchange="", x_dead_letter_routing_key=waiting)
    _declare(channel, waiting, x_message_ttl=20, x_dead_letter_exchange="", x_dead_letter_routing_key=work)
    publish(channel, work, "job")
    attempts = []
    for method, properties, _ in channel.consume(work):
        deaths = (properties.headers or {}).get("x-death", [])
        attempts.append([(death["reason"], death["count"]) for death in deaths])
        if len(attempts) == 3:
            channel.basic_ack(method.delivery_tag)
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.cancel()
    assert attempts == [[], [("expired", 1), ("rejected", 1)], [("expired", 2), ("rejected", 2)]]


def test_expiration_of_a_message(channel: Any, name: Names) -> None:
    letters = _declare(channel, name("letters"))
    queue = _declare(channel, name("q"), x_dead_letter_exchange="", x_dead_letter_routing_key=letters)
    channel.basic_publish("", queue, b"m", pika.BasicProperties(expiration="20"))
    properties, body = _arrival(channel, letters)
    assert (body, properties.expiration) == (b"m", None)
    assert properties.headers["x-death"][0]["original-expiration"] == "20"


def test_an_unused_queue_expires(channel: Any, confirming: Any, name: Names) -> None:
    queue = _declare(channel, name("q"), x_expires=50)

    def gone() -> bool:
        # Any look at the queue would be use of it; a publish is not.
        try:
            confirming.basic_publish("", queue, b"m", mandatory=True)
        except UnroutableError:
            return True
        return False

    wait_until(gone, "expiry")


def test_priorities(channel: Any, name: Names) -> None:
    queue = _declare(channel, name("q"), x_max_priority=10)
    for priority in (1, 9, 5, 9):
        channel.basic_publish("", queue, str(priority), pika.BasicProperties(priority=priority))
    publish(channel, queue, "none")
    assert drain(channel, queue) == ["9", "9", "5", "1", "none"]
