"""Rules 15.14 to 15.16: basic.qos."""

from __future__ import annotations

from collections import Counter

import pytest
from pamqp import commands

from tests.conformance.fixtures import Unique
from tests.conformance.topology import bodies, counts, fill, got, new_queue, numbered
from tests.support.wire import Channel


def share(channel: Channel, count: int) -> Counter[str | None]:
    """Wait for `count` deliveries and count them by consumer tag."""
    return Counter(delivery.consumer_tag for delivery in channel.deliveries(count))


@pytest.mark.parametrize("global_", [False, True])
@pytest.mark.parametrize("size", [1, 4096])
def test_15_14_prefetch_size(channel: Channel, global_: bool, size: int) -> None:
    text = f"NOT_IMPLEMENTED - prefetch_size!=0 ({size})"
    with channel.expect_connection_close(540, text, commands.Basic.Qos):
        channel.qos(1, prefetch_size=size, global_=global_)


def test_15_15_a_limit_for_each_consumer(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.qos(2)
    channel.consume(queue, "two")
    channel.consume(queue, "two more")
    channel.qos(3)
    channel.consume(queue, "three")
    fill(channel, queue, *numbered(10))
    assert share(channel, 7) == {"two": 2, "two more": 2, "three": 3}
    channel.expect_no_delivery(queue)
    assert counts(channel, queue)[0] == 3


def test_15_15_an_acknowledgement_makes_room(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(5))
    channel.qos(2)
    channel.consume(queue)
    deliveries = channel.deliveries(2)
    channel.ack(deliveries[1].delivery_tag)
    assert channel.next_delivery().body == b"3"
    channel.expect_no_delivery(queue)
    channel.ack(3, multiple=True)
    assert bodies(channel.deliveries(2)) == [b"4", b"5"]


def test_15_15_a_later_limit_leaves_existing_consumers(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.qos(1)
    channel.consume(queue)
    channel.qos(0)
    fill(channel, queue, b"1", b"2")
    assert channel.next_delivery().body == b"1"
    channel.expect_no_delivery(queue)


def test_15_15_zero_is_no_limit(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(50))
    channel.qos(1)
    channel.qos(0)
    channel.consume(queue)
    assert bodies(channel.deliveries(50)) == numbered(50)


def test_15_15_a_limit_belongs_to_the_channel(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    channel.qos(1)
    channel.qos(1, global_=True)
    other = channel.connection.channel()
    other.consume(queue)
    assert bodies(other.deliveries(3)) == numbered(3)


def test_15_15_one_limit_for_the_channel(channel: Channel, unique: Unique) -> None:
    queues = [new_queue(channel, unique, *numbered(5)) for _ in range(2)]
    channel.qos(3, global_=True)
    for queue in queues:
        channel.consume(queue)
    channel.deliveries(3)
    channel.expect_no_delivery(*queues)
    channel.ack(3, multiple=True)
    channel.deliveries(3)
    channel.expect_no_delivery(*queues)


def test_15_15_the_channels_limit_works_at_once(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(6))
    channel.qos(1, global_=True)
    channel.consume(queue)
    assert channel.next_delivery().body == b"1"
    channel.expect_no_delivery(queue)
    channel.qos(4, global_=True)
    assert bodies(channel.deliveries(3)) == [b"2", b"3", b"4"]
    channel.expect_no_delivery(queue)
    channel.qos(0, global_=True)
    assert bodies(channel.deliveries(2)) == [b"5", b"6"]


def test_15_15_both_limits_hold(channel: Channel, unique: Unique) -> None:
    queues = [new_queue(channel, unique, *numbered(5)) for _ in range(2)]
    channel.qos(2)
    channel.qos(3, global_=True)
    for queue, tag in zip(queues, ("first", "second"), strict=True):
        channel.consume(queue, tag)
    assert share(channel, 3) == {"first": 2, "second": 1}
    channel.expect_no_delivery(*queues)


def test_15_15_a_limit_for_consumers_removes_the_channels(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(5))
    channel.qos(1, global_=True)
    channel.consume(queue)
    channel.next_delivery()
    channel.qos(1)
    assert bodies(channel.deliveries(4)) == numbered(5)[1:]


def test_15_16_gets_are_not_limited(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(5))
    channel.qos(1, global_=True)
    assert [got(channel, queue).body for _ in range(3)] == numbered(3)
    channel.consume(queue)
    assert channel.next_delivery().body == b"4"
    channel.expect_no_delivery(queue)


def test_15_16_gets_are_not_counted(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(8))
    channel.qos(3, global_=True)
    got(channel, queue)
    channel.consume(queue)
    assert bodies(channel.deliveries(3)) == [b"2", b"3", b"4"]
    channel.qos(5, global_=True)
    assert bodies(channel.deliveries(2)) == [b"5", b"6"]
    channel.expect_no_delivery(queue)


def test_15_16_lowering_below_the_outstanding_count(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(6))
    channel.qos(4, global_=True)
    channel.consume(queue)
    channel.deliveries(4)
    channel.qos(2, global_=True)
    channel.ack(2, multiple=True)
    channel.expect_no_delivery(queue)
    channel.ack(3)
    assert channel.next_delivery().body == b"5"
    channel.expect_no_delivery(queue)


@pytest.mark.parametrize("way", ["nack", "reject", "recover"])
def test_15_15_requeueing_makes_room(channel: Channel, unique: Unique, way: str) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    channel.qos(1)
    channel.consume(queue)
    tag = channel.next_delivery().delivery_tag
    if way == "nack":
        channel.nack(tag)
    elif way == "reject":
        channel.reject(tag)
    else:
        channel.recover()
    again = channel.next_delivery()
    assert (again.body, again.redelivered, again.delivery_tag) == (b"1", True, 2)
    channel.expect_no_delivery(queue)


def test_15_15_dropping_makes_room(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, b"1", b"2")
    channel.qos(1)
    channel.consume(queue)
    channel.reject(channel.next_delivery().delivery_tag, requeue=False)
    assert channel.next_delivery().body == b"2"
