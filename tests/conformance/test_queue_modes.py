"""Rules 4.4.1 to 4.4.8: what clients see of a queue is the same in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bounded import limits, refill, take_dead_letters
from tests.conformance.deaths import arrivals, dead_letter_to
from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.queue_modes import DEFAULT, LAZY, NewQueue, durable, mode, persistence, queue_in_mode
from tests.conformance.topology import bodies, counts, drain, got, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

__all__ = ["durable", "mode", "persistence", "queue_in_mode"]


MAXLEN = "maxlen"


@pytest.mark.parametrize("given", [LAZY, DEFAULT])
def test_4_4_1_modes(channel: Channel, unique: Unique, given: Triple) -> None:
    queue = new_queue(channel, unique, b"m", arguments=[given])
    assert drain(channel, queue) == [b"m"]


def mixed() -> list[bytes]:
    """Bodies of all lengths, around those at which brokers treat them differently."""
    lengths = (0, 1, 100, 4095, 4096, 5000, 65_535, 65_536, 100_000, 131_000)
    return [b"%d:" % length + bytes(length) for length in lengths]


def test_4_4_8_order_and_content(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    expected = []
    for turn in range(3):
        expected += [b"%d." % turn + body for body in mixed()]
    refill(channel, queue, *expected[:10], **persistence)
    refill(channel, queue, *expected[10:20])
    refill(channel, queue, *expected[20:], priority=3, headers=[("k", "x", b"\xff")], **persistence)
    channel.consume(queue)
    found = channel.deliveries(len(expected), timeout=120)
    assert bodies(found) == expected
    assert [each.redelivered for each in found] == [False] * len(expected)
    assert found[0].properties == persistence
    assert found[10].properties == {}
    assert found[20].properties == {"priority": 3, "headers": [("k", "x", b"\xff")], **persistence}


def test_4_4_8_a_backlog(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    expected = [b"%d" % number for number in range(9000)]
    refill(channel, queue, *expected[:5000], **persistence)
    assert got(channel, queue, no_ack=True).message_count == 4999
    refill(channel, queue, *expected[5000:], **persistence)
    assert counts(channel, queue)[0] == 8999
    channel.qos(500)
    channel.consume(queue)
    found: list[Delivery] = []
    while len(found) < 8999:
        found += channel.deliveries(min(250, 8999 - len(found)))
        channel.ack(found[-1].delivery_tag, multiple=True)
    assert bodies(found) == expected[1:]


def test_4_4_8_a_closed_channel(
    connect: Connect, channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any], poll: Poll
) -> None:
    queue = queue_in_mode()
    refill(channel, queue, *numbered(300), **persistence)
    holder = connect().channel()
    holder.qos(200)
    tag = holder.consume(queue).consumer_tag
    unacked = holder.deliveries(200)
    holder.cancel(tag)
    for delivery in unacked[::2]:
        holder.ack(delivery.delivery_tag)
    holder.close()
    expected = numbered(300)
    expected = [*expected[1:200:2], *expected[200:]]
    poll(lambda: counts(channel, queue)[0] == 200)
    channel.consume(queue)
    found = channel.deliveries(200)
    assert [(each.body, each.redelivered) for each in found] == [(body, at < 100) for at, body in enumerate(expected)]


@pytest.mark.parametrize("dead_letters", [False, True])
def test_4_4_8_drop_head(
    channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any], dead_letters: bool
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(*limits(3, 100, letters=letters if dead_letters else None))
    refill(channel, queue, *numbered(4), **persistence)
    refill(channel, queue, b"x" * 96, **persistence)
    refill(channel, queue, b"last", **persistence)
    assert drain(channel, queue) == [b"x" * 96, b"last"]
    dead = [(body, MAXLEN) for body in numbered(4)]
    assert take_dead_letters(channel, letters) == (dead if dead_letters else [])


def test_4_4_8_a_limit_that_comes_later(
    channel: Channel, unique: Unique, policy: SetPolicy, durable: bool, persistence: dict[str, Any]
) -> None:
    """A queue has one policy, so this is for a mode by argument."""
    letters = new_queue(channel, unique, hint="letters")
    queue = new_queue(channel, unique, arguments=[LAZY, *dead_letter_to("", letters)], durable=durable)
    refill(channel, queue, *numbered(3000), **persistence)
    policy(queue, {"max-length": 2})
    assert arrivals(channel, letters, 2998) == numbered(2998)
    assert drain(channel, queue) == [b"2999", b"3000"]


def test_4_4_8_expiry(channel: Channel, unique: Unique, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = queue_in_mode(("x-message-ttl", "I", 300), *dead_letter_to("", letters))
    refill(channel, queue, *mixed(), **persistence)
    refill(channel, queue, b"at once", expiration="0", **persistence)
    assert arrivals(channel, letters, 11) == [*mixed(), b"at once"]
    assert counts(channel, queue)[0] == 0


def test_4_4_8_priorities(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode(("x-max-priority", "I", 2))
    for number in range(30):
        refill(channel, queue, b"%d" % number, priority=number % 4, **persistence)
    high = [b"%d" % number for number in range(30) if number % 4 >= 2]
    rest = [b"%d" % number for level in (1, 0) for number in range(30) if number % 4 == level]
    unacked = [got(channel, queue) for _ in range(16)]
    channel.nack(unacked[4].delivery_tag, multiple=True)
    assert drain(channel, queue) == [*high[:5], *[*high, *rest][16:]]


def test_4_4_8_purge_and_delete(channel: Channel, queue_in_mode: NewQueue, persistence: dict[str, Any]) -> None:
    queue = queue_in_mode()
    refill(channel, queue, *numbered(100), **persistence)
    held = got(channel, queue)
    assert channel.queue_purge(queue).message_count == 99
    refill(channel, queue, b"101", b"102", **persistence)
    channel.nack(held.delivery_tag)
    assert got(channel, queue, no_ack=True).body == b"1"
    assert channel.queue_delete(queue).message_count == 2
