"""aio-pika, and its robust connection, which builds up its topology again when the broker is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
    AbstractRobustConnection,
    HeadersType,
)
from aio_pika.exceptions import (
    AMQPError,
    DeliveryError,
)

from tests.integration.waiting import PATIENCE
from tests.support.leveret_process import LeveretProcess

_HEADERS: Final[HeadersType] = {
    "bool": True,
    "8 bits": -128,
    "16 bits": -32768,
    "16 bits unsigned": 65535,
    "32 bits": -(2**31),
    "32 bits unsigned": 2**32 - 1,
    "64 bits": -(2**63),
    "float": 1.5,
    "decimal": Decimal("123.45"),
    "string": "grün ☂",
    "bytes": bytearray(b"\x00\xff\x80"),
    "timestamp": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "void": None,
    "array": [1, "two", [True, None], {"x": 2**40}],
    "table": {"a": {"b": {"c": [1, 2, 3]}}, "d": None},
}


@pytest_asyncio.fixture
async def channel(aio_connection: AbstractConnection) -> AbstractChannel:
    """An open channel of `aio_connection`, with confirms, where a return raises."""
    return await aio_connection.channel(on_return_raises=True)


@pytest_asyncio.fixture
async def queue(channel: AbstractChannel) -> AbstractQueue:
    """A server-named queue of `aio_connection`."""
    return await channel.declare_queue(exclusive=True)


async def _publish(channel: AbstractChannel, queue: str, *texts: str) -> None:
    for text in texts:
        await channel.default_exchange.publish(aio_pika.Message(text.encode()), queue)


async def _drain(queue: AbstractQueue) -> list[str]:
    texts = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        texts.append(message.body.decode())
    return texts


async def test_properties_and_a_large_body(channel: AbstractChannel, queue: AbstractQueue) -> None:
    sent = aio_pika.Message(
        bytes(range(256)) * 8192,
        content_type="application/json",
        content_encoding="gzip",
        headers=_HEADERS,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=9,
        correlation_id="correlation",
        reply_to="reply",
        expiration=60,
        message_id="message",
        timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        type="type",
        user_id="guest",
        app_id="app",
    )
    await channel.default_exchange.publish(sent, queue.name)
    message = await queue.get(no_ack=True)
    assert message.body == sent.body
    given = {key: value for key, value in sent.info().items() if value is not None}
    assert len(given) >= 14
    received: dict[str, object] = {**message.info()}
    assert {key: received[key] for key in given} == given
    assert isinstance(message.headers["bool"], bool)


async def test_returns_among_confirms(channel: AbstractChannel, queue: AbstractQueue) -> None:
    """Each return reaches the publish that it belongs to: aio-pika knows it by its message-id."""
    keys = [queue.name if number % 3 else f"nobody {number}" for number in range(60)]
    results = await asyncio.gather(
        *(channel.default_exchange.publish(aio_pika.Message(key.encode(), headers={"key": key}), key) for key in keys),
        return_exceptions=True,
    )
    for key, result in zip(keys, results, strict=True):
        assert isinstance(result, DeliveryError) == (key != queue.name)
        if isinstance(result, DeliveryError):
            assert result.message is not None
            assert result.message.body == key.encode()
            assert result.message.header.properties.headers == {"key": key}
    await channel.default_exchange.publish(aio_pika.Message(b"m"), "nobody", mandatory=False)
    assert await _drain(queue) == [queue.name] * 40


async def test_iterator_with_prefetch(channel: AbstractChannel, queue: AbstractQueue) -> None:
    await channel.set_qos(prefetch_count=3)
    await _publish(channel, queue.name, *map(str, range(20)))
    texts = []
    async with asyncio.timeout(PATIENCE), queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                texts.append(message.body.decode())
            if len(texts) == 20:
                break
    assert texts == [str(number) for number in range(20)]
    await _publish(channel, queue.name, "bad")
    with pytest.raises(ZeroDivisionError):
        async with (await queue.get()).process(requeue=True):
            raise ZeroDivisionError
    again = await queue.get()
    assert (again.body, again.redelivered) == (b"bad", True)
    await again.reject()
    assert await _drain(queue) == []


async def test_recovery(restartable_broker: LeveretProcess) -> None:
    """From a broker that was stopped, which says so, and from one that was killed."""
    reasons: list[BaseException | None] = []
    received: asyncio.Queue[bytes] = asyncio.Queue()

    def keep(reasons: list[BaseException | None]) -> Callable[..., None]:
        return lambda _, reason=None: reasons.append(reason)

    async def on_message(message: AbstractIncomingMessage) -> None:
        async with message.process():
            await received.put(message.body)

    async with await aio_pika.connect_robust(restartable_broker.url, reconnect_interval=0.1) as connection:
        connection.close_callbacks.add(keep(reasons))
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        source = await channel.declare_exchange("source", aio_pika.ExchangeType.TOPIC, durable=True)
        target = await channel.declare_exchange("target", aio_pika.ExchangeType.FANOUT)
        await target.bind(source, "logs.#")
        queue = await channel.declare_queue("work", durable=True)
        await queue.bind(target)
        await queue.consume(on_message)
        for crash in (False, True):
            await _restart(restartable_broker, connection, crash=crash)
            for number in range(5):
                await source.publish(aio_pika.Message(b"%d" % number), "logs.kernel", timeout=PATIENCE)
                async with asyncio.timeout(PATIENCE):
                    assert await received.get() == b"%d" % number
    assert isinstance(reasons[0], AMQPError)
    assert "CONNECTION_FORCED" in str(reasons[0])


async def _restart(broker: LeveretProcess, connection: AbstractRobustConnection, *, crash: bool) -> None:
    """Restart the broker; return when the connection has recovered."""
    reconnected = asyncio.Event()
    connection.reconnect_callbacks.add(lambda *_: reconnected.set())
    await asyncio.to_thread(broker.restart, crash=crash)
    async with asyncio.timeout(PATIENCE):
        await reconnected.wait()
