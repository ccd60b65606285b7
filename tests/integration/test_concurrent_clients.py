"""Many publishers and consumers at once: nothing is lost, doubled, or out of order."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aio_pika
import pika
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from tests.integration.fixtures import Names
from tests.integration.waiting import PATIENCE

_PATIENCE = 6 * PATIENCE


async def test_fifty_publishers_and_consumers(url: str) -> None:
    """25 queues, each with a publisher and a consumer on connections of their own; 5,000 messages in all."""
    per_queue = 200

    async def publish(connection: AbstractConnection, queue: str) -> None:
        channel = await connection.channel()
        for start in range(0, per_queue, 50):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue)
                    for number in range(start, start + 50)
                )
            )

    async def work() -> list[int]:
        received: list[int] = []
        done = asyncio.Event()

        async def on_message(message: AbstractIncomingMessage) -> None:
            received.append(int(message.body))
            await message.ack()
            if len(received) >= per_queue:
                done.set()

        async with await aio_pika.connect(url) as consuming, await aio_pika.connect(url) as publishing:
            channel = await consuming.channel()
            await channel.set_qos(prefetch_count=20)
            queue = await channel.declare_queue(auto_delete=True)
            await queue.consume(on_message)
            await publish(publishing, queue.name)
            await done.wait()
            declared = await (await publishing.channel()).get_queue(queue.name)
            assert declared.declaration_result.message_count == 0
        return received

    async with asyncio.timeout(_PATIENCE):
        results = await asyncio.gather(*(work() for _ in range(25)))
    assert results == [list(range(per_queue))] * 25


def _publish_all(url: str, queue: str, publisher: int, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(count):
            channel.basic_publish("", queue, f"{publisher} {number}", mandatory=True)


def _consume_until(url: str, queue: str, enough: threading.Event, taken: list[str], total: int) -> list[str]:
    """Consume until all consumers together have `total` messages; return this one's."""
    mine: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        mine.append(body.decode())
        channel.basic_ack(method.delivery_tag)
        taken.append(mine[-1])
        if len(taken) >= total:
            enough.set()

    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=5)
        channel.basic_consume(queue, on_message)
        while not enough.is_set():
            connection.process_data_events(time_limit=0.05)
    return mine


def test_competing_consumers_on_one_queue(url: str, name: Names) -> None:
    """10 publishers and 10 consumers share a queue; a consumer sees each publisher's messages in order."""
    queue, publishers, each = name("queue"), 10, 100
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().queue_declare(queue)
    enough, taken = threading.Event(), list[str]()
    with ThreadPoolExecutor(20) as threads:
        consuming = [threads.submit(_consume_until, url, queue, enough, taken, publishers * each) for _ in range(10)]
        publishing = [threads.submit(_publish_all, url, queue, number, each) for number in range(publishers)]
        try:
            for job in publishing:
                job.result(_PATIENCE)
            assert enough.wait(_PATIENCE), f"{len(taken)} of {publishers * each}"
        finally:
            enough.set()
        received = [job.result(_PATIENCE) for job in consuming]
    everything = [text for one in received for text in one]
    assert sorted(everything) == sorted(f"{p} {n}" for p in range(publishers) for n in range(each))
    for one in received:
        by_publisher: dict[str, list[int]] = defaultdict(list)
        for text in one:
            publisher, number = text.split()
            by_publisher[publisher].append(int(number))
        assert all(numbers == sorted(numbers) for numbers in by_publisher.values())
