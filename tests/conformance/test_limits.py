"""Rules 1.3.1 to 1.3.9: what counts towards a limit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.bounded import REJECTING, bounded, in_one_write, limits, outcomes, refill
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import bodies, drain, got, new_queue, numbered
from tests.support.wire import Channel

LARGE = {"headers": [("k", "S", "v" * 300)], "message_id": "m" * 200, "correlation_id": "c" * 200}


@pytest.mark.parametrize("limit", [{"length": 2}, {"size": 2}])
def test_1_3_1_unacked_messages_do_not_count(channel: Channel, unique: Unique, limit: dict[str, Any]) -> None:
    queue = bounded(channel, unique, **limit)
    refill(channel, queue, b"1", b"2")
    unacked = [got(channel, queue), got(channel, queue)]
    refill(channel, queue, b"3", b"4")
    assert bodies(unacked) == [b"1", b"2"]
    assert drain(channel, queue) == [b"3", b"4"]


@pytest.mark.parametrize("limit", [{"length": 2}, {"size": 2}])
def test_1_3_1_unacked_messages_do_not_count_when_publishes_are_rejected(
    channel: Channel, unique: Unique, limit: dict[str, Any]
) -> None:
    queue = bounded(channel, unique, overflow="reject-publish", **limit)
    assert outcomes(channel, queue, *numbered(3)) == [True, True, False]
    got(channel, queue)
    got(channel, queue)
    assert outcomes(channel, queue, *numbered(3)) == [True, True, False]


@pytest.mark.parametrize("body", [b"", b"12345"])
def test_1_3_2_only_bodies_count_as_bytes(channel: Channel, unique: Unique, body: bytes) -> None:
    queue = bounded(channel, unique, None, 10)
    refill(channel, queue, body, body, **LARGE)
    assert drain(channel, queue) == [body, body]


@pytest.mark.parametrize(
    ("limit", "published", "left"),
    [
        ({"length": 2}, [b"1", b"2"], [b"1", b"2"]),
        ({"length": 2}, [b"1", b"2", b"3"], [b"2", b"3"]),
        ({"size": 10}, [b"aaaaa", b"bbbbb"], [b"aaaaa", b"bbbbb"]),
        ({"size": 10}, [b"aaaaa", b"bbbbb", b""], [b"aaaaa", b"bbbbb", b""]),
        ({"size": 10}, [b"aaaaa", b"bbbbb", b"c"], [b"bbbbb", b"c"]),
    ],
)
def test_1_3_4_equal_to_the_limit_is_allowed(
    channel: Channel, unique: Unique, limit: dict[str, Any], published: list[bytes], left: list[bytes]
) -> None:
    queue = bounded(channel, unique, **limit)
    refill(channel, queue, *published)
    assert drain(channel, queue) == left


@pytest.mark.parametrize(
    ("published", "left"),
    [
        ([b"aaaaa", b"bbbbb", b"c"], [b"bbbbb", b"c"]),
        ([b"a", b"b", b"c", b"d"], [b"b", b"c", b"d"]),
        ([b"aaaa", b"b", b"c", b"ddddddddd"], [b"c", b"ddddddddd"]),
    ],
)
def test_1_3_5_whichever_limit_is_hit_first(
    channel: Channel, unique: Unique, published: list[bytes], left: list[bytes]
) -> None:
    queue = bounded(channel, unique, 3, 10)
    refill(channel, queue, *published)
    assert drain(channel, queue) == left


@pytest.mark.parametrize("limit", [{"length": 0}, {"size": 0}, {"size": 2}])
@pytest.mark.parametrize("no_ack", [False, True])
def test_1_3_6_a_message_that_goes_straight_to_a_consumer_is_not_limited(
    channel: Channel, connect: Connect, unique: Unique, limit: dict[str, Any], no_ack: bool
) -> None:
    queue = bounded(channel, unique, **limit)
    consumer = connect().channel()
    consumer.consume(queue, no_ack=no_ack)
    refill(channel, queue, b"larger", b"than the limit")
    assert bodies(consumer.deliveries(2)) == [b"larger", b"than the limit"]


@pytest.mark.parametrize("overflow", REJECTING)
@pytest.mark.parametrize("limit", [{"length": 0}, {"size": 2}])
def test_1_3_7_rejection_comes_before_consumers(
    channel: Channel, connect: Connect, unique: Unique, overflow: str, limit: dict[str, Any]
) -> None:
    queue = bounded(channel, unique, overflow=overflow, **limit)
    consumer = connect().channel()
    consumer.consume(queue)
    assert outcomes(channel, queue, b"large", b"larger") == [False, False]
    consumer.expect_no_delivery(queue)


@pytest.mark.parametrize(
    "options",
    [
        {"durable": False},
        {"durable": True},
        {"exclusive": True},
        {"auto_delete": True},
        {"exclusive": True, "name": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_1_3_8_any_kind_of_queue(channel: Channel, unique: Unique, options: dict[str, Any], overflow: str) -> None:
    given = dict(options)
    name = given.pop("name", None)
    queue: str = channel.queue_declare(
        unique() if name is None else name, arguments=limits(2, None, overflow), **given
    ).queue
    rejected = overflow == "reject-publish"
    for mode in (1, 2):
        outcome = outcomes(channel, queue, *numbered(4), properties={"delivery_mode": mode})
        assert outcome == [True, True, not rejected, not rejected]
        assert drain(channel, queue) == ([b"1", b"2"] if rejected else [b"3", b"4"])


def test_1_3_9_get_comes_after_pipelined_publishes(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 5)
    in_one_write(channel, queue, *numbered(50))
    delivery = got(channel, queue)
    assert (delivery.body, delivery.message_count) == (b"46", 4)


@pytest.mark.departs("none")
@pytest.mark.parametrize("passive", [False, True])
def test_1_3_9_declare_comes_after_pipelined_publishes(channel: Channel, unique: Unique, passive: bool) -> None:
    # 3.10.8 answers before it has got through with them.
    queue = new_queue(channel, unique)
    for count in (50, 100):
        in_one_write(channel, queue, *numbered(50))
        assert channel.queue_declare(queue, passive=passive).message_count == count
