"""Quorum queues after a stop and after a crash."""

from __future__ import annotations

from tests.conformance.bounded import QUORUM, limits, refill, take_dead_letters
from tests.conformance.deaths import arrival, history
from tests.conformance.topology import counts, drain, got, numbered
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import PERSISTENT, TRANSIENT, Restarts
from tests.support.tables import Triple, plain
from tests.support.wire import Channel, Delivery


def count(delivery: Delivery) -> object:
    return plain(delivery.headers).get("x-delivery-count")


def give_back(channel: Channel, queue: str, times: int) -> None:
    for _ in range(times):
        channel.nack(got(channel, queue).delivery_tag)
    channel.sync(queue)


@row()
def transient_messages_survive(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, QUORUM)
    refill(channel, queue, b"transient", **TRANSIENT)
    refill(channel, queue, b"persistent", **PERSISTENT)
    channel = yield
    delivery = got(channel, queue)
    assert (delivery.body, delivery.properties["delivery_mode"]) == (b"transient", 1)
    assert drain(channel, queue) == [b"persistent"]


@row()
def a_delivery_count_of_a_publisher_does_not_count(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, QUORUM, *limits(letters=letters), ("x-delivery-limit", "I", 2))
    refill(channel, queue, b"m", headers=[("x-delivery-count", "l", 9)], **PERSISTENT)
    channel = yield
    give_back(channel, queue, 2)
    assert counts(channel, queue)[0] == 1
    give_back(channel, queue, 1)
    assert take_dead_letters(channel, letters) == [(b"m", "delivery_limit")]


@row()
def the_delivery_limit_is_reached(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, QUORUM, *limits(letters=letters), ("x-delivery-limit", "I", 2))
    refill(channel, queue, b"m", **PERSISTENT)
    give_back(channel, queue, 2)
    channel = yield
    give_back(channel, queue, 1)
    assert take_dead_letters(channel, letters) == [(b"m", "delivery_limit")]
    assert channel.get(queue) is None


@row(([], [b"3", b"4", b"2", b"1"]), ([("x-delivery-limit", "I", 5)], [b"2", b"1", b"3", b"4"]))
def returned_messages_keep_their_places_and_counts(
    place: Restarts, limit: list[Triple], expected: list[bytes]
) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, QUORUM, *limit)
    refill(channel, queue, *numbered(4), **PERSISTENT)
    first, second = got(channel, queue), got(channel, queue)
    channel.nack(second.delivery_tag)
    channel.nack(first.delivery_tag)
    channel.sync(queue)
    channel = yield
    found = [got(channel, queue) for _ in range(4)]
    assert [each.body for each in found] == expected
    assert {each.body: count(each) for each in found} == {b"1": 1, b"2": 1, b"3": 0, b"4": 0}


@row()
def unacked_messages_come_back(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, QUORUM)
    refill(channel, queue, *numbered(3))
    got(channel, queue)
    channel.ack(got(channel, queue).delivery_tag)
    channel.sync(queue)
    channel = yield
    found = {}
    while (delivery := channel.get(queue)) is not None:
        found[delivery.body] = delivery.redelivered
    assert found.keys() == {b"1", b"3"}
    assert found[b"1"]


@row("expired", "rejected")
def letters_that_are_to_arrive_at_least_once_are_kept(place: Restarts, reason: str) -> Steps:
    channel = place.channel()
    letters = place.new("letters")
    arguments = [*limits(overflow="reject-publish", letters=letters), ("x-dead-letter-strategy", "S", "at-least-once")]
    queue = place.queue(channel, QUORUM, *arguments)
    refill(channel, queue, b"m", **({"expiration": "0"} if reason == "expired" else {}))
    if reason == "rejected":
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
        channel.sync(queue)
    # Nobody takes it, so it is kept, and nobody gets it from here.
    assert channel.get(queue) is None
    assert counts(channel, queue)[0] == 0
    channel = yield
    channel.queue_declare(letters, durable=True)
    if reason == "expired":
        # It had no target at the start either.
        assert place.management.request("GET", "queues", "/", queue)["messages"] == 1
        channel = yield
        letter = arrival(channel, letters)
    else:
        # That it had been rejected is forgotten; it is not.
        delivery = got(channel, queue)
        assert delivery.redelivered
        channel.reject(delivery.delivery_tag, requeue=False)
        letter = arrival(channel, letters)
    assert (letter.body, history(letter)) == (b"m", [(queue, reason, 1)])
