"""A broker that is killed while messages move from one queue to another: none is lost."""

from __future__ import annotations

import http.client
import threading
import time
import zlib
from collections import Counter
from pathlib import Path

import pika
import pytest

from leveret.storage.event_format import EVENT_BYTES, EventKind, unpack_event
from tests.conformance.http_api import HttpApi, path
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_COUNT = 20_000
_PERSISTENT = pika.BasicProperties(delivery_mode=2)
_PATIENCE = 180.0


def _fill(process: LeveretProcess, queue: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(process.url))
    channel = connection.channel()
    for name in (queue, "work"):
        channel.queue_declare(name, durable=True)
    for number in range(_COUNT):
        channel.basic_publish("", queue, b"%05d" % number, _PERSISTENT)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"%05d" % _COUNT, _PERSISTENT)
    connection.close()


def _contents(process: LeveretProcess, queue: str) -> list[bytes]:
    connection = pika.BlockingConnection(pika.URLParameters(process.url))
    channel = connection.channel()
    left = channel.queue_declare(queue, passive=True).method.message_count
    found: list[bytes] = []
    for _, _, body in channel.consume(queue, auto_ack=True) if left else ():
        found.append(body)
        if len(found) == left:
            break
    connection.close()
    return found


@pytest.mark.parametrize("moved_before", [1, 3000, 12_000])
def test_what_was_moved_is_there_and_what_was_not_too(tmp_path: Path, moved_before: int) -> None:
    with LeveretProcess(tmp_path) as process:
        _fill(process, "dead")
        api = HttpApi(Management(process.http_url))

        def move() -> None:
            try:
                api.ask("POST", path("queues", "/", "dead", "move-messages"), {"to": "work"})
            except (OSError, http.client.HTTPException):
                pass

        moving = threading.Thread(target=move)
        moving.start()
        below, deadline = f"{path('queues', '/', 'work')}?columns=messages", time.monotonic() + _PATIENCE
        while api.get(below)["messages"] < moved_before:
            assert time.monotonic() < deadline
        process.kill()
        moving.join(_PATIENCE)
        process.start()
        moved, left = _contents(process, "work"), _contents(process, "dead")
        expected = {b"%05d" % number for number in range(_COUNT + 1)}
        assert set(moved) | set(left) == expected
        assert moved == sorted(moved)
        assert left == sorted(left)
        assert len(moved) == len(set(moved))
        # Not settled before the crash was what the last batch has moved, and what the disk did not know yet.
        assert len(moved) + len(left) < 2 * _COUNT


def _events(process: LeveretProcess) -> Counter[EventKind]:
    """How many messages left their queues, by kind of event."""
    found: Counter[EventKind] = Counter()
    for file in process.data_dir.rglob("ev-*"):
        octets = file.read_bytes()
        salt = zlib.crc32(octets[16:32])
        for at in range(EVENT_BYTES, len(octets) - EVENT_BYTES + 1, EVENT_BYTES):
            event = unpack_event(octets, at, salt)
            assert event is not None
            found[EventKind(event.kind)] += event.length
    return found


def test_the_event_log_says_that_they_moved(tmp_path: Path) -> None:
    with LeveretProcess(tmp_path) as process:
        _fill(process, "dead")
        api = HttpApi(Management(process.http_url))
        reply = api.ask("POST", path("queues", "/", "dead", "move-messages"), {"to": "work", "limit": 300})
        assert reply.document["moved"] == 300
    left = _events(process)
    assert (left[EventKind.MOVED], left[EventKind.ACK]) == (300, 0)
