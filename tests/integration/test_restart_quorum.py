"""Quorum queues after a stop and after a crash."""

from __future__ import annotations

import pytest

from tests.conformance.bounded import QUORUM, limits, refill, take_dead_letters
from tests.conformance.deaths import arrival, history
from tests.conformance.topology import counts, drain, got, numbered
from tests.integration.restarts import PERSISTENT, TRANSIENT, Restarts, process, restart
from tests.support.tables import plain
from tests.support.wire import Channel, Delivery

__all__ = ["process", "restart"]


def count(delivery: Delivery) -> object:
    return plain(delivery.headers).get("x-delivery-count")


def give_back(channel: Channel, queue: str, times: int) -> None:
    for _ in range(times):
        channel.nack(got(channel, queue).delivery_tag)
    channel.sync(queue)


def test_transient_messages_survive(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, QUORUM)
    refill(channel, queue, b"transient", **TRANSIENT)
    refill(channel, queue, b"persistent", **PERSISTENT)
    channel = restart()
    delivery = got(channel, queue)
    assert (delivery.body, delivery.properties["delivery_mode"]) == (b"transient", 1)
    assert drain(channel, queue) == [b"persistent"]


def test_the_delivery_count_goes_on(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, QUORUM)
    refill(channel, queue, b"m")
    give_back(channel, queue, 2)
    channel = restart()
    delivery = got(channel, queue)
    assert (delivery.body, delivery.redelivered, count(delivery)) == (b"m", True, 2)
    channel.nack(delivery.delivery_tag)
    assert count(got(channel, queue)) == 3


def test_a_delivery_count_of_a_publisher_does_not_count(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, QUORUM, *limits(letters=letters), ("x-delivery-limit", "I", 2))
    refill(channel, queue, b"m", headers=[("x-delivery-count", "l", 9)], **PERSISTENT)
    channel = restart()
    give_back(channel, queue, 2)
    assert counts(channel, queue)[0] == 1
    give_back(channel, queue, 1)
    assert take_dead_letters(channel, letters) == [(b"m", "delivery_limit")]


def test_the_delivery_limit_is_reached(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, QUORUM, *limits(letters=letters), ("x-delivery-limit", "I", 2))
    refill(channel, queue, b"m", **PERSISTENT)
    give_back(channel, queue, 2)
    channel = restart()
    give_back(channel, queue, 1)
    assert take_dead_letters(channel, letters) == [(b"m", "delivery_limit")]
    assert channel.get(queue) is None


def test_returned_messages_keep_their_new_places(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, QUORUM)
    refill(channel, queue, *numbered(4), **PERSISTENT)
    first, second = got(channel, queue), got(channel, queue)
    channel.nack(second.delivery_tag)
    channel.nack(first.delivery_tag)
    channel.sync(queue)
    channel = restart()
    assert drain(channel, queue) == [b"3", b"4", b"2", b"1"]


def test_unacked_messages_come_back(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, QUORUM)
    refill(channel, queue, *numbered(3))
    got(channel, queue)
    channel.ack(got(channel, queue).delivery_tag)
    channel.sync(queue)
    channel = restart()
    found = {}
    while (delivery := channel.get(queue)) is not None:
        found[delivery.body] = delivery.redelivered
    assert found.keys() == {b"1", b"3"}
    assert found[b"1"]


@pytest.mark.parametrize("reason", ["expired", "rejected"])
def test_letters_that_are_to_arrive_at_least_once_are_kept(restart: Restarts, reason: str) -> None:
    channel = restart.channel()
    letters = restart.new("letters")
    arguments = [*limits(overflow="reject-publish", letters=letters), ("x-dead-letter-strategy", "S", "at-least-once")]
    queue = restart.queue(channel, QUORUM, *arguments)
    refill(channel, queue, b"m", **({"expiration": "0"} if reason == "expired" else {}))
    if reason == "rejected":
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
        channel.sync(queue)
    # Nobody takes it, so it is kept, and nobody gets it from here.
    assert channel.get(queue) is None
    assert counts(channel, queue)[0] == 0
    restart.end()
    restart.process.start()
    channel = restart.channel()
    channel.queue_declare(letters, durable=True)
    if reason == "expired":
        # It had no target at the start either.
        assert restart.management.request("GET", "queues", "/", queue)["messages"] == 1
        channel = restart()
        letter = arrival(channel, letters)
    else:
        # That it had been rejected is forgotten; it is not.
        delivery = got(channel, queue)
        assert delivery.redelivered
        channel.reject(delivery.delivery_tag, requeue=False)
        letter = arrival(channel, letters)
    assert (letter.body, history(letter)) == (b"m", [(queue, reason, 1)])
