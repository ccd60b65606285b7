"""A broker that is killed while a job replays a stream: no message is missing, and few are sent twice."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_COUNT = 12_000
_PATIENCE = 180.0
#: Messages that are sent again after a kill at most, as docs/streams.md says.
_REPEATED = 2048


def _fill(process: LeveretProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("copy", durable=True, arguments={"x-queue-mode": "lazy"})
        for number in range(_COUNT):
            if number == _COUNT - 1:
                channel.confirm_delivery()
            channel.basic_publish("", "log", b"%05d" % number, pika.BasicProperties(delivery_mode=2))


def _contents(process: LeveretProcess) -> list[int]:
    """Take all copies; each has the offset of its message."""
    with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
        channel = connection.channel()
        left = channel.queue_declare("copy", passive=True).method.message_count
        found: list[int] = []
        for _, properties, body in channel.consume("copy", auto_ack=True) if left else ():
            found.append(int(body))
            assert properties.headers["x-replayed-offset"] == found[-1]
            if len(found) == left:
                break
        return found


@pytest.mark.parametrize("sent_before", [[1], [3000], [2000, 5000, 9000]], ids=str)
def test_all_are_there(tmp_path: Path, sent_before: list[int]) -> None:
    with LeveretProcess(tmp_path) as process:
        _fill(process)
        api = Management(process.http_url)
        body = {"into_queue": "copy", "rate": 6000}
        job = api.request("POST", "queues", "/", "log", "replay", body=body)
        deadline = time.monotonic() + _PATIENCE
        for count in sent_before:
            while api.request("GET", "jobs", "/", job["id"])["next_offset"] < count:
                assert time.monotonic() < deadline
            process.kill()
            process.start()
            api = Management(process.http_url)
        if len(sent_before) == 3:
            # It could be the cause.
            assert api.request("GET", "jobs", "/", job["id"])["state"] == "paused"
            api.request("POST", "jobs", "/", job["id"], "resume")
        while (found := api.request("GET", "jobs", "/", job["id"]))["state"] == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert (found["state"], found["next_offset"], found["left_count"]) == ("completed", _COUNT, 0)
        copies = _contents(process)
        assert set(copies) == {*range(_COUNT)}
        assert len(copies) <= _COUNT + _REPEATED * len(sent_before)
