"""pika's SelectConnection: callbacks on a loop in a thread of its own, many requests on their way at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Queue
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE
from tests.support.leveret_process import LeveretProcess


class SelectClient:
    """A SelectConnection whose loop runs in a thread; a context manager that closes it."""

    def __init__(self, url: str) -> None:
        self.closed: Future[Exception] = Future()
        opened: Future[Any] = Future()
        self.connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(error),
            on_close_callback=lambda _, reason: self._on_close(reason),
        )
        self._thread = threading.Thread(target=self.connection.ioloop.start, name="pika select")
        self._thread.start()
        opened.result(PATIENCE)

    def _on_close(self, reason: Exception) -> None:
        self.closed.set_result(reason)
        self.connection.ioloop.stop()

    def run(self, function: Callable[[], Any]) -> Any:
        """Call the function on the loop and return its result."""
        return self.wait(lambda done: done(function()))

    def wait(self, start: Callable[[Callable[[Any], None]], Any]) -> Any:
        """Call `start` on the loop with a callback; return what the callback gets."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                start(future.set_result)
            except Exception as error:  # noqa: BLE001 - handed over to the caller
                future.set_exception(error)

        self.connection.ioloop.add_callback_threadsafe(call)
        return future.result(PATIENCE)

    def channel(self) -> Any:
        """Open a channel."""
        return self.wait(lambda done: self.connection.channel(on_open_callback=done))

    def queue(self, channel: Any) -> str:
        """Declare a server-named queue of this connection."""
        frame = self.wait(lambda done: channel.queue_declare("", exclusive=True, callback=done))
        queue: str = frame.method.queue
        return queue

    def __enter__(self) -> SelectClient:
        return self

    def __exit__(self, *error: object) -> None:
        if not self.closed.done():
            self.connection.ioloop.add_callback_threadsafe(self.connection.close)
            self.closed.result(PATIENCE)
        self._thread.join(PATIENCE)
        self.connection.ioloop.close()


@pytest.fixture
def client(url: str, name: Names) -> Iterator[SelectClient]:
    """A connected client; it goes before the named queues are deleted."""
    with SelectClient(url) as opened:
        yield opened


def test_requests_on_their_way_together(client: SelectClient) -> None:
    """Answers come in the order of the requests of a channel."""
    channel = client.channel()
    answers: Queue[str] = Queue()

    def declare_all() -> None:
        for _ in range(50):
            channel.queue_declare("", exclusive=True, callback=lambda frame: answers.put(frame.method.queue))

    client.run(declare_all)
    assert len({answers.get(timeout=PATIENCE) for _ in range(50)}) == 50


def test_confirms(client: SelectClient) -> None:
    channel = client.channel()
    queue = client.queue(channel)
    count = 1000
    outstanding = set(range(1, count + 1))
    confirmed: Future[None] = Future()

    def on_confirm(frame: Any) -> None:
        try:
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            tag = frame.method.delivery_tag
            covered = {each for each in outstanding if each <= tag} if frame.method.multiple else {tag}
            assert covered, "an ack that confirms nothing"
            assert covered <= outstanding, "an ack for the second time"
            outstanding.difference_update(covered)
        except AssertionError as error:
            confirmed.set_exception(error)
            return
        if not outstanding:
            confirmed.set_result(None)

    def publish_all() -> None:
        for number in range(count):
            channel.basic_publish("", queue, str(number))

    client.wait(lambda done: channel.confirm_delivery(on_confirm, callback=done))
    client.run(publish_all)
    confirmed.result(PATIENCE)
    declared = client.wait(lambda done: channel.queue_declare(queue, passive=True, callback=done))
    assert declared.method.message_count == count


