"""Rules 1.5.1 to 1.5.7: messages that come back to a queue that is at its limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.bounded import REJECTING, bounded, outcomes, refill, take_dead_letters
from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.topology import bodies, counts, drain, got, new_queue, numbered
from tests.support.wire import Channel, Delivery

MAXLEN = "maxlen"


def nack_each(channel: Channel, unacked: list[Delivery]) -> None:
    for delivery in unacked:
        channel.nack(delivery.delivery_tag)


def reject_each(channel: Channel, unacked: list[Delivery]) -> None:
    for delivery in unacked:
        channel.reject(delivery.delivery_tag)


def nack_multiple(channel: Channel, unacked: list[Delivery]) -> None:
    channel.nack(unacked[-1].delivery_tag, multiple=True)


def recover(channel: Channel, unacked: list[Delivery]) -> None:
    channel.recover()


def close_channel(channel: Channel, unacked: list[Delivery]) -> None:
    channel.close()


def close_connection(channel: Channel, unacked: list[Delivery]) -> None:
    channel.connection.close()


def lose_connection(channel: Channel, unacked: list[Delivery]) -> None:
    channel.connection.abort()


Way = Callable[[Channel, list[Delivery]], None]
WAYS: list[Way] = [nack_each, reject_each, nack_multiple, recover, close_channel, close_connection, lose_connection]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def give_back(way: Way, channel: Channel, unacked: list[Delivery]) -> None:
    """Requeue messages; a channel that stays open has passed all of that on when this returns."""
    way(channel, unacked)
    if way in (nack_each, reject_each, nack_multiple, recover):
        channel.sync()


def taken(channel: Channel, queue: str, count: int) -> list[Delivery]:
    return [got(channel, queue) for _ in range(count)]


def test_1_5_1_a_requeued_message_is_the_first_to_go(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 1)
    refill(channel, queue, b"a")
    (unacked,) = taken(channel, queue, 1)
    refill(channel, queue, b"b")
    channel.nack(unacked.delivery_tag)
    left = got(channel, queue)
    assert (left.body, left.redelivered, left.message_count) == (b"b", False, 0)


def test_1_5_1_a_requeued_message_returns_to_its_place(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 4)
    refill(channel, queue, *numbered(4))
    unacked = taken(channel, queue, 3)
    channel.nack(unacked[1].delivery_tag)
    assert got(channel, queue).body == b"2"
    channel.nack(multiple=True)
    assert drain(channel, queue) == numbered(4)


@ways
@pytest.mark.parametrize("dead_letters", [False, True])
def test_1_5_2_every_way_back(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll, way: Way, dead_letters: bool
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 3, letters=letters if dead_letters else None)
    refill(channel, queue, b"u0", b"u1", b"u2")
    holder = connect().channel()
    unacked = taken(holder, queue, 3)
    refill(channel, queue, b"n0", b"n1")
    give_back(way, holder, unacked)
    poll(lambda: counts(channel, queue)[0] == 3)
    left = taken(channel, queue, 3)
    assert bodies(left) == [b"u2", b"n0", b"n1"]
    assert channel.get(queue) is None
    assert take_dead_letters(channel, letters) == ([(b"u0", MAXLEN), (b"u1", MAXLEN)] if dead_letters else [])


def test_1_5_3_the_limit_comes_before_redelivery(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 1)
    holder, idle = connect().channel(), connect().channel()
    holder.qos(2)
    holder.consume(queue, "tag")
    refill(channel, queue, b"older", b"younger")
    younger = holder.deliveries(2)[1]
    holder.cancel("tag")
    idle.consume(queue)
    holder.nack(younger.delivery_tag, multiple=True)
    redelivered = idle.next_delivery()
    assert (redelivered.body, redelivered.redelivered) == (b"younger", True)
    assert channel.get(queue) is None
    idle.expect_no_delivery(queue)


def test_1_5_3_messages_of_basic_get_come_back_one_by_one(channel: Channel, connect: Connect, unique: Unique) -> None:
    # A channel settles by consumer, and each get is one of its own.
    queue = bounded(channel, unique, 1)
    for body in (b"older", b"younger"):
        refill(channel, queue, body)
        got(channel, queue)
    idle = connect().channel()
    idle.consume(queue)
    channel.nack(multiple=True)
    assert bodies(idle.deliveries(2)) == [b"older", b"younger"]


@ways
@pytest.mark.parametrize("overflow", REJECTING)
def test_1_5_4_rejecting_queues_keep_what_is_requeued(
    channel: Channel, connect: Connect, unique: Unique, poll: Poll, way: Way, overflow: str
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 2, None, overflow, letters=letters)
    refill(channel, queue, *numbered(2))
    holder = connect().channel()
    unacked = taken(holder, queue, 2)
    refill(channel, queue, b"3", b"4")
    give_back(way, holder, unacked)
    poll(lambda: counts(channel, queue)[0] == 4)
    assert outcomes(channel, queue, b"x") == [False]
    assert bodies(taken(channel, queue, 2)) == [b"1", b"2"]
    assert outcomes(channel, queue, b"y") == [False]
    assert got(channel, queue).body == b"3"
    assert outcomes(channel, queue, b"5", b"z") == [True, False]
    assert drain(channel, queue) == [b"4", b"5"]
    dead = [(body, MAXLEN) for body in (b"x", b"y", b"z")]
    assert take_dead_letters(channel, letters) == (dead if overflow == "reject-publish-dlx" else [])


def test_1_5_4_bytes_of_what_is_requeued_count(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, None, 4, "reject-publish")
    refill(channel, queue, b"4444")
    (unacked,) = taken(channel, queue, 1)
    refill(channel, queue, b"333")
    channel.nack(unacked.delivery_tag)
    assert outcomes(channel, queue, b"", b"1") == [False, False]
    assert drain(channel, queue) == [b"4444", b"333"]


def test_1_5_5_a_cancelled_consumer_keeps_its_messages(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 3)
    consumer = connect().channel()
    consumer.qos(2)
    consumer.consume(queue, "tag")
    refill(channel, queue, *numbered(2))
    unacked = consumer.deliveries(2)
    consumer.cancel("tag")
    # There is room for them, and they do not come back.
    assert counts(channel, queue) == (0, 0)
    refill(channel, queue, b"3", b"4", b"5")
    assert counts(channel, queue) == (3, 0)
    consumer.ack(unacked[0].delivery_tag)
    consumer.nack(unacked[1].delivery_tag)
    assert drain(consumer, queue) == [b"3", b"4", b"5"]


def test_1_5_6_purge_leaves_unacked_messages(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 3)
    refill(channel, queue, *numbered(3))
    unacked = taken(channel, queue, 2)
    refill(channel, queue, b"4", b"5")
    assert channel.queue_purge(queue).message_count == 3
    refill(channel, queue, b"6", b"7")
    channel.nack(unacked[-1].delivery_tag, multiple=True)
    assert drain(channel, queue) == [b"2", b"6", b"7"]


def test_1_5_7_unrelated_policies_leave_what_is_over_the_limit(
    channel: Channel, unique: Unique, policy: SetPolicy
) -> None:
    queue = bounded(channel, unique, 1, None, "reject-publish")
    refill(channel, queue, b"1")
    (unacked,) = taken(channel, queue, 1)
    refill(channel, queue, b"2")
    channel.nack(unacked.delivery_tag)
    policy(queue, {"message-ttl": 600_000, "max-length": 5})
    assert counts(channel, queue) == (2, 0)
    policy(queue, {})
    assert drain(channel, queue) == [b"1", b"2"]
