"""Rules 1.7.1 to 1.7.5: in which order a queue does things."""

from __future__ import annotations

import pytest

from tests.conformance.bounded import bounded, limits, refill, take_dead_letters
from tests.conformance.deaths import arrival
from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.topology import counts, drain, new_queue, numbered
from tests.support.wire import Channel

MAXLEN = "maxlen"


def letters_of(channel: Channel, unique: Unique) -> str:
    return new_queue(channel, unique, hint="letters")


@pytest.mark.parametrize("dead_letters", [False, True])
def test_1_7_1_a_queue_with_time_to_live_zero(
    channel: Channel, unique: Unique, policy: SetPolicy, poll: Poll, dead_letters: bool
) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, letters=letters if dead_letters else None)
    refill(channel, queue, b"0", b"1")
    # What is there when a policy comes has no time to live; the limit tells that the policy is in force.
    policy(queue, {"message-ttl": 0, "max-length": 1})
    poll(lambda: counts(channel, queue)[0] == 1)
    refill(channel, queue, b"2")
    assert drain(channel, queue) == ([] if dead_letters else [b"1"])
    dead = [(b"0", MAXLEN), (b"1", MAXLEN), (b"2", "expired")]
    assert take_dead_letters(channel, letters) == (dead if dead_letters else [])


@pytest.mark.parametrize("dead_letters", [False, True])
def test_1_7_1_a_message_that_expires_at_once_first_evicts(
    channel: Channel, unique: Unique, dead_letters: bool
) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, 1, letters=letters if dead_letters else None)
    refill(channel, queue, b"stays")
    refill(channel, queue, b"expires", expiration="0")
    assert drain(channel, queue) == []
    dead = [(b"stays", MAXLEN), (b"expires", "expired")]
    assert take_dead_letters(channel, letters) == (dead if dead_letters else [])


def test_1_7_2_a_requeued_message_is_evicted_before_it_expires(channel: Channel, unique: Unique) -> None:
    letters, clock = letters_of(channel, unique), letters_of(channel, unique)
    queue, timer = bounded(channel, unique, 1, letters=letters), bounded(channel, unique, letters=clock)
    consumer = channel.connection.channel()
    consumer.consume(queue, "tag")
    refill(channel, queue, b"old", expiration="50")
    tag = consumer.next_delivery().delivery_tag
    consumer.cancel("tag")
    refill(channel, queue, b"new")
    refill(channel, timer, b"tick", expiration="60")
    assert arrival(channel, clock).body == b"tick"
    consumer.nack(tag)
    assert drain(consumer, queue) == [b"new"]
    assert take_dead_letters(channel, letters) == [(b"old", MAXLEN)]


def test_1_7_2_requeued_messages_expire_before_they_are_delivered(channel: Channel, unique: Unique) -> None:
    letters, clock = letters_of(channel, unique), letters_of(channel, unique)
    queue, timer = bounded(channel, unique, 1, letters=letters), bounded(channel, unique, letters=clock)
    consumer = channel.connection.channel()
    consumer.qos(1)
    consumer.consume(queue)
    refill(channel, queue, b"old", expiration="50")
    tag = consumer.next_delivery().delivery_tag
    refill(channel, timer, b"tick", expiration="60")
    assert arrival(channel, clock).body == b"tick"
    consumer.nack(tag)
    consumer.expect_no_delivery(queue)
    assert arrival(channel, letters).body == b"old"
    consumer.expect_no_delivery(queue)


def test_1_7_4_dead_letters_leave_one_by_one(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique, arguments=limits(2), hint="letters")
    queue = bounded(channel, unique, None, 5, letters=letters)
    refill(channel, queue, *numbered(5))
    refill(channel, queue, b"x" * 4)
    assert drain(channel, queue) == [b"5", b"x" * 4]
    assert take_dead_letters(channel, letters) == [(b"3", MAXLEN), (b"4", MAXLEN)]


def test_1_7_5_nothing_is_ready_while_a_consumer_has_room(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 10)
    full, roomy = connect().channel(), connect().channel()
    full.qos(1)
    full.consume(queue)
    roomy.qos(3)
    roomy.consume(queue)
    refill(channel, queue, *numbered(6))
    tag = full.next_delivery().delivery_tag
    roomy.deliveries(3)
    assert counts(channel, queue) == (2, 2)
    full.ack(tag)
    assert full.next_delivery().body == b"5"
    assert counts(channel, queue) == (1, 2)
    roomy.ack(0, multiple=True)
    assert roomy.next_delivery().body == b"6"
    assert counts(channel, queue) == (0, 2)
