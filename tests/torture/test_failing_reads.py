"""A disk that fails to read for a while: queues, streams and delayed messages wait, and all of them arrive later."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pika
import pika.exceptions
import pytest

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.torture.preloaded_disk import Call, PreloadedDisk, build

_MESSAGES: Final = 300
_STREAM: Final = {"x-queue-type": "stream"}
_PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
_DELAYED: Final = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3000})

pytestmark = pytest.mark.timeout(600)


class Arrivals:
    """A consumer of all queues in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self.counts: Counter[tuple[str, bytes]] = Counter()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _run(self) -> None:
        with suppress(pika.exceptions.AMQPError):
            connection = pika.BlockingConnection(pika.URLParameters(self._url))
            channel = connection.channel()
            channel.basic_qos(prefetch_count=20)
            for queue in ("plain", "stream", "delayed"):
                arguments = {"x-stream-offset": "first"} if queue == "stream" else None
                channel.basic_consume(queue, self._note, consumer_tag=queue, arguments=arguments)
            while not self._is_over.is_set():
                connection.process_data_events(0.1)
            connection.close()

    def _note(self, channel: Any, method: Any, properties: object, body: bytes) -> None:
        self.counts[method.consumer_tag, body] += 1
        channel.basic_ack(method.delivery_tag)


def publish(url: str) -> None:
    """Publish to a queue, a stream, and a queue by way of a delayed exchange."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("plain", durable=True)
        channel.queue_declare("delayed", durable=True)
        channel.queue_declare("copies", durable=True)
        channel.queue_declare("stream", durable=True, arguments=_STREAM)
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
        channel.queue_bind("delayed", "later")
        for number in range(_MESSAGES):
            body = b"%d" % number
            channel.basic_publish("", "plain", body, _PERSISTENT)
            channel.basic_publish("", "stream", body, _PERSISTENT)
            channel.basic_publish("later", "", body, _DELAYED)


@pytest.mark.parametrize("call", [Call.READ, Call.OPEN], ids=["reads", "opens"])
def test_nothing_is_lost_or_closed(tmp_path: Path, call: Call) -> None:
    data = tmp_path.resolve() / "data"
    data.mkdir(mode=0o750)
    # Segments alone: directories are opened to be synced, and a sync that fails ends the broker.
    disk = PreloadedDisk(build(tmp_path), data, tmp_path, only=".seg")
    settings = {"log_level": "info"}
    with LeveretProcess(tmp_path.resolve(), settings=settings, environment=disk.environment) as process:
        publish(process.url)
        # Now nothing is in memory.
        process.stop()
        process.start()
        disk.fail(call, 0, 1 << 30, errno.EIO)
        arrivals = Arrivals(process.url)
        api = Management(process.http_url)
        state = partial(api.request, "GET", "jobs", "/")
        job = api.request("POST", "queues", "/", "stream", "replay", body={"into_queue": "copies"})["id"]
        try:
            wait_until(
                lambda: process.log_text().count("cannot be read for now, and wait") >= 3, "three lines in the log"
            )
            wait_until(lambda: "cannot be read for now" in state(job)["error"], "a waiting job")
            assert sum(arrivals.counts.values()) < 3 * _MESSAGES
            assert disk.succeed(call) > 3
            wait_until(lambda: len(arrivals.counts) == 3 * _MESSAGES, "the arrival of all messages")
            wait_until(lambda: state(job)["state"] == "completed", "the end of the replay")
        finally:
            arrivals.end()
        assert state(job)["returned"] == _MESSAGES
        assert set(arrivals.counts.values()) == {1}
        log = process.log_text()
        assert "Traceback" not in log
        assert "are lost" not in log


def test_a_purge_removes_what_cannot_be_read(tmp_path: Path) -> None:
    data = tmp_path.resolve() / "data"
    data.mkdir(mode=0o750)
    disk = PreloadedDisk(build(tmp_path), data, tmp_path, only=".seg")
    with LeveretProcess(tmp_path.resolve(), environment=disk.environment) as process:
        publish(process.url)
        process.stop()
        process.start()
        disk.fail(Call.READ, 0, 1 << 30, errno.EIO)
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            channel = connection.channel()
            assert channel.basic_get("plain")[0] is None
            assert channel.queue_purge("plain").method.message_count == _MESSAGES
        disk.succeed(Call.READ)
        process.stop()
        process.start()
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            assert connection.channel().queue_declare("plain", passive=True).method.message_count == 0
