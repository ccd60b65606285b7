"""Rule 15.12: in which order messages come back that a channel gives up, by itself or because it ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conformance.bounded import QUORUM, quorum
from tests.conformance.deaths import arrivals, dead_lettering
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.topology import counts, drain, fill, got, new_queue, numbered
from tests.support.wire import Channel, ChannelClosed, Connection


def reached(channel: Channel, queue: str, ready: int) -> bool:
    return counts(channel, queue)[0] == ready


def test_a_queue_gets_back_all_of_a_closed_channel_at_once(connection: Connection, unique: Unique, poll: Poll) -> None:
    channel, leaving = connection.channel(), connection.channel()
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 1)])
    for body in numbered(2):
        fill(channel, queue, body)
        got(leaving, queue)
    channel.consume(queue, "waiting")
    leaving.close()
    # The older one is over the limit before the consumer could have it.
    delivery = channel.next_delivery()
    assert (delivery.body, delivery.redelivered) == (b"2", True)
    poll(lambda: reached(channel, queue, 0))
    channel.expect_no_delivery(queue)


@pytest.mark.parametrize("consuming", [False, True])
def test_a_failed_channel_returns_gets_with_what_its_consumers_held(
    connect: Connect, channel: Channel, unique: Unique, poll: Poll, consuming: bool
) -> None:
    """Only those of queues that it does not consume from wait for channel.close-ok."""
    queue = new_queue(channel, unique, *numbered(3))
    failing = connect().channel()
    failing.answer_close = False
    got(failing, queue)
    if consuming:
        failing.qos(1)
        failing.consume(queue, "tag")
        assert failing.next_delivery().body == b"2"
    failing.ack(99)
    with pytest.raises(ChannelClosed):
        failing.sync()
    poll(lambda: reached(channel, queue, 3 if consuming else 2))
    assert drain(channel, queue) == (numbered(3) if consuming else [b"2", b"3"])


def test_consumers_of_a_channel_settle_in_the_order_of_their_tags(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.qos(2)
    for tag in ("y", "x"):
        channel.consume(queue, tag)
    fill(channel, queue, *numbered(4))
    assert [(each.body, each.consumer_tag) for each in channel.deliveries(4)] == [
        (b"1", "y"),
        (b"2", "x"),
        (b"3", "y"),
        (b"4", "x"),
    ]
    channel.nack(0, multiple=True, requeue=False)
    assert arrivals(channel, letters, 4) == [b"2", b"4", b"1", b"3"]


def test_gets_settle_before_consumers(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, *numbered(4))
    channel.qos(2)
    channel.consume(queue, "a")
    channel.deliveries(2)
    for _ in range(2):
        got(channel, queue)
    channel.nack(0, multiple=True, requeue=False)
    assert arrivals(channel, letters, 4) == [b"3", b"4", b"1", b"2"]


def test_room_is_for_what_waits_and_not_for_a_dead_letter_that_comes_back(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-priority", "I", 1), ("x-dead-letter-exchange", "S", "")])
    channel.publish("", queue, b"high", {"priority": 1})
    fill(channel, queue, b"low")
    channel.qos(1)
    channel.consume(queue, "tag")
    channel.nack(channel.next_delivery().delivery_tag, requeue=False)
    assert channel.next_delivery().body == b"low"
    channel.ack(2)
    assert channel.next_delivery().body == b"high"


def taken(channel: Channel, queue: str, count: int) -> list[int]:
    """Get messages; return their delivery tags."""
    return [got(channel, queue).delivery_tag for _ in range(count)]


def filled_quorum(channel: Channel, unique: Unique, poll: Poll, **given: Any) -> str:
    """Declare a quorum queue with the messages 1 to 4."""
    queue = quorum(channel, unique, **given)
    fill(channel, queue, *numbered(4))
    poll(lambda: reached(channel, queue, 4))
    return queue


def test_a_quorum_queue_with_a_delivery_limit_puts_returned_messages_first(
    channel: Channel, unique: Unique, poll: Poll
) -> None:
    queue = filled_quorum(channel, unique, poll, arguments=[("x-delivery-limit", "I", 5)])
    first, second = taken(channel, queue, 2)
    channel.nack(second)
    channel.nack(first)
    poll(lambda: reached(channel, queue, 4))
    # In the order in which they came back.
    assert drain(channel, queue) == [b"2", b"1", b"3", b"4"]


@pytest.mark.parametrize("limit", [[], [("x-delivery-limit", "I", 5)]], ids=["unlimited", "limited"])
def test_a_quorum_queue_puts_messages_of_a_closed_channel_first(
    connection: Connection, unique: Unique, poll: Poll, limit: list[Any]
) -> None:
    channel, leaving = connection.channel(), connection.channel()
    queue = filled_quorum(channel, unique, poll, arguments=limit)
    leaving.qos(2)
    leaving.consume(queue, "tag")
    leaving.deliveries(2)
    leaving.close()
    poll(lambda: reached(channel, queue, 4))
    found = [got(channel, queue, no_ack=True) for _ in range(4)]
    assert [(each.body, each.redelivered) for each in found] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
        (b"4", False),
    ]


@pytest.mark.parametrize("limit", [[], [("x-delivery-limit", "I", 5)]], ids=["unlimited", "limited"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)], ids=str)
@pytest.mark.parametrize("how", ["channel", "connection", "dropped"])
def test_6_1_5_consumers_that_end_return_behind_those_that_ended_before(
    connect: Connect, channel: Channel, unique: Unique, poll: Poll, limit: list[Any], order: tuple[int, ...], how: str
) -> None:
    queue = quorum(channel, unique, arguments=limit)
    fill(channel, queue, *numbered(8))
    poll(lambda: reached(channel, queue, 8))
    leaving = [holding(connect, queue, 2) for _ in order]
    for count, at in enumerate(order, start=1):
        end(leaving[at], how)
        poll(partial(reached, channel, queue, 2 + 2 * count))
    returned = [body for at in order for body in numbered(8)[2 * at : 2 * at + 2]]
    # Whoever gets some of them and ends, too, returns them behind the others.
    end(holding(connect, queue, 3), how)
    poll(lambda: reached(channel, queue, 8))
    assert drain(channel, queue) == [*returned[3:], *returned[:3], b"7", b"8"]


def holding(connect: Connect, queue: str, count: int) -> Channel:
    """Return a channel of its own connection that has got this many messages, and gets no more."""
    channel = connect().channel()
    channel.qos(count)
    channel.consume(queue)
    channel.deliveries(count)
    return channel


def end(channel: Channel, how: str) -> None:
    """Close a channel or its connection, or end that without a word."""
    ends = {"channel": channel.close, "connection": channel.connection.close, "dropped": channel.connection.abort}
    ends[how]()


def test_a_quorum_queue_redelivers_before_it_looks_at_its_limit(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=[QUORUM, ("x-max-length", "I", 0)], durable=True)
    channel.consume(queue, "tag")
    channel.publish("", queue, b"one")
    channel.nack(channel.next_delivery().delivery_tag)
    delivery = channel.next_delivery()
    assert (delivery.body, delivery.redelivered) == (b"one", True)
