"""Rules 15.10 to 15.13: which consumer gets a message."""

from __future__ import annotations

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import exclusive_use
from tests.conformance.topology import bodies, counts, exists, fill, got, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

SINGLE_ACTIVE: list[Triple] = [("x-single-active-consumer", "t", 1)]


def priority(value: int) -> list[Triple]:
    return [("x-priority", "I", value)]


def tags(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.consumer_tag for delivery in deliveries]


def test_15_10_round_robin(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    for tag in "abc":
        channel.consume(queue, tag, no_ack=True)
    fill(channel, queue, *numbered(7))
    deliveries = channel.deliveries(7)
    assert tags(deliveries) == list("abcabca")
    assert bodies(deliveries) == numbered(7)


def test_15_10_a_consumer_without_room_is_passed_over(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.qos(1)
    channel.consume(queue, "a")
    channel.qos(0)
    channel.consume(queue, "b")
    fill(channel, queue, *numbered(5))
    assert tags(channel.deliveries(5)) == list("abbbb")


def test_15_11_the_higher_priority_gets_all(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    for tag, value in (("low", -1), ("high", 10), ("other", 0)):
        channel.consume(queue, tag, no_ack=True, arguments=priority(value))
    fill(channel, queue, *numbered(4))
    assert tags(channel.deliveries(4)) == ["high"] * 4
    channel.cancel("high")
    fill(channel, queue, b"5", b"6")
    assert tags(channel.deliveries(2)) == ["other"] * 2


def test_15_11_round_robin_within_a_level(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    for tag, value in (("low", 1), ("a", 2), ("b", 2)):
        channel.consume(queue, tag, no_ack=True, arguments=priority(value))
    fill(channel, queue, *numbered(4))
    assert tags(channel.deliveries(4)) == list("abab")


def test_15_11_the_next_level_serves_while_the_higher_is_full(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "low", arguments=priority(-5))
    channel.qos(2)
    channel.consume(queue, "high", arguments=priority(5))
    channel.qos(1)
    channel.consume(queue, "default")
    fill(channel, queue, *numbered(4))
    deliveries = channel.deliveries(4)
    assert tags(deliveries) == ["high", "high", "default", "low"]
    channel.ack(deliveries[0].delivery_tag)
    fill(channel, queue, b"5")
    assert channel.next_delivery().consumer_tag == "high"


def test_15_12_single_active_consumer(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    channel.qos(1)
    for tag in ("first", "second", "third"):
        channel.consume(queue, tag)
    fill(channel, queue, b"1", b"2")
    first = channel.next_delivery()
    assert (first.consumer_tag, first.body) == ("first", b"1")
    channel.expect_no_delivery(queue)
    assert counts(channel, queue) == (1, 3)
    channel.ack(first.delivery_tag)
    second = channel.next_delivery()
    assert (second.consumer_tag, second.body) == ("first", b"2")


@pytest.mark.parametrize("end", ["cancel", "channel", "TCP"])
def test_15_12_the_next_one_takes_over(channel: Channel, connect: Connect, unique: Unique, end: str) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    active, waiting = connect().channel(), connect().channel()
    active.consume(queue, "active")
    waiting.consume(queue, "second")
    waiting.consume(queue, "third")
    fill(channel, queue, *numbered(3))
    active.deliveries(3)
    if end == "cancel":
        active.cancel("active")
    elif end == "channel":
        active.close()
    else:
        active.connection.abort()
    if end == "cancel":
        # What the old one has is still its own.
        fill(channel, queue, b"4")
        expected = [b"4"]
    else:
        expected = numbered(3)
    deliveries = waiting.deliveries(len(expected))
    assert tags(deliveries) == ["second"] * len(expected)
    assert bodies(deliveries) == expected
    assert [each.redelivered for each in deliveries] == [end != "cancel"] * len(expected)


@pytest.mark.departs("none")
def test_15_12_the_next_one_gets_what_is_ready_at_once(channel: Channel, connect: Connect, unique: Unique) -> None:
    # 3.10.8 waits for the next ack or publish.
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    active, waiting = connect().channel(), connect().channel()
    active.qos(1)
    active.consume(queue, "active")
    waiting.consume(queue, "waiting")
    fill(channel, queue, *numbered(3))
    held = active.next_delivery()
    active.cancel("active")
    assert bodies(waiting.deliveries(2)) == [b"2", b"3"]
    active.nack(held.delivery_tag)
    returned = waiting.next_delivery()
    assert (returned.body, returned.redelivered) == (b"1", True)


def test_15_12_the_highest_priority_takes_over(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    for tag, value in (("active", 0), ("low", 1), ("high", 5), ("late", 5)):
        channel.consume(queue, tag, no_ack=True, arguments=priority(value))
    found = []
    for tag in ("active", "high", "late", "low"):
        fill(channel, queue, b"x")
        found.append(channel.next_delivery().consumer_tag)
        channel.cancel(tag)
    assert found == ["active", "high", "late", "low"]


def test_15_12_a_later_higher_priority_waits(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    channel.consume(queue, "active", no_ack=True)
    channel.consume(queue, "high", no_ack=True, arguments=priority(10))
    fill(channel, queue, *numbered(3))
    assert tags(channel.deliveries(3)) == ["active"] * 3


@pytest.mark.parametrize("others", [False, True])
def test_15_12_no_exclusive_consumers(channel: Channel, unique: Unique, vhost: str, others: bool) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE)
    if others:
        channel.consume(queue)
    with channel.expect_channel_close(403, exclusive_use(queue, vhost), commands.Basic.Consume):
        channel.consume(queue, exclusive=True)


def test_15_12_get_is_allowed(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2", arguments=SINGLE_ACTIVE)
    channel.qos(1)
    channel.consume(queue)
    channel.next_delivery()
    assert got(connect().channel(), queue, no_ack=True).body == b"2"


def test_15_12_auto_delete_counts_waiting_consumers(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll
) -> None:
    queue = new_queue(channel, unique, arguments=SINGLE_ACTIVE, auto_delete=True)
    channel.consume(queue, "active")
    channel.consume(queue, "waiting")
    channel.cancel("active")
    assert counts(channel, queue) == (0, 1)
    channel.cancel("waiting")
    poll(lambda: not exists(connect, queue))


def test_15_13_no_ack_ignores_prefetch(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.qos(1)
    channel.qos(1, global_=True)
    channel.consume(queue, no_ack=True)
    fill(channel, queue, *numbered(5))
    assert bodies(channel.deliveries(5)) == numbered(5)
