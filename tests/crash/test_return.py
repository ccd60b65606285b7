"""A broker that is killed while a job returns dead letters: none is lost, and the job goes on."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_COUNT = 6_000
_PATIENCE = 180.0
_DEATH = {"queue": "work", "reason": "rejected", "exchange": "", "routing-keys": ["work"], "count": 1}
_HEADERS = {"x-first-death-queue": "work", "x-first-death-reason": "rejected", "x-death": [_DEATH]}


def _fill(process: LeveretProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True, arguments={"x-queue-mode": "lazy"})
        channel.queue_declare("work", durable=True)
        for number in range(_COUNT):
            if number == _COUNT - 1:
                channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=2, headers={**_HEADERS, "n": number})
            channel.basic_publish("", "dead", b"%05d" % number, properties)


def _contents(process: LeveretProcess, queue: str) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        left = channel.queue_declare(queue, passive=True).method.message_count
        found: list[bytes] = []
        for _, _, body in channel.consume(queue, auto_ack=True) if left else ():
            found.append(body)
            if len(found) == left:
                break
        return found


@pytest.mark.parametrize("returned_before", [1, 1000, 4000])
def test_all_are_there_again(tmp_path: Path, returned_before: int) -> None:
    # So that what is published here is a dead letter.
    with LeveretProcess(tmp_path, settings={"trust_publisher_x_death": "true"}) as process:
        _fill(process)
        api = Management(process.http_url)
        job = api.request("POST", "queues", "/", "dead", "return-messages", body={"rate": 4000})
        deadline = time.monotonic() + _PATIENCE
        while api.request("GET", "jobs", "/", job["id"])["returned"] < returned_before:
            assert time.monotonic() < deadline
        process.kill()
        process.start()
        api = Management(process.http_url)
        while api.request("GET", "jobs", "/", job["id"])["state"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _contents(process, "dead") == []
        found = _contents(process, "work")
        assert set(found) == {b"%05d" % number for number in range(_COUNT)}
        # Those of the last moments may be in both queues after the crash.
        assert len(found) < _COUNT + 2000
