"""pika's BlockingConnection: consuming, getting, acknowledging."""

from __future__ import annotations

from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.integration.pika_messages import drain, publish
from tests.integration.waiting import PATIENCE, wait_until


@pytest.fixture
def channel(blocking_connection: Any) -> Any:
    """An open channel of `blocking_connection`."""
    return blocking_connection.channel()


@pytest.fixture
def queue(channel: Any) -> str:
    """A server-named queue of `blocking_connection`."""
    queue: str = channel.queue_declare("", exclusive=True).method.queue
    return queue


def _take(channel: Any, queue: str, count: int, **options: Any) -> list[tuple[Any, str]]:
    """Consume this many messages with the generator; return methods and bodies."""
    taken: list[tuple[Any, str]] = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE, **options):
        assert method is not None, f"{len(taken)} of {count} messages in {PATIENCE} s"
        taken.append((method, body.decode()))
        if len(taken) == count:
            return taken
    raise AssertionError(f"the consumer was cancelled after {len(taken)} messages")


# --- consuming --------------------------------------------------------------------------------------------


def test_start_consuming_with_prefetch(channel: Any, queue: str) -> None:
    received: list[tuple[int, str]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        received.append((method.delivery_tag, body.decode()))
        assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
        channel.basic_ack(method.delivery_tag)
        if len(received) == 20:
            channel.stop_consuming()

    publish(channel, queue, *map(str, range(20)))
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    assert received == [(number + 1, str(number)) for number in range(20)]
    assert drain(channel, queue) == []


def test_prefetch_holds_the_rest_back(blocking_connection: Any, channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b", "c")
    consuming = blocking_connection.channel()
    consuming.basic_qos(prefetch_count=2)
    taken = _take(consuming, queue, 2)
    assert [body for _, body in taken] == ["a", "b"]
    assert drain(channel, queue) == ["c"]


def test_consume_generator_cancel_requeues(channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b", "c")
    ((method, body),) = _take(channel, queue, 1)
    assert body == "a"
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    assert drain(channel, queue) == ["b", "c"]


def test_cancelled_consumer_gets_no_more(blocking_connection: Any, channel: Any, queue: str) -> None:
    received: list[bytes] = []
    tag = channel.basic_consume(queue, lambda _, __, ___, body: received.append(body), auto_ack=True)
    channel.basic_cancel(tag)
    publish(channel, queue, "a")
    blocking_connection.process_data_events()
    assert drain(channel, queue) == ["a"]
    assert received == []


def test_deleted_queue_cancels_its_consumer(blocking_connection: Any, channel: Any, queue: str) -> None:
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    blocking_connection.channel().queue_delete(queue)

    def came() -> bool:
        blocking_connection.process_data_events(time_limit=0.1)
        return bool(cancelled)

    wait_until(came, "basic.cancel")
    assert cancelled == [tag]
    assert channel.is_open


def test_exclusive_consumer(blocking_connection: Any, channel: Any, queue: str) -> None:
    channel.basic_consume(queue, lambda *_: None, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as closed:
        blocking_connection.channel().basic_consume(queue, lambda *_: None)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        403,
        f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use",
    )


# --- getting and acknowledging ----------------------------------------------------------------------------


def test_get(channel: Any, queue: str) -> None:
    assert channel.basic_get(queue) == (None, None, None)
    publish(channel, queue, "a", "b")
    method, _, body = channel.basic_get(queue)
    assert body == b"a"
    assert (method.delivery_tag, method.redelivered, method.message_count) == (1, False, 1)


def test_requeued_messages_keep_their_places(channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b", "c", "d")
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_reject(tags[1], requeue=True)
    channel.basic_nack(tags[0], requeue=True)
    channel.basic_nack(tags[2], requeue=True)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered) == (b"a", True)
    assert drain(channel, queue) == ["b", "c", "d"]


def test_multiple_ack_and_nack(channel: Any, queue: str) -> None:
    publish(channel, queue, *"abcdef")
    for _ in range(5):
        channel.basic_get(queue)
    channel.basic_ack(2, multiple=True)
    channel.basic_nack(4, multiple=True, requeue=True)
    channel.basic_reject(5, requeue=False)
    assert drain(channel, queue) == ["c", "d", "f"]


def test_recover(channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b")
    channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    assert drain(channel, queue) == ["a", "b"]


def test_closed_channel_requeues(blocking_connection: Any, channel: Any, queue: str) -> None:
    publish(channel, queue, "a", "b")
    other = blocking_connection.channel()
    _take(other, queue, 2)
    other.close()
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered, method.message_count) == (b"a", True, 1)


def test_unknown_delivery_tag(blocking_connection: Any, channel: Any, queue: str) -> None:
    channel.basic_ack(7)
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - unknown delivery tag 7",
    )
    assert blocking_connection.is_open


def test_hard_error_closes_the_connection(blocking_connection: Any, channel: Any, queue: str) -> None:
    channel.basic_consume(queue, lambda *_: None, consumer_tag="tag")
    with pytest.raises(ConnectionClosedByBroker) as closed:
        channel.basic_qos(prefetch_size=1)
    assert (closed.value.reply_code, closed.value.reply_text) == (
        540,
        "NOT_IMPLEMENTED - prefetch_size!=0 (1)",
    )
    assert blocking_connection.is_closed
