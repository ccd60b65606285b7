"""Rule 4.4.2: a policy changes the mode of a queue that is in use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.bounded import outcomes, refill
from tests.conformance.fixtures import Connect, SetPolicy, Unique
from tests.conformance.topology import bodies, counts, drain, got, new_queue, numbered
from tests.support.wire import Channel

SWITCHES = [("default", "lazy"), ("lazy", "default")]
switches = pytest.mark.parametrize(("before", "after"), SWITCHES)
durably = pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])


def persistence(durable: bool) -> dict[str, Any]:
    return {"delivery_mode": 2 if durable else 1}


@contextmanager
def switching(policy: SetPolicy, queue: str) -> Iterator[None]:
    """Change the mode again and again, in a thread, while the block runs, and a last time after it."""
    done = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        modes = ["lazy", "default"]
        try:
            while not done.is_set():
                policy(queue, {"queue-mode": modes[0]})
                modes.reverse()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    for failure in failures:
        raise failure


@durably
@switches
def test_4_4_2_a_switch_keeps_everything(
    channel: Channel, unique: Unique, policy: SetPolicy, before: str, after: str, durable: bool
) -> None:
    queue = new_queue(channel, unique, durable=durable)
    policy(queue, {"queue-mode": before})
    expected = [b"%d" % number for number in range(5000)]
    refill(channel, queue, *expected[:4000], **persistence(durable))
    refill(channel, queue, *expected[4000:4500])
    policy(queue, {"queue-mode": after})
    refill(channel, queue, *expected[4500:], **persistence(durable))
    assert counts(channel, queue)[0] == 5000
    channel.consume(queue, no_ack=True)
    assert bodies(channel.deliveries(5000, timeout=120)) == expected


@durably
@switches
def test_4_4_2_a_switch_with_unacked_and_requeued_messages(
    channel: Channel, unique: Unique, policy: SetPolicy, before: str, after: str, durable: bool
) -> None:
    queue = new_queue(channel, unique, durable=durable)
    policy(queue, {"queue-mode": before})
    refill(channel, queue, *numbered(10), **persistence(durable))
    unacked = [got(channel, queue) for _ in range(6)]
    channel.nack(unacked[4].delivery_tag)
    channel.nack(unacked[1].delivery_tag)
    policy(queue, {"queue-mode": after})
    refill(channel, queue, b"11", **persistence(durable))
    channel.nack(unacked[0].delivery_tag)
    channel.ack(unacked[2].delivery_tag)
    policy(queue, {"queue-mode": before})
    channel.recover()
    left = [got(channel, queue) for _ in range(10)]
    expected = [b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"9", b"10", b"11"]
    assert [(each.body, each.redelivered) for each in left] == [(body, at < 5) for at, body in enumerate(expected)]
    channel.ack(multiple=True)
    channel.sync(queue)
    assert counts(channel, queue)[0] == 0


@durably
def test_4_4_2_an_argument_is_not_switched(channel: Channel, unique: Unique, policy: SetPolicy, durable: bool) -> None:
    queue = new_queue(channel, unique, durable=durable, arguments=[("x-queue-mode", "S", "lazy")])
    refill(channel, queue, *numbered(10), **persistence(durable))
    policy(queue, {"queue-mode": "default"})
    refill(channel, queue, b"11", **persistence(durable))
    assert drain(channel, queue) == numbered(11)


@durably
@pytest.mark.parametrize("priority", [None, 3])
def test_4_4_2_switches_under_load(
    connect: Connect, channel: Channel, unique: Unique, policy: SetPolicy, durable: bool, priority: int | None
) -> None:
    """Messages are published and consumed meanwhile; some are returned. All arrive, in order."""
    arguments = [("x-max-priority", "I", priority)] if priority else []
    queue = new_queue(channel, unique, durable=durable, arguments=arguments)
    consumer = connect().channel()
    consumer.qos(100)
    expected = [b"%d:" % number + bytes(number * 37 % 6000) for number in range(4000)]
    received: list[bytes] = []

    def settle(give_back: bool) -> None:
        """Acknowledge most of what has come, and return the rest to where it was."""
        consumer.sync(queue)
        pending = consumer.pending
        while len(pending) > 20 or (pending and not give_back):
            received.append(pending[0].body)
            consumer.ack(pending.popleft().delivery_tag)
        if give_back:
            consumer.cancel("tag")
            pending.clear()
            consumer.nack(multiple=True)
            consumer.consume(queue, "tag")

    with switching(policy, queue):
        for at in range(0, 4000, 200):
            assert all(outcomes(channel, queue, *expected[at : at + 200], properties=persistence(durable)))
            if at == 1000:
                consumer.consume(queue, "tag")
            if at > 1000:
                settle(give_back=at % 600 == 0)
        while len(received) < 4000:
            settle(give_back=False)
    assert received == expected
    consumer.sync(queue)
    assert counts(channel, queue)[0] == 0