def test_return_of_a_large_body_precedes_its_confirm(client: SelectClient) -> None:
    channel = client.channel()
    events: Queue[tuple[str, Any]] = Queue()
    client.wait(
        lambda done: channel.confirm_delivery(
            lambda frame: events.put(("confirm", frame.method.delivery_tag)), callback=done
        )
    )
    client.run(lambda: channel.add_on_return_callback(lambda *args: events.put(("return", args[3]))))
    body = bytes(range(256)) * 8192
    client.run(lambda: channel.basic_publish("", "nobody", body, mandatory=True))
    assert events.get(timeout=PATIENCE) == ("return", body)
    assert events.get(timeout=PATIENCE) == ("confirm", 1)


def test_consume_and_cancel(client: SelectClient) -> None:
    channel, publishing = client.channel(), client.channel()
    queue = client.queue(channel)
    received: Queue[tuple[int, bytes]] = Queue()

    def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
        received.put((method.delivery_tag, body))

    def publish_all() -> None:
        for number in range(10):
            publishing.basic_publish("", queue, str(number))

    client.wait(lambda done: channel.basic_qos(prefetch_count=4, callback=done))
    consumed = client.wait(lambda done: channel.basic_consume(queue, on_message, callback=done))
    client.run(publish_all)
    assert [received.get(timeout=PATIENCE) for _ in range(4)] == [(n + 1, b"%d" % n) for n in range(4)]
    client.run(lambda: channel.basic_ack(4, multiple=True))
    assert [received.get(timeout=PATIENCE) for _ in range(4)] == [(n + 1, b"%d" % n) for n in range(4, 8)]
    client.wait(lambda done: channel.basic_cancel(consumed.method.consumer_tag, callback=done))
    assert received.empty()
    client.run(lambda: channel.basic_nack(8, multiple=True, requeue=True))
    got = client.wait(lambda done: channel.basic_get(queue, lambda *got: done(got)))
    assert (got[3], got[1].redelivered) == (b"4", True)


def test_channel_error_and_reopening(client: SelectClient, name: Names) -> None:
    channel = client.channel()
    closed: Future[Exception] = Future()
    client.run(lambda: channel.add_on_close_callback(lambda _, reason: closed.set_result(reason)))
    missing = name("missing")
    client.run(lambda: channel.queue_bind(missing, "amq.direct", "key"))
    reason = closed.result(PATIENCE)
    assert isinstance(reason, ChannelClosedByBroker)
    assert (reason.reply_code, reason.reply_text) == (404, f"NOT_FOUND - no queue '{missing}' in vhost '/'")
    number = channel.channel_number
    again = client.wait(
        lambda done: client.connection.channel(channel_number=number, on_open_callback=done),
    )
    assert client.queue(again)


def test_deleted_queue_cancels_its_consumer(client: SelectClient) -> None:
    channel, other = client.channel(), client.channel()
    queue = client.queue(channel)
    cancelled: Future[str] = Future()
    client.run(lambda: channel.add_on_cancel_callback(lambda f: cancelled.set_result(f.method.consumer_tag)))
    consumed = client.wait(lambda done: channel.basic_consume(queue, lambda *_: None, callback=done))
    client.wait(lambda done: other.queue_delete(queue, callback=done))
    assert cancelled.result(PATIENCE) == consumed.method.consumer_tag


def test_hard_error(client: SelectClient) -> None:
    channel = client.channel()
    client.run(lambda: channel.basic_qos(prefetch_size=1))
    reason = client.closed.result(PATIENCE)
    assert isinstance(reason, ConnectionClosedByBroker)
    assert (reason.reply_code, reason.reply_text) == (540, "NOT_IMPLEMENTED - prefetch_size!=0 (1)")


def test_stopping_broker_says_goodbye(restartable_broker: LeveretProcess) -> None:
    with SelectClient(restartable_broker.url) as client:
        client.queue(client.channel())
        restartable_broker.restart()
        reason = client.closed.result(PATIENCE)
        assert isinstance(reason, ConnectionClosedByBroker)
        assert reason.reply_code == 320
        assert reason.reply_text.startswith("CONNECTION_FORCED")
    with SelectClient(restartable_broker.url) as client:
        client.queue(client.channel())
