"""pika's AsyncioConnection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pika
import pytest_asyncio
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AuthenticationError, ChannelClosedByBroker, ProbableAuthenticationError

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE


async def _wait(start: Callable[[Callable[[Any], None]], Any]) -> Any:
    """Call `start` with a callback; return what the callback gets."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    start(future.set_result)
    async with asyncio.timeout(PATIENCE):
        return await future


async def _open(url: str) -> Any:
    def start(done: Callable[[Any], None]) -> None:
        AsyncioConnection(
            pika.URLParameters(url),
            on_open_callback=done,
            on_open_error_callback=lambda _, error: done(error),
        )

    opened = await _wait(start)
    assert isinstance(opened, AsyncioConnection), repr(opened)
    return opened


async def _close(connection: Any) -> None:
    if connection.is_closed:
        return
    closed = asyncio.Event()
    connection.add_on_close_callback(lambda *_: closed.set())
    connection.close()
    async with asyncio.timeout(PATIENCE):
        await closed.wait()


async def _channel(connection: Any) -> Any:
    return await _wait(lambda done: connection.channel(on_open_callback=done))


async def _queue(channel: Any) -> str:
    frame = await _wait(lambda done: channel.queue_declare("", exclusive=True, callback=done))
    queue: str = frame.method.queue
    return queue


@pytest_asyncio.fixture
async def connection(url: str, name: Names) -> AsyncIterator[Any]:
    """An open connection; it goes before the named queues are deleted."""
    opened = await _open(url)
    yield opened
    await _close(opened)


@pytest_asyncio.fixture
async def channel(connection: Any) -> Any:
    """An open channel of `connection`."""
    return await _channel(connection)


async def test_wrong_password(url: str) -> None:
    parameters = pika.URLParameters(url)
    parameters.credentials = pika.PlainCredentials(parameters.credentials.username, "wrong")
    refused: Any = await _wait(
        lambda done: AsyncioConnection(
            parameters, on_open_callback=done, on_open_error_callback=lambda _, error: done(error)
        )
    )
    assert isinstance(refused, (AuthenticationError, ProbableAuthenticationError)), repr(refused)


async def test_large_body_and_return(channel: Any) -> None:
    queue, body = await _queue(channel), bytes(range(256)) * 8192
    returned: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    channel.add_on_return_callback(lambda *message: returned.set_result(message))
    channel.basic_publish("", queue, body, mandatory=True)
    channel.basic_publish("", "nobody", body[1:], mandatory=True)
    got = await _wait(lambda done: channel.basic_get(queue, lambda *got: done(got), auto_ack=True))
    assert got[3] == body
    async with asyncio.timeout(PATIENCE):
        _, method, _, come_back = await returned
    assert (method.reply_code, come_back) == (312, body[1:])


async def test_deleted_queue_cancels_its_consumer(connection: Any, channel: Any) -> None:
    queue, other = await _queue(channel), await _channel(connection)
    cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    channel.add_on_cancel_callback(lambda frame: cancelled.set_result(frame.method.consumer_tag))
    consumed = await _wait(lambda done: channel.basic_consume(queue, lambda *_: None, callback=done))
    await _wait(lambda done: other.queue_delete(queue, callback=done))
    async with asyncio.timeout(PATIENCE):
        assert await cancelled == consumed.method.consumer_tag


async def test_publishing_and_consuming_together(connection: Any) -> None:
    publishing, consuming = await _channel(connection), await _channel(connection)
    queue = await _queue(publishing)
    count = 500
    bodies: list[bytes] = []
    all_received = asyncio.Event()
    all_confirmed = asyncio.Event()

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == count:
            all_received.set()

    def on_confirm(frame: Any) -> None:
        assert isinstance(frame.method, pika.spec.Basic.Ack)
        if frame.method.delivery_tag == count:
            all_confirmed.set()

    await _wait(lambda done: publishing.confirm_delivery(on_confirm, callback=done))
    await _wait(lambda done: consuming.basic_qos(prefetch_count=7, callback=done))
    await _wait(lambda done: consuming.basic_consume(queue, on_message, callback=done))
    for number in range(count):
        publishing.basic_publish("", queue, str(number))
    async with asyncio.timeout(PATIENCE):
        await all_received.wait()
        await all_confirmed.wait()
    assert bodies == [b"%d" % number for number in range(count)]


async def test_direct_reply_to(url: str, channel: Any, name: Names) -> None:
    requests = name("rpc")
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    def serve(channel: Any, _: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", properties.reply_to, body.upper())

    server = await _open(url)
    serving = await _channel(server)
    await _wait(lambda done: serving.queue_declare(requests, callback=done))
    await _wait(lambda done: serving.basic_consume(requests, serve, auto_ack=True, callback=done))
    await _wait(
        lambda done: channel.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda _, __, ___, body: replies.put_nowait(body),
            auto_ack=True,
            callback=done,
        )
    )
    for text in ("one", "two", "three"):
        channel.basic_publish("", requests, text, pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    async with asyncio.timeout(PATIENCE):
        assert [await replies.get() for _ in range(3)] == [b"ONE", b"TWO", b"THREE"]
    await _close(server)


async def test_channel_errors_do_not_spread(connection: Any, channel: Any, name: Names) -> None:
    others = [await _channel(connection) for _ in range(19)]
    for failing in others:
        closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        failing.add_on_close_callback(lambda _, reason, closed=closed: closed.set_result(reason))
        failing.queue_declare(name("missing"), passive=True)
        async with asyncio.timeout(PATIENCE):
            reason = await closed
        assert isinstance(reason, ChannelClosedByBroker)
        assert reason.reply_code == 404
    assert await _queue(channel)
    assert await _queue(await _channel(connection))
