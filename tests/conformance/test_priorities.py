"""Rules 4.3.1 to 4.3.2: queues with priorities."""

from __future__ import annotations

import pytest

from tests.conformance.fixtures import Connect, Unique
from tests.conformance.http_api import HttpApi, path
from tests.conformance.operator_policies import NAME, USER, of, refusal
from tests.conformance.topology import bodies, drain, got, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel


def levels(maximum: int) -> list[Triple]:
    return [("x-max-priority", "s", maximum)]


def publish(channel: Channel, queue: str, *messages: tuple[bytes, int | None]) -> None:
    """Publish bodies with priorities and wait until they are enqueued."""
    for body, priority in messages:
        channel.publish("", queue, body, None if priority is None else {"priority": priority})
    channel.sync(queue)


def test_4_3_1_consumers_too(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(10))
    publish(channel, queue, *((b"%d" % number, number % 4) for number in range(1, 13)))
    channel.consume(queue, no_ack=True)
    expected = sorted(range(1, 13), key=lambda number: (-(number % 4), number))
    assert bodies(channel.deliveries(12)) == [b"%d" % number for number in expected]


def burst(channel: Channel, queue: str, priorities: list[int]) -> None:
    """Publish messages with these priorities, which are their bodies too, in one write."""
    with channel.connection.wire.gathering():
        for priority in priorities:
            channel.publish("", queue, b"%d" % priority, {"priority": priority})
    channel.sync(queue)


@pytest.mark.parametrize(
    ("prefetch", "expected"), [(1, [1, 9, 8, 7, 5, 5, 2]), (3, [1, 5, 9, 8, 7, 5, 2]), (0, [1, 5, 9, 2, 8, 7, 5])]
)
def test_4_3_1_an_idle_consumer_gets_what_comes_first(
    channel: Channel, connect: Connect, unique: Unique, prefetch: int, expected: list[int]
) -> None:
    queue = new_queue(channel, unique, arguments=levels(10))
    channel.qos(prefetch)
    channel.consume(queue)
    burst(connect().channel(), queue, [1, 5, 9, 2, 8, 7, 5])
    found = []
    for _ in expected:
        delivery = channel.next_delivery()
        found.append(int(delivery.body))
        channel.ack(delivery.delivery_tag)
    assert found == expected


def test_4_3_1_idle_consumers_take_turns(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(10))
    channel.qos(2)
    for tag in "ab":
        channel.consume(queue, tag)
    burst(connect().channel(), queue, [1, 2, 3, 4, 9, 8])
    deliveries = channel.deliveries(4)
    assert [(found.consumer_tag, found.body) for found in deliveries] == [
        ("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", b"4"),
    ]  # fmt: skip
    channel.ack(deliveries[0].delivery_tag)
    assert channel.next_delivery().body == b"9"


def test_4_3_1_no_priority_is_0(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(3))
    publish(channel, queue, (b"1", None), (b"2", 0), (b"3", None), (b"first", 1))
    assert drain(channel, queue) == [b"first", b"1", b"2", b"3"]


def test_4_3_1_above_the_maximum_is_the_maximum(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(3))
    publish(channel, queue, (b"low", 2), (b"1", 3), (b"2", 200), (b"3", 3), (b"4", 255))
    found = [got(channel, queue) for _ in range(5)]
    assert bodies(found) == [b"1", b"2", b"3", b"4", b"low"]
    assert [each.properties["priority"] for each in found] == [3, 200, 3, 255, 2]


@pytest.mark.parametrize("arguments", [levels(0), []], ids=["0", "none"])
def test_4_3_1_no_levels_are_a_plain_fifo(channel: Channel, unique: Unique, arguments: list[Triple]) -> None:
    queue = new_queue(channel, unique, arguments=arguments)
    publish(channel, queue, (b"1", 0), (b"2", 5), (b"3", None), (b"4", 255))
    found = [got(channel, queue) for _ in range(4)]
    assert bodies(found) == numbered(4)
    assert [each.properties.get("priority") for each in found] == [0, 5, None, 255]


def test_4_3_1_all_levels(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(255))
    publish(channel, queue, *((b"%d" % priority, priority) for priority in range(256)))
    assert drain(channel, queue) == [b"%d" % priority for priority in reversed(range(256))]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]], ids=str)
def test_4_3_2_a_requeue_puts_back(channel: Channel, unique: Unique, order: list[int]) -> None:
    queue = new_queue(channel, unique, arguments=levels(5))
    publish(channel, queue, (b"h1", 5), (b"l1", 1), (b"h2", 5), (b"l2", 1), (b"l3", 1))
    taken = [got(channel, queue) for _ in range(4)]
    assert bodies(taken) == [b"h1", b"h2", b"l1", b"l2"]
    publish(channel, queue, (b"h3", 5))
    for position in order:
        channel.nack(taken[position].delivery_tag)
    channel.sync(queue)
    found = [got(channel, queue) for _ in range(6)]
    assert bodies(found) == [b"h1", b"h2", b"h3", b"l1", b"l2", b"l3"]
    assert [each.redelivered for each in found] == [True, True, False, True, True, False]


def test_4_3_2_a_channel_that_ends_puts_all_back(channel: Channel, unique: Unique) -> None:
    queue = new_queue(channel, unique, arguments=levels(5))
    publish(channel, queue, (b"l1", 1), (b"h1", 5), (b"l2", 1), (b"h2", 5))
    other = channel.connection.channel()
    other.consume(queue)
    assert bodies(other.deliveries(4)) == [b"h1", b"h2", b"l1", b"l2"]
    other.close()
    publish(channel, queue, (b"h3", 5))
    assert drain(channel, queue) == [b"h1", b"h2", b"h3", b"l1", b"l2"]


@pytest.mark.parametrize(("key", "value"), [("max-priority", 5), ("x-max-priority", 5)])
def test_4_3_2_not_by_policy(api: HttpApi, vhost: str, key: str, value: int) -> None:
    answer = api.ask("PUT", path(USER, vhost, NAME), of({key: value}))
    expected = refusal(f'[{{<<"{key}">>,{value}}}] are not recognised policy settings')
    assert (answer.status, answer.document) == (400, expected)
