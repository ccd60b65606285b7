"""kombu with its py-amqp transport: what Celery stands on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pytest
from amqp.exceptions import (  # type: ignore[import-untyped]
    MessageNacked,
)
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from kombu.pools import producers

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE, wait_until
from tests.support.leveret_process import LeveretProcess

_HEADERS: Final = {
    "bool": True,
    "int": -(2**31) + 1,
    "long": 2**63 - 1,
    "float": 1.5,
    "decimal": Decimal("1.25"),
    "string": "grün",
    "timestamp": datetime(2026, 1, 2),
    "void": None,
    "array": [1, "a"],
    "table": {"b": 2},
}


@pytest.fixture
def connection(url: str, name: Names) -> Iterator[Any]:
    """An open connection; it goes before the named queues are deleted."""
    with Connection(url.replace("amqp://", "pyamqp://", 1)) as opened:
        opened.connect()
        yield opened


@pytest.fixture
def queue(connection: Any, name: Names) -> Any:
    """A declared queue, bound to a topic exchange of its own by `a.#`."""
    exchange = Exchange(name("exchange"), "topic", durable=False)
    queue = Queue(name("queue"), exchange, "a.#", durable=False)
    bound = queue(connection.default_channel)
    bound.declare()
    return bound


def _drain(connection: Any, received: list[Any], count: int) -> None:
    def enough() -> bool:
        try:
            connection.drain_events(timeout=0.1)
        except TimeoutError:
            pass
        return len(received) >= count

    wait_until(enough, f"{count} messages")


def test_headers_and_a_large_body(connection: Any, queue: Any) -> None:
    body = bytes(range(256)) * 8192
    producer = Producer(connection, queue.exchange)
    producer.publish(body, routing_key="a.b", headers=_HEADERS, priority=3, message_id="id")
    producer.publish({"answer": 0}, routing_key="b")
    message = queue.get()
    assert bytes(message.payload) == body
    received = {**message.headers, "timestamp": message.headers["timestamp"].astimezone(UTC).replace(tzinfo=None)}
    assert received == _HEADERS
    assert message.properties["message_id"] == "id"
    assert message.properties["priority"] == 3
    assert message.delivery_info["routing_key"] == "a.b"
    message.ack()
    assert queue.get() is None


def test_confirms_and_returns(url: str, queue: Any) -> None:
    options = {"confirm_publish": True}
    returned: list[Any] = []
    with Connection(url.replace("amqp://", "pyamqp://", 1), transport_options=options) as confirming:
        with producers[confirming].acquire(block=True, timeout=PATIENCE) as producer:
            for number in range(50):
                producer.publish(number, exchange=queue.exchange, routing_key="a.b", delivery_mode=2)
            on_return = Producer(
                producer.channel, queue.exchange, on_return=lambda error, *rest: returned.append(error)
            )
            on_return.publish("come back", routing_key="nobody", mandatory=True)
            # The return comes before the confirm.
            assert [error.reply_code for error in returned] == [312]
            bounded = Queue("", exclusive=True, max_length=0, queue_arguments={"x-overflow": "reject-publish"})
            bounded = bounded(producer.channel)
            bounded.declare()
            with pytest.raises(MessageNacked):
                producer.publish("refused", routing_key=bounded.name)
        producers[confirming].force_close_all()
    assert [queue.get(no_ack=True).payload for _ in range(50)] == list(range(50))


def test_consume_ack_reject_requeue(connection: Any, queue: Any) -> None:
    producer = Producer(connection, queue.exchange)
    for number in range(4):
        producer.publish(number, routing_key="a")
    received: list[Any] = []
    callbacks = [lambda _, message: received.append(message)]
    with Consumer(connection, [queue], callbacks=callbacks, prefetch_count=2):
        _drain(connection, received, 2)
        assert [message.payload for message in received] == [0, 1]
        received[0].ack()
        received[1].requeue()
        _drain(connection, received, 4)
        assert sorted(message.payload for message in received[2:]) == [1, 2]
        assert {m.payload: m.delivery_info["redelivered"] for m in received[2:]} == {1: True, 2: False}
        received[2].reject()
        received[3].ack()
        _drain(connection, received, 5)
        assert received[4].payload == 3
        received[4].ack()
    assert queue.get() is None


def test_retried_publish_survives_a_restart(restartable_broker: LeveretProcess) -> None:
    with Connection(restartable_broker.url.replace("amqp://", "pyamqp://", 1)) as connection:
        exchange = Exchange("work", "direct")
        queue = Queue("work", exchange, "work")
        producer = Producer(connection, exchange)
        policy = {"max_retries": 50, "interval_start": 0.05, "interval_step": 0.05, "interval_max": 0.2}
        publish = {"routing_key": "work", "declare": [queue], "retry": True, "retry_policy": policy}
        producer.publish("before", **publish)
        restartable_broker.restart()
        producer.publish("after", **publish)
        received: list[str] = []
        while (message := queue(connection.default_channel).get(no_ack=True)) is not None:
            received.append(message.payload)
        assert received[-1] == "after"
