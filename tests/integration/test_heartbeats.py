"""Heartbeats between real clients and the broker: living peers are kept, dead ones are dropped."""

from __future__ import annotations

import asyncio
import time

import aio_pika
import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tests.integration.fixtures import Names
from tests.integration.waiting import wait_until


def _parameters(url: str, heartbeat: int) -> pika.URLParameters:
    parameters = pika.URLParameters(url)
    parameters.heartbeat = heartbeat
    return parameters


def test_silent_client_is_dropped(url: str, name: Names) -> None:
    """What it held is requeued, its exclusive queue is gone; a BlockingConnection is silent between calls."""
    exclusive, shared = name("exclusive"), name("shared")
    with pika.BlockingConnection(pika.URLParameters(url)) as living:
        observer = living.channel()
        observer.queue_declare(shared)
        observer.basic_publish("", shared, b"m")
        started = time.monotonic()
        dead = pika.BlockingConnection(_parameters(url, 1))
        channel = dead.channel()
        channel.queue_declare(exclusive, exclusive=True)
        assert channel.basic_get(shared)[2] == b"m"

        wait_until(lambda: observer.queue_declare(shared, passive=True).method.message_count == 1, "the drop")
        assert time.monotonic() - started > 2, "dropped before two heartbeats were missed"
        method, _, body = observer.basic_get(shared, auto_ack=True)
        assert (body, method.redelivered) == (b"m", True)
        with pytest.raises(ChannelClosedByBroker) as closed:
            living.channel().queue_declare(exclusive, passive=True)
        assert closed.value.reply_code == 404
        with pytest.raises(AMQPError):
            dead.close()


def test_idle_client_with_heartbeats_is_kept(url: str) -> None:
    """Both sides would have given up after three seconds without heartbeats."""
    with pika.BlockingConnection(_parameters(url, 1)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        connection.process_data_events(time_limit=4.5)
        channel.basic_publish("", queue, b"m")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"m"


async def test_idle_aio_pika_client_is_kept(url: str) -> None:
    async with await aio_pika.connect(f"{url}?heartbeat=1") as connection:
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(closed.wait(), 4.5)
        channel = await connection.channel()
        await channel.declare_queue(exclusive=True)


def test_client_without_heartbeats_is_kept(url: str) -> None:
    with (
        pika.BlockingConnection(_parameters(url, 0)) as silent,
        pika.BlockingConnection(_parameters(url, 1)) as other,
    ):
        other.process_data_events(time_limit=3.5)
        silent.channel().queue_declare("", exclusive=True)
