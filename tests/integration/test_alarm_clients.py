"""Resource alarms as real clients see them, and the watermark that raises one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest
from amqpstorm.uri_connection import UriConnection
from kombu.connection import Connection as KombuConnection
from pamqp import commands
from pika.exceptions import ConnectionBlockedTimeout

from tests.integration.threaded_broker import ThreadedBroker
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Connection


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadedBroker]:
    """A broker of the test's own, with no alarm set."""
    with ThreadedBroker(tmp_path) as started:
        yield started


# --- clients ------------------------------------------------------------------------------------------------------


def test_pika_is_told(broker: ThreadedBroker) -> None:
    events: list[str] = []
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.add_on_connection_blocked_callback(lambda _, frame: events.append(frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda _, frame: events.append("over"))
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        broker.set_alarms("memory", "disk")
        channel.basic_publish("", queue, b"m")
        wait_until(lambda: _events(connection, events) == ["low on disk & memory"], "blocked")
        broker.clear_alarms("memory", "disk")
        wait_until(lambda: _events(connection, events) == ["low on disk & memory", "over"], "unblocked")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"m"


def _events(connection: Any, events: list[str]) -> list[str]:
    connection.process_data_events(time_limit=0.01)
    return events


def test_pika_gives_up(broker: ThreadedBroker) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.blocked_connection_timeout = 0.2
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.confirm_delivery()
    broker.set_alarms("memory")
    with pytest.raises(ConnectionBlockedTimeout):
        channel.basic_publish("", "q", b"m")


async def test_aio_pika_waits(broker: ThreadedBroker) -> None:
    async with await aio_pika.connect(broker.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await asyncio.to_thread(broker.set_alarms, "memory")
        publish = asyncio.create_task(channel.default_exchange.publish(aio_pika.Message(b"m"), queue.name))
        # Whoever has published nothing is still served.
        async with await aio_pika.connect(broker.url) as other:
            await other.channel()
        assert not publish.done()
        await asyncio.to_thread(broker.clear_alarms, "memory")
        await publish
        assert (await queue.get(no_ack=True)).body == b"m"


def test_kombu_is_told(broker: ThreadedBroker) -> None:
    events: list[str] = []
    told = {"on_blocked": lambda _: events.append("blocked"), "on_unblocked": lambda: events.append("over")}
    with KombuConnection(broker.url.replace("amqp://", "pyamqp://", 1), transport_options=told) as connection:
        broker.set_alarms("disk")
        connection.Producer().publish("m", routing_key="nobody")
        wait_until(lambda: _drained(connection, events) == ["blocked"], "blocked")
        broker.clear_alarms("disk")
        wait_until(lambda: _drained(connection, events) == ["blocked", "over"], "unblocked")


def _drained(connection: KombuConnection, events: list[str]) -> list[str]:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.01)
    return events


def test_amqpstorm_is_told(broker: ThreadedBroker) -> None:
    with UriConnection(broker.url) as connection:
        broker.set_alarms("memory")
        connection.channel().basic.publish("m", "nobody")
        wait_until(lambda: connection.is_blocked, "blocked")
        broker.clear_alarms("memory")
        wait_until(lambda: not connection.is_blocked, "unblocked")


# --- the watermark ------------------------------------------------------------------------------------------------


def _health(process: LeveretProcess) -> tuple[int, Any]:
    try:
        return 200, Management(process.http_url).request("GET", "health", "checks", "alarms")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_broker_above_its_watermark(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": 1})
    status, answer = _health(process)
    assert (status, answer["status"]) == (503, "failed")
    connection = Connection(process.url)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.publish("", "q", b"m")
    assert connection.wire.expect(0, commands.Connection.Blocked).reason == "low on memory"
    assert process.stop() == 0
    text = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
    connection.wire.expect_close(320, text)
    connection.abort()
    assert "memory alarm set (limit 1 bytes)" in process.log_text()


def test_a_broker_below_its_watermark(leveret_process: Callable[..., LeveretProcess]) -> None:
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": "1GB"})
    assert _health(process) == (200, {"status": "ok"})
    with Connection(process.url) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.publish("", "q", b"m")
        assert channel.get("q", no_ack=True) is not None
        assert connection.blocked is None
