"""Rules 15.13 to 15.15: one limit for all consumers of a channel (basic.qos with global=true)."""

from __future__ import annotations

from collections import Counter

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import bodies, counts, fill, new_queue, numbered
from tests.support.wire import Channel


def served(channel: Channel, count: int) -> list[str]:
    """Take deliveries one by one, each acknowledged before the next comes; return whose they were."""
    order = []
    for _ in range(count):
        delivery = channel.next_delivery()
        order.append(delivery.consumer_tag or "")
        channel.ack(delivery.delivery_tag)
    return order


def test_15_15_queues_take_turns(channel: Channel, unique: Unique) -> None:
    queues = [new_queue(channel, unique, *numbered(40)) for _ in range(3)]
    channel.qos(1, global_=True)
    for queue, tag in zip(queues, "abc", strict=True):
        channel.consume(queue, tag)
    order = Counter(served(channel, 90))
    # RabbitMQ draws the order, so it is fair in the long run only.
    assert min(order[tag] for tag in "abc") > 10
    assert max(order.values()) <= 40


def test_15_15_queues_that_are_published_to_take_turns(channel: Channel, connect: Connect, unique: Unique) -> None:
    queues = [new_queue(channel, unique, *numbered(10)) for _ in range(2)]
    publisher = connect().channel()
    channel.qos(1, global_=True)
    for queue, tag in zip(queues, "ab", strict=True):
        channel.consume(queue, tag)
    order: Counter[str] = Counter()
    for _ in range(60):
        publisher.publish("", queues[0], b"more")
        order.update(served(channel, 1))
        if order["b"] == 10:
            break
    assert order["b"] == 10


def test_15_15_consumers_of_a_queue_take_turns(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique)
    channel.qos(1, global_=True)
    for tag in "abc":
        channel.consume(queue, tag)
    fill(channel, queue, *numbered(12))
    assert served(channel, 12) == list("abcabcabcabc")


def test_15_15_a_new_consumer_has_its_turn_at_once(channel: Channel, unique: Unique) -> None:
    old = new_queue(channel, unique, *numbered(60))
    channel.qos(1, global_=True)
    channel.consume(old, "old")
    assert served(channel, 5) == ["old"] * 5
    new = new_queue(channel, unique, *numbered(3))
    channel.consume(new, "new")
    assert Counter(served(channel, 50))["new"] == 3


def test_15_13_no_ack_consumers_wait_while_there_is_no_room(channel: Channel, unique: Unique) -> None:
    acked, unacked = new_queue(channel, unique), new_queue(channel, unique)
    channel.qos(1, global_=True)
    channel.consume(acked, "acked")
    channel.consume(unacked, "unacked", no_ack=True)
    fill(channel, acked, b"1")
    held = channel.next_delivery()
    fill(channel, unacked, b"2", b"3")
    channel.expect_no_delivery(acked, unacked)
    assert counts(channel, unacked)[0] == 2
    channel.ack(held.delivery_tag)
    assert bodies(channel.deliveries(2)) == [b"2", b"3"]


def test_15_13_what_no_ack_consumers_get_takes_no_room(channel: Channel, unique: Unique) -> None:
    acked, unacked = new_queue(channel, unique), new_queue(channel, unique)
    channel.qos(1, global_=True)
    channel.consume(unacked, "unacked", no_ack=True)
    fill(channel, unacked, *numbered(5))
    assert bodies(channel.deliveries(5)) == numbered(5)
    channel.consume(acked, "acked")
    fill(channel, acked, b"1", b"2")
    assert channel.next_delivery().body == b"1"
    channel.expect_no_delivery(acked)


def test_15_13_no_ack_consumers_go_on_when_the_limit_is_lifted(channel: Channel, unique: Unique) -> None:
    acked, unacked = new_queue(channel, unique, b"1"), new_queue(channel, unique)
    channel.qos(1, global_=True)
    channel.consume(acked, "acked")
    channel.next_delivery()
    channel.consume(unacked, "unacked", no_ack=True)
    fill(channel, unacked, *numbered(3))
    channel.expect_no_delivery(unacked)
    channel.qos(0, global_=True)
    assert bodies(channel.deliveries(3)) == numbered(3)


def test_15_15_recover_gives_room_back(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    channel.qos(2, global_=True)
    channel.consume(queue)
    channel.ack(channel.deliveries(2)[0].delivery_tag)
    assert channel.next_delivery().body == b"3"
    channel.expect_no_delivery(queue)
    channel.recover(requeue=True)
    assert bodies(channel.deliveries(2)) == [b"2", b"3"]


def test_15_15_consumers_that_come_and_go(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(20))
    channel.qos(1, global_=True)
    for number in range(20):
        tag = channel.consume(queue).consumer_tag
        delivery = channel.next_delivery()
        assert delivery.body == b"%d" % (number + 1)
        channel.cancel(tag)
        channel.ack(delivery.delivery_tag)
    assert counts(channel, queue) == (0, 0)


def test_15_15_what_a_consumer_that_is_gone_holds_takes_room(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    channel.qos(1, global_=True)
    channel.consume(queue, "gone")
    held = channel.next_delivery()
    channel.consume(queue, "stays")
    channel.cancel("gone")
    channel.expect_no_delivery(queue)
    channel.ack(held.delivery_tag)
    assert channel.next_delivery().consumer_tag == "stays"
