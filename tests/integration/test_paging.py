"""Memory: queues page out before the watermark, publishers wait above it, and nothing is lost by either."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.wire import Channel, Connection

_PATIENCE = 60.0
PERSISTENT, TRANSIENT = {"delivery_mode": 2}, {"delivery_mode": 1}
#: Bytes that a broker takes before it has done anything, and some more.
_IDLE = 90_000_000
#: It always takes more than a quarter of this, so whatever is worth it leaves memory.
_PAGES_ALL = {"vm_memory_high_watermark.absolute": 150_000_000, "vm_memory_high_watermark_paging_ratio": 0.25}

Start = Callable[..., LeveretProcess]


@contextmanager
def connected(process: LeveretProcess) -> Iterator[Channel]:
    with Connection(process.url, timeout=_PATIENCE) as connection:
        yield connection.channel()


def body_of(number: int, size: int) -> bytes:
    return b"%d:" % number + bytes(size)


def fill(channel: Channel, queue: str, count: int, size: int, properties: dict[str, Any]) -> None:
    """Publish messages, all of which must be confirmed."""
    publisher = channel.connection.channel()
    publisher.confirm_select()
    for number in range(count):
        publisher.publish("", queue, body_of(number, size), properties)
    assert all(publisher.wait_for_confirms(count))
    publisher.close()


def drain(channel: Channel, queue: str, count: int, size: int) -> None:
    """Take all messages, which must be what was published."""
    channel.qos(200)
    channel.consume(queue)
    for number in range(count):
        delivery = channel.next_delivery()
        assert (delivery.body, delivery.redelivered) == (body_of(number, size), False)
        if number % 100 == 99:
            channel.ack(delivery.delivery_tag, multiple=True)
    channel.ack(multiple=True)
    channel.expect_no_delivery(queue)


def shown(process: LeveretProcess, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = Management(process.http_url).request("GET", "queues", "/", queue)
    return found


def resident(process: LeveretProcess) -> int:
    with open(f"/proc/{process.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("durable", "properties"),
    [(True, PERSISTENT), (True, TRANSIENT), (False, TRANSIENT)],
    ids=["persistent", "transient in a durable queue", "transient queue"],
)
@pytest.mark.parametrize("priorities", [False, True])
def test_queues_page_out(leveret_process: Start, durable: bool, properties: dict[str, Any], priorities: bool) -> None:
    process = leveret_process(settings=_PAGES_ALL)
    with connected(process) as channel:
        arguments = [("x-max-priority", "I", 3)] if priorities else []
        channel.queue_declare("q", durable=durable, arguments=arguments)
        fill(channel, "q", 3000, 10_000, properties)
        wait_until(lambda: shown(process, "q")["message_bytes_ram"] < 2_000_000, "the queue pages out", timeout=120)
        found = shown(process, "q")
        assert (found["messages"], found["messages_ready"]) == (3000, 3000)
        if properties is TRANSIENT:
            assert found["messages_paged_out"] == 3000 - found["messages_ram"]
        drain(channel, "q", 3000, 10_000)
        assert shown(process, "q")["messages"] == 0


def test_a_requeued_message_of_a_paged_out_queue_returns_to_its_place(leveret_process: Start) -> None:
    process = leveret_process(settings=_PAGES_ALL)
    with connected(process) as channel:
        channel.queue_declare("q")
        fill(channel, "q", 1000, 10_000, TRANSIENT)
        held = [channel.get("q") for _ in range(3)]
        wait_until(lambda: shown(process, "q")["message_bytes_ram"] < 2_000_000, "the queue pages out", timeout=120)
        assert all(held)
        channel.nack(multiple=True)
        for number in range(1000):
            delivery = channel.get("q", no_ack=True)
            assert delivery is not None
            assert (delivery.body, delivery.redelivered) == (body_of(number, 10_000), number < 3)


def test_publishers_wait_above_the_watermark_until_consumers_have_made_room(leveret_process: Start) -> None:
    # What consumers hold cannot be paged out.
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": _IDLE + 60_000_000})
    with connected(process) as channel, connected(process) as publisher:
        channel.queue_declare("q", durable=True)
        channel.consume("q")
        publisher.confirm_select()
        sent = 0
        while publisher.connection.blocked is None:
            assert sent < 4000, "no alarm"
            publisher.publish("", "q", body_of(sent, 100_000), PERSISTENT)
            sent += 1
            publisher.wait_until(partial(_has_answered, publisher, sent), "confirm or connection.blocked")
            _read(channel)
        # What it has published last waits.
        found = [delivery.body for delivery in channel.deliveries(sent - 1)]
        channel.expect_no_delivery("q")
        channel.ack(multiple=True)
        found.append(channel.next_delivery().body)
        assert found == [body_of(number, 100_000) for number in range(sent)]
        channel.ack(multiple=True)
        publisher.wait_until(lambda: publisher.connection.blocked is None, "connection.unblocked")
        assert all(publisher.wait_for_confirms(sent))
        channel.sync("q")
    assert "memory alarm set" in process.log_text()


def _has_answered(publisher: Channel, sent: int) -> bool:
    confirms = publisher.confirms
    return publisher.connection.blocked is not None or bool(confirms and confirms[-1].delivery_tag == sent)


def _read(channel: Channel) -> None:
    try:
        while True:
            channel.connection.read(0.001)
    except TimeoutError:
        pass


@pytest.mark.parametrize("properties", [PERSISTENT, TRANSIENT], ids=["persistent", "transient"])
def test_a_backlog_beyond_the_watermark(leveret_process: Start, properties: dict[str, Any]) -> None:
    """Without any consumer: what is paged out makes room for more, and the alarm clears by itself."""
    limit = _IDLE + 30_000_000
    process = leveret_process(settings={"vm_memory_high_watermark.absolute": limit})
    with connected(process) as channel:
        channel.queue_declare("q", durable=True)
        fill(channel, "q", 2000, 100_000, properties)
        assert shown(process, "q")["messages"] == 2000
        wait_until(lambda: resident(process) < limit, "memory is given back", timeout=120)
        drain(channel, "q", 2000, 100_000)
