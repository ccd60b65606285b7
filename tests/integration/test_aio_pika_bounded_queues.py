"""aio-pika: nacked publishes, dead letters, quorum queues with a delivery limit."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import aio_pika
import pamqp.commands
import pytest
import pytest_asyncio
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    AbstractQueue,
)
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE


@pytest_asyncio.fixture
async def channel(aio_connection: AbstractConnection) -> AbstractChannel:
    """An open channel of `aio_connection`, with confirms."""
    return await aio_connection.channel()


@pytest_asyncio.fixture
async def letters(channel: AbstractChannel, name: Names) -> AbstractQueue:
    """A queue for dead letters."""
    return await channel.declare_queue(name("letters"), auto_delete=True)


async def _declare(channel: AbstractChannel, queue: str, *, durable: bool = False, **arguments: Any) -> AbstractQueue:
    """Declare a queue with arguments, underscores for dashes."""
    dashed = {key.replace("_", "-"): value for key, value in arguments.items()}
    return await channel.declare_queue(queue, durable=durable, arguments=dashed)


def _to(letters: AbstractQueue) -> dict[str, Any]:
    return {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": letters.name}


async def _publish(channel: AbstractChannel, queue: AbstractQueue, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body, **properties), queue.name)


async def _drain(queue: AbstractQueue) -> list[bytes]:
    bodies = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        bodies.append(message.body)
    return bodies


async def _next(queue: AbstractQueue) -> AbstractIncomingMessage:
    """Wait for the next message and ack it."""
    async with queue.iterator(timeout=PATIENCE) as messages:
        message = await anext(messages)
        await message.ack()
    return message


def _deaths(message: AbstractIncomingMessage) -> list[Any]:
    deaths = message.headers["x-death"]
    assert isinstance(deaths, list)
    return deaths


async def test_nack_raises(channel: AbstractChannel, name: Names) -> None:
    queue = await _declare(channel, name("bounded"), x_max_length=1, x_overflow="reject-publish")
    await _publish(channel, queue, b"kept")
    with pytest.raises(DeliveryError) as nacked:
        await _publish(channel, queue, b"refused")
    assert isinstance(nacked.value.frame, pamqp.commands.Basic.Nack)
    assert await _drain(queue) == [b"kept"]


async def test_nacks_among_concurrent_publishes(channel: AbstractChannel, name: Names) -> None:
    queue = await _declare(channel, name("bounded"), x_max_length=20, x_overflow="reject-publish")
    publishes = (_publish(channel, queue, b"%d" % number) for number in range(50))
    outcomes = await asyncio.gather(*publishes, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 20 + [DeliveryError] * 30
    assert await _drain(queue) == [b"%d" % number for number in range(20)]


async def test_transaction_with_a_rejected_publish(aio_connection: AbstractConnection, name: Names) -> None:
    plain = await aio_connection.channel(publisher_confirms=False)
    queue = await _declare(plain, name("bounded"), x_max_length=0, x_overflow="reject-publish")
    transaction = plain.transaction()
    await transaction.select()
    await _publish(plain, queue, b"refused")
    with pytest.raises(ChannelPreconditionFailed, match="partial tx completion"):
        await transaction.commit()


async def test_rejected_message_goes_to_the_dead_letter_queue(
    channel: AbstractChannel, letters: AbstractQueue, name: Names
) -> None:
    queue = await _declare(channel, name("work"), **_to(letters))
    await _publish(channel, queue, b"bad", headers={"answer": 42}, message_id="m1")
    with pytest.raises(ZeroDivisionError):
        async with (await queue.get()).process(requeue=False):
            raise ZeroDivisionError
    letter = await _next(letters)
    assert (letter.body, letter.message_id, letter.headers["answer"]) == (b"bad", "m1", 42)
    (death,) = _deaths(letter)
    assert isinstance(death.pop("time"), datetime)
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": queue.name,
        "exchange": "",
        "routing-keys": [queue.name],
    }
    assert letter.headers["x-first-death-reason"] == "rejected"


async def test_overflow_and_expiry(channel: AbstractChannel, letters: AbstractQueue, name: Names) -> None:
    queue = await _declare(channel, name("bounded"), x_max_length=2, **_to(letters))
    # The first one never expires, and holds up the others for as long as it is there.
    await _publish(channel, queue, b"1")
    await _publish(channel, queue, b"2", b"3", expiration=0.02)
    seen = []
    async with letters.iterator(no_ack=True, timeout=PATIENCE) as messages:
        async for letter in messages:
            seen.append((letter.body, _deaths(letter)[0]["reason"]))
            if len(seen) == 3:
                break
    assert seen == [(b"1", "maxlen"), (b"2", "expired"), (b"3", "expired")]
    assert await _drain(queue) == []


async def test_expiration_of_a_message(channel: AbstractChannel, letters: AbstractQueue, name: Names) -> None:
    queue = await _declare(channel, name("q"), **_to(letters))
    await _publish(channel, queue, b"m", expiration=0.02)
    letter = await _next(letters)
    assert letter.expiration is None
    assert _deaths(letter)[0]["original-expiration"] == "20"


async def test_poison_message_in_a_quorum_queue(channel: AbstractChannel, letters: AbstractQueue, name: Names) -> None:
    arguments = {"x_queue_type": "quorum", "x_delivery_limit": 1, **_to(letters)}
    queue = await _declare(channel, name("quorum"), durable=True, **arguments)
    await _publish(channel, queue, b"poison")
    counts = []
    async with queue.iterator(timeout=PATIENCE) as messages:
        async for message in messages:
            counts.append(message.headers.get("x-delivery-count"))
            await message.nack(requeue=True)
            if len(counts) == 2:
                break
    assert counts == [None, 1]
    letter = await _next(letters)
    assert (letter.body, _deaths(letter)[0]["reason"]) == (b"poison", "delivery_limit")
