"""aio-pika: confirms, returns, properties."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal

import aio_pika
import pytest
import pytest_asyncio
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractQueue, HeadersType
from aio_pika.exceptions import (
    ChannelClosed,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    DeliveryError,
)

from tests.integration.fixtures import Names


@pytest_asyncio.fixture
async def channel(aio_connection: AbstractConnection) -> AbstractChannel:
    """An open channel of `aio_connection`, with confirms, where a return raises."""
    return await aio_connection.channel(on_return_raises=True)


@pytest_asyncio.fixture
async def queue(channel: AbstractChannel) -> AbstractQueue:
    """A server-named queue of `aio_connection`."""
    return await channel.declare_queue(exclusive=True)


async def _drain(queue: AbstractQueue) -> list[str]:
    texts = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        texts.append(message.body.decode())
    return texts


# --- publishing -------------------------------------------------------------------------------------------


async def test_many_confirms_at_once(channel: AbstractChannel, queue: AbstractQueue) -> None:
    messages = [
        aio_pika.Message(b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT) for number in range(500)
    ]
    confirms = await asyncio.gather(*(channel.default_exchange.publish(message, queue.name) for message in messages))
    assert {type(confirm).__name__ for confirm in confirms} == {"Ack"}
    assert await _drain(queue) == [str(number) for number in range(500)]


async def test_unroutable_message_is_returned(channel: AbstractChannel, queue: AbstractQueue) -> None:
    message = aio_pika.Message(b"come back", headers={"answer": 42})
    with pytest.raises(DeliveryError) as returned:
        await channel.default_exchange.publish(message, "nobody")
    assert returned.value.message is not None
    assert returned.value.message.header.properties.headers == {"answer": 42}
    assert returned.value.message.body == b"come back"
    await channel.default_exchange.publish(message, "nobody", mandatory=False)
    await channel.default_exchange.publish(message, queue.name)
    assert await _drain(queue) == ["come back"]


async def test_returns_among_confirms(channel: AbstractChannel, queue: AbstractQueue) -> None:
    """Each return reaches the publish that it belongs to."""
    keys = [queue.name if number % 3 else "nobody" for number in range(60)]
    results = await asyncio.gather(
        *(channel.default_exchange.publish(aio_pika.Message(key.encode()), key) for key in keys),
        return_exceptions=True,
    )
    assert [isinstance(result, DeliveryError) for result in results] == [key == "nobody" for key in keys]
    assert len(await _drain(queue)) == 40


async def test_missing_exchange(aio_connection: AbstractConnection, name: Names) -> None:
    channel = await aio_connection.channel()
    exchange = await channel.get_exchange(name("missing"), ensure=False)
    with pytest.raises((ChannelNotFoundEntity, ChannelClosed, ChannelInvalidStateError)):
        await exchange.publish(aio_pika.Message(b"m"), "")
    again = await aio_connection.channel()
    await again.declare_queue(exclusive=True)


async def test_large_message(channel: AbstractChannel, queue: AbstractQueue) -> None:
    body = bytes(range(256)) * 8192
    await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
    message = await queue.get(no_ack=True)
    assert message.body == body


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(True, id="bool"),
        pytest.param(-128, id="8 bits"),
        pytest.param(-32768, id="16 bits"),
        pytest.param(65535, id="16 bits unsigned"),
        pytest.param(-(2**31), id="32 bits"),
        pytest.param(2**32 - 1, id="32 bits unsigned"),
        pytest.param(-(2**63), id="64 bits"),
        pytest.param(1.5, id="float"),
        pytest.param(Decimal("123.45"), id="decimal"),
        pytest.param("grün ☂", id="string"),
        pytest.param(bytearray(b"\x00\xff\x80"), id="bytes"),
        pytest.param(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), id="timestamp"),
        pytest.param(None, id="void"),
        pytest.param([1, "two", [True, None], {"x": 2**40}], id="array"),
        pytest.param({"a": {"b": {"c": [1, 2, 3]}}, "d": None}, id="table"),
    ],
)
async def test_header_value(channel: AbstractChannel, queue: AbstractQueue, value: object) -> None:
    headers: HeadersType = {"value": value}  # type: ignore[dict-item]
    await channel.default_exchange.publish(aio_pika.Message(b"m", headers=headers), queue.name)
    message = await queue.get(no_ack=True)
    assert message.headers == headers
    assert isinstance(message.headers["value"], bool) == isinstance(value, bool)


async def test_every_property(channel: AbstractChannel, queue: AbstractQueue) -> None:
    sent = aio_pika.Message(
        b"m",
        content_type="application/json",
        content_encoding="gzip",
        headers={"a": 1},
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
    given = {key: value for key, value in sent.info().items() if value is not None}
    assert len(given) >= 14
    received: dict[str, object] = {**message.info()}
    assert {key: received[key] for key in given} == given
