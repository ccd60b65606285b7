"""Rules 15.20 to 15.26: delivery tags, basic.ack, basic.nack, basic.reject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.reply_texts import unknown_tag
from tests.conformance.topology import bodies, counts, drain, fill, got, new_queue, numbered
from tests.support.wire import Channel

Settle = Callable[[Channel, int], None]

SETTLING: dict[str, tuple[type[Any], Settle]] = {
    "ack": (commands.Basic.Ack, lambda channel, tag: channel.ack(tag)),
    "ack multiple": (commands.Basic.Ack, lambda channel, tag: channel.ack(tag, multiple=True)),
    "nack": (commands.Basic.Nack, lambda channel, tag: channel.nack(tag)),
    "nack multiple": (commands.Basic.Nack, lambda channel, tag: channel.nack(tag, multiple=True)),
    "reject": (commands.Basic.Reject, lambda channel, tag: channel.reject(tag)),
    "drop": (commands.Basic.Reject, lambda channel, tag: channel.reject(tag, requeue=False)),
}
settling = pytest.mark.parametrize("way", SETTLING)


def expect_unknown(channel: Channel, way: str, tag: int) -> None:
    method, settle = SETTLING[way]
    with channel.expect_channel_close(406, unknown_tag(tag), method):
        settle(channel, tag)


def test_15_20_tags_count_over_the_channel(channel: Channel, unique: Unique) -> None:
    first, second = new_queue(channel, unique), new_queue(channel, unique, b"1", b"2")
    assert got(channel, second).delivery_tag == 1
    assert channel.get(first) is None
    assert got(channel, second, no_ack=True).delivery_tag == 2
    channel.consume(first, no_ack=True)
    channel.consume(second)
    found = []
    for queue in (first, second, first):
        fill(channel, queue, b"x")
        found.append(channel.next_delivery().delivery_tag)
    assert found == [3, 4, 5]


def test_15_20_each_channel_counts_for_itself(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(4))
    other = channel.connection.channel()
    found = [got(each, queue).delivery_tag for each in (channel, other, channel, other)]
    assert found == [1, 1, 2, 2]


@settling
@pytest.mark.parametrize("tag", [1, 7, 2**64 - 1])
def test_15_21_never_sent(channel: Channel, way: str, tag: int) -> None:
    expect_unknown(channel, way, tag)


@settling
def test_15_21_already_settled(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    tag = got(channel, queue).delivery_tag
    got(channel, queue)
    channel.ack(tag)
    expect_unknown(channel, way, tag)


@settling
def test_15_21_delivered_without_acknowledgement(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    tag = got(channel, queue, no_ack=True).delivery_tag
    got(channel, queue)
    expect_unknown(channel, way, tag)


@settling
def test_15_21_of_another_channel(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1")
    tag = got(channel, queue).delivery_tag
    expect_unknown(channel.connection.channel(), way, tag)


@pytest.mark.parametrize("way", ["ack", "nack", "reject", "drop"])
def test_15_21_zero_without_multiple(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1")
    got(channel, queue)
    expect_unknown(channel, way, 0)


def test_15_22_multiple_settles_up_to_the_tag(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(5))
    tags = [got(channel, queue).delivery_tag for _ in range(5)]
    channel.ack(tags[1])
    channel.ack(tags[2], multiple=True)
    channel.nack(tags[4], multiple=True)
    assert drain(channel, queue) == [b"4", b"5"]


@pytest.mark.parametrize("way", ["ack multiple", "nack multiple"])
@pytest.mark.parametrize("tag", [2, 99])
def test_15_22_the_tag_itself_must_be_outstanding(
    channel: Channel, unique: Unique, poll: Poll, way: str, tag: int
) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    for _ in range(3):
        got(channel, queue)
    channel.ack(2)
    expect_unknown(channel, way, tag)
    other = channel.connection.channel()
    poll(lambda: counts(other, queue) == (2, 0))
    assert drain(other, queue) == [b"1", b"3"]


@pytest.mark.parametrize("way", ["ack multiple", "nack multiple"])
def test_15_23_zero_with_multiple_settles_all(channel: Channel, unique: Unique, way: str) -> None:
    first, second = new_queue(channel, unique, b"1", b"2"), new_queue(channel, unique, b"3")
    for queue in (first, first, second):
        got(channel, queue)
    SETTLING[way][1](channel, 0)
    left = [drain(channel, queue) for queue in (first, second)]
    assert left == ([[], []] if way == "ack multiple" else [[b"1", b"2"], [b"3"]])
    expect_unknown(channel, "ack", 1)


@pytest.mark.parametrize("way", ["ack multiple", "nack multiple"])
def test_15_23_zero_with_nothing_outstanding(channel: Channel, way: str) -> None:
    SETTLING[way][1](channel, 0)
    channel.sync()


@pytest.mark.parametrize("order", ["12345", "54321", "31524"])
@pytest.mark.parametrize("way", ["reject", "nack"])
def test_15_24_requeued_to_the_original_position(channel: Channel, unique: Unique, way: str, order: str) -> None:
    queue = new_queue(channel, unique, *numbered(6))
    tags = {b"%d" % n: got(channel, queue).delivery_tag for n in range(1, 6)}
    for body in order.encode():
        SETTLING[way][1](channel, tags[bytes([body])])
    again = [got(channel, queue) for _ in range(6)]
    assert bodies(again) == numbered(6)
    assert [each.redelivered for each in again] == [True] * 5 + [False]


def test_15_24_redelivered_stays_set(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1")
    found = []
    for _ in range(3):
        delivery = got(channel, queue)
        found.append(delivery.redelivered)
        channel.reject(delivery.delivery_tag)
    assert found == [False, True, True]


def test_15_25_back_to_the_same_consumer(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    channel.consume(queue)
    first, second = channel.deliveries(2)
    channel.reject(first.delivery_tag)
    again = channel.next_delivery()
    assert (again.body, again.delivery_tag, again.redelivered) == (b"1", 3, True)
    channel.ack(second.delivery_tag)
    channel.nack(again.delivery_tag)
    assert channel.next_delivery().delivery_tag == 4


@pytest.mark.parametrize("way", ["reject", "nack", "nack multiple"])
def test_15_25_without_requeue_it_is_gone(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    tag = got(channel, queue).delivery_tag
    if way == "reject":
        channel.reject(tag, requeue=False)
    else:
        channel.nack(tag, multiple=way == "nack multiple", requeue=False)
    assert drain(channel, queue) == [b"2"]


@pytest.mark.parametrize("end", ["channel", "connection", "TCP", "error"])
def test_15_26_what_is_unacked_at_the_end_is_requeued(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll, end: str
) -> None:
    queue = new_queue(channel, unique, *numbered(6))
    other = connect().channel()
    assert got(other, queue, no_ack=True).body == b"1"
    got(other, queue)
    other.qos(3)
    other.consume(queue)
    deliveries = other.deliveries(3)
    other.ack(deliveries[1].delivery_tag)
    other.deliveries(1)
    if end == "channel":
        other.close()
    elif end == "connection":
        other.connection.close()
    elif end == "TCP":
        other.connection.abort()
    else:
        with other.expect_channel_close(406, unknown_tag(99)):
            other.ack(99)
    poll(lambda: counts(channel, queue) == (4, 0))
    again = [got(channel, queue) for _ in range(4)]
    assert bodies(again) == [b"2", b"3", b"5", b"6"]
    assert [each.redelivered for each in again] == [True] * 4


def test_15_26_the_end_of_a_channel_serves_others(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    owner = connect().channel()
    owner.consume(queue)
    owner.deliveries(3)
    channel.consume(queue)
    owner.close()
    assert [(each.body, each.redelivered) for each in channel.deliveries(3)] == [(body, True) for body in numbered(3)]
