"""Rules 1.4.1 to 1.4.11: the oldest messages make room."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.bounded import bounded, in_one_write, limits, outcomes, refill, take_dead_letters
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import bodies, counts, drain, new_queue, numbered
from tests.support.wire import Channel

MAXLEN = "maxlen"


def letters_of(channel: Channel, unique: Unique) -> str:
    return new_queue(channel, unique, hint="letters")


def test_1_4_1_and_1_4_2_the_head_goes_after_the_new_message_came(channel: Channel, unique: Unique) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, 2, letters=letters)
    refill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"4", b"5"]
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"2", MAXLEN), (b"3", MAXLEN)]


def test_1_4_3_one_publish_may_evict_several(channel: Channel, unique: Unique) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, None, 10, letters=letters)
    ones = [b"%d" % number for number in range(10)]
    refill(channel, queue, *ones)
    assert counts(channel, queue) == (10, 0)
    refill(channel, queue, b"nine byte")
    assert drain(channel, queue) == [b"9", b"nine byte"]
    assert take_dead_letters(channel, letters) == [(body, MAXLEN) for body in ones[:9]]


@pytest.mark.parametrize("size", [11, 1000])
def test_1_4_4_oversized_body_evicts_everything_and_itself(channel: Channel, unique: Unique, size: int) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, None, 10, letters=letters)
    oversized = b"x" * size
    refill(channel, queue, b"1", b"", b"22")
    refill(channel, queue, oversized)
    assert drain(channel, queue) == []
    assert take_dead_letters(channel, letters) == [(body, MAXLEN) for body in (b"1", b"", b"22", oversized)]


def test_1_4_5_a_body_of_exactly_the_limit_evicts_all_others(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, None, 10)
    refill(channel, queue, b"1", b"22", b"x" * 10)
    assert drain(channel, queue) == [b"x" * 10]


def test_1_4_5_an_empty_head_does_not_have_to_go(channel: Channel, unique: Unique) -> None:
    # The head goes only as long as the queue is over its limit.
    queue = bounded(channel, unique, None, 10)
    refill(channel, queue, b"1", b"", b"x" * 10)
    assert drain(channel, queue) == [b"", b"x" * 10]


def test_1_4_6_length_zero(channel: Channel, unique: Unique) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, 0, letters=letters)
    refill(channel, queue, b"1", b"")
    assert channel.get(queue) is None
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"", MAXLEN)]


def test_1_4_7_zero_bytes(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, None, 0)
    refill(channel, queue, *[b""] * 100)
    assert counts(channel, queue) == (100, 0)
    refill(channel, queue, b"1")
    assert counts(channel, queue) == (0, 0)


def test_1_4_8_prefetch_one_at_length_zero(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = bounded(channel, unique, 0)
    consumer = connect().channel()
    consumer.qos(1)
    consumer.consume(queue)
    refill(channel, queue, *numbered(3))
    first = consumer.next_delivery()
    assert first.body == b"1"
    consumer.ack(first.delivery_tag)
    assert consumer.get(queue) is None
    consumer.expect_no_delivery(queue)
    refill(channel, queue, b"4")
    assert consumer.next_delivery().body == b"4"


def test_1_4_9_prefetch_and_a_limit(channel: Channel, connect: Connect, unique: Unique) -> None:
    letters = letters_of(channel, unique)
    queue = bounded(channel, unique, 2, letters=letters)
    consumer = connect().channel()
    consumer.qos(3)
    consumer.consume(queue)
    refill(channel, queue, *[b"m%d" % number for number in range(8)])
    assert bodies(consumer.deliveries(3)) == [b"m0", b"m1", b"m2"]
    consumer.expect_no_delivery(queue)
    assert drain(channel, queue) == [b"m6", b"m7"]
    assert take_dead_letters(channel, letters) == [(b"m3", MAXLEN), (b"m4", MAXLEN), (b"m5", MAXLEN)]


@pytest.mark.parametrize("limit", [{"length": 0}, {"length": 1}, {"size": 0}, {"size": 1}])
@pytest.mark.parametrize("mode", [1, 2])
def test_1_4_10_the_publisher_gets_acks(channel: Channel, unique: Unique, limit: dict[str, Any], mode: int) -> None:
    queue = new_queue(channel, unique, arguments=limits(**limit), durable=True)
    published = [b"1", b"22", b"", b"4"]
    assert outcomes(channel, queue, *published, properties={"delivery_mode": mode}) == [True] * 4


@pytest.mark.parametrize("limit", [{"length": 3}, {"size": 3}, {"length": 3, "size": 4}])
def test_1_4_11_never_more_than_the_limit_is_seen(
    channel: Channel, connect: Connect, unique: Unique, limit: dict[str, Any]
) -> None:
    queue = bounded(channel, unique, **limit)
    watcher = connect().channel()
    for _ in range(20):
        in_one_write(channel, queue, *[b"x"] * 50)
        channel.send(commands.Queue.Declare, queue=queue, passive=True)
        assert counts(watcher, queue)[0] <= 3
        assert channel.reply(commands.Queue.DeclareOk).message_count <= 3
    assert len(drain(channel, queue)) == 3
