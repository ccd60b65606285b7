"""aio-pika's robust connection: it builds up its topology again when the broker is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aio_pika
import pytest_asyncio
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.exceptions import AMQPError

from tests.integration.waiting import PATIENCE
from tests.support.leveret_process import LeveretProcess


@pytest_asyncio.fixture
async def connection(restartable_broker: LeveretProcess) -> AsyncIterator[AbstractRobustConnection]:
    """An open robust connection to a broker that can be restarted."""
    async with await aio_pika.connect_robust(restartable_broker.url, reconnect_interval=0.1) as opened:
        yield opened


async def _restart(broker: LeveretProcess, connection: AbstractRobustConnection, *, crash: bool) -> None:
    """Restart the broker; return when the connection has recovered."""
    reconnected = asyncio.Event()
    connection.reconnect_callbacks.add(lambda *_: reconnected.set())
    await asyncio.to_thread(broker.restart, crash=crash)
    async with asyncio.timeout(PATIENCE):
        await reconnected.wait()


async def _recovers(broker: LeveretProcess, connection: AbstractRobustConnection, *, crash: bool) -> None:
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=1)
    source = await channel.declare_exchange("source", aio_pika.ExchangeType.TOPIC, durable=True)
    target = await channel.declare_exchange("target", aio_pika.ExchangeType.FANOUT)
    await target.bind(source, "logs.#")
    queue = await channel.declare_queue("work", durable=True)
    await queue.bind(target)
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: AbstractIncomingMessage) -> None:
        async with message.process():
            await received.put(message.body)

    await queue.consume(on_message)
    for generation in range(2):
        await _restart(broker, connection, crash=crash)
        for number in range(5):
            body = b"%d-%d" % (generation, number)
            await source.publish(aio_pika.Message(body), "logs.kernel", timeout=PATIENCE)
            async with asyncio.timeout(PATIENCE):
                assert await received.get() == body


async def test_recovery_from_a_restart(
    restartable_broker: LeveretProcess, connection: AbstractRobustConnection
) -> None:
    await _recovers(restartable_broker, connection, crash=False)


async def test_recovery_from_a_crash(restartable_broker: LeveretProcess, connection: AbstractRobustConnection) -> None:
    await _recovers(restartable_broker, connection, crash=True)


async def test_reason_of_the_close(restartable_broker: LeveretProcess, connection: AbstractRobustConnection) -> None:
    reasons: list[BaseException | None] = []

    def keep(reasons: list[BaseException | None]) -> Callable[..., None]:
        return lambda _, reason=None: reasons.append(reason)

    connection.close_callbacks.add(keep(reasons))
    await _restart(restartable_broker, connection, crash=False)
    assert isinstance(reasons[0], AMQPError)
    assert "CONNECTION_FORCED" in str(reasons[0])
