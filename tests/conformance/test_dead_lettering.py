"""Rules 2.2.6 to 2.2.13: which messages are dead-lettered, and where they come to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.deaths import arrival, arrivals, dead_letter, dead_letter_to, dead_lettering, deaths, reject
from tests.conformance.fixtures import Connect, Unique
from tests.conformance.topology import bodies, bound_queue, drain, exists, fill, got, new_exchange, new_queue, numbered
from tests.support.tables import Triple
from tests.support.wire import Channel

Act = Callable[[Channel, str], object]

# What happens to a queue's only message, and the reason for which it is dead-lettered then.
EVENTS: list[tuple[str, list[Triple], Act, str]] = [
    ("reject", [], lambda channel, queue: channel.reject(got(channel, queue).delivery_tag, requeue=False), "rejected"),
    ("nack", [], lambda channel, queue: channel.nack(got(channel, queue).delivery_tag, requeue=False), "rejected"),
    ("ttl", [("x-message-ttl", "I", 20)], lambda channel, queue: None, "expired"),
    ("maxlen", [("x-max-length", "I", 1)], lambda channel, queue: fill(channel, queue, b"more"), "maxlen"),
    ("maxbytes", [("x-max-length-bytes", "I", 5)], lambda channel, queue: fill(channel, queue, b"more"), "maxlen"),
]
# What removes messages without dead-lettering them.
REMOVALS: list[tuple[str, Act]] = [
    ("ack", lambda channel, queue: channel.ack(got(channel, queue).delivery_tag)),
    ("get without ack", lambda channel, queue: got(channel, queue, no_ack=True)),
    ("purge", lambda channel, queue: channel.queue_purge(queue)),
    ("delete", lambda channel, queue: channel.queue_delete(queue)),
]


@pytest.mark.parametrize(
    ("type_", "key"), [("direct", "dead"), ("fanout", "other"), ("topic", "*"), ("headers", "other")]
)
def test_2_2_6_any_exchange_type(channel: Channel, unique: Unique, type_: str, key: str) -> None:
    exchange = new_exchange(channel, unique, type_)
    letters = new_queue(channel, unique)
    reason: list[Triple] = [("x-match", "S", "all-with-x"), ("x-first-death-reason", "S", "rejected")]
    channel.queue_bind(letters, exchange, key, arguments=reason)
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange, "dead"))
    assert dead_letter(channel, queue, letters).body == b"one"


def test_2_2_6_an_internal_exchange(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout", internal=True)
    letters = bound_queue(channel, unique, exchange, "")
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange))
    assert dead_letter(channel, queue, letters).exchange == exchange


def test_2_2_6_an_alternate_exchange(channel: Channel, unique: Unique) -> None:
    alternate = new_exchange(channel, unique, "fanout")
    letters = bound_queue(channel, unique, alternate, "")
    exchange = new_exchange(channel, unique, arguments=[("alternate-exchange", "S", alternate)])
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange, "key"))
    letter = dead_letter(channel, queue, letters)
    assert (letter.exchange, letter.routing_key) == (exchange, "key")


def test_2_2_7_the_exchange_is_looked_up_at_each_event(channel: Channel, unique: Unique) -> None:
    exchange = unique("x")
    queue = new_queue(channel, unique, b"1", b"2", b"3", arguments=dead_letter_to(exchange))
    reject(channel, queue)
    channel.exchange_declare(exchange, "fanout")
    letters = bound_queue(channel, unique, exchange, "")
    assert dead_letter(channel, queue, letters).body == b"2"
    channel.exchange_delete(exchange)
    reject(channel, queue)
    assert drain(channel, letters) == []
    assert drain(channel, queue) == []


def test_2_2_8_letters_without_a_queue_are_dropped(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = new_queue(channel, unique, arguments=[*dead_letter_to(exchange, "none"), ("x-max-length", "I", 0)])
    channel.confirm_select()
    channel.publish("", queue, b"one", mandatory=True)
    assert channel.wait_for_confirms(1) == [True]
    channel.sync(queue)
    assert not channel.returns
    assert drain(channel, queue) == []


@pytest.mark.parametrize(("arguments", "act", "reason"), [row[1:] for row in EVENTS], ids=[row[0] for row in EVENTS])
def test_2_2_9_events(channel: Channel, unique: Unique, arguments: list[Triple], act: Act, reason: str) -> None:
    queue, letters = dead_lettering(channel, unique, *arguments)
    fill(channel, queue, b"one")
    act(channel, queue)
    letter = arrival(channel, letters)
    assert letter.body == b"one"
    assert [(death["queue"], death["reason"]) for death in deaths(letter)] == [(queue, reason)]


@pytest.mark.parametrize("act", [row[1] for row in REMOVALS], ids=[row[0] for row in REMOVALS])
def test_2_2_9_no_events(channel: Channel, unique: Unique, act: Act) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, b"one")
    act(channel, queue)
    channel.queue_declare(queue, arguments=dead_letter_to("", letters))
    assert (drain(channel, queue), drain(channel, letters)) == ([], [])


def test_2_2_9_auto_delete_is_no_event(channel: Channel, connect: Connect, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, auto_delete=True)
    channel.qos(1)
    tag = channel.consume(queue).consumer_tag
    fill(channel, queue, b"unacked", b"ready")
    assert channel.next_delivery().body == b"unacked"
    channel.cancel(tag)
    assert not exists(connect, queue)
    assert drain(channel, letters) == []


def test_2_2_9_the_end_of_an_exclusive_queue_is_no_event(channel: Channel, connect: Connect, unique: Unique) -> None:
    owner, letters = connect(), new_queue(channel, unique)
    arguments = dead_letter_to("", letters)
    queue = new_queue(owner.channel(), unique, b"one", exclusive=True, arguments=arguments)
    owner.close()
    assert not exists(connect, queue)
    assert drain(channel, letters) == []


def test_2_2_10_a_full_queue_of_letters_loses_them(channel: Channel, unique: Unique) -> None:
    full: list[Triple] = [("x-max-length", "I", 1), ("x-overflow", "S", "reject-publish")]
    letters = new_queue(channel, unique, arguments=full)
    queue = new_queue(channel, unique, *numbered(3), arguments=dead_letter_to("", letters))
    for _ in range(3):
        reject(channel, queue)
    assert arrival(channel, letters).body == b"1"
    assert drain(channel, letters) == []
    assert drain(channel, queue) == []


def test_2_2_10_the_confirm_is_that_of_the_first_queue(channel: Channel, unique: Unique) -> None:
    full: list[Triple] = [("x-max-length", "I", 0), ("x-overflow", "S", "reject-publish")]
    letters = new_queue(channel, unique, arguments=full)
    arguments: list[Triple] = [*dead_letter_to("", letters), ("x-max-length", "I", 0)]
    queue = new_queue(channel, unique, arguments=arguments)
    channel.confirm_select()
    for body in numbered(3):
        channel.publish("", queue, body)
    assert channel.wait_for_confirms(3) == [True] * 3


def test_2_2_11_rejected_messages_in_order(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.consume(queue)
    fill(channel, queue, *numbered(9))
    assert bodies(channel.deliveries(9)) == numbered(9)
    channel.nack(0, multiple=True, requeue=False)
    channel.sync(queue)
    assert arrivals(channel, letters, 9) == numbered(9)


def test_2_2_11_expired_messages_in_order(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique, ("x-message-ttl", "I", 100))
    fill(channel, queue, *numbered(9))
    assert arrivals(channel, letters, 9) == numbered(9)


def test_2_2_12_evicted_to_oneself(channel: Channel, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue, arguments=[*dead_letter_to("", queue), ("x-max-length", "I", 2)])
    fill(channel, queue, *numbered(5))
    assert drain(channel, queue) == [b"4", b"5"]


def test_2_2_13_a_letter_is_a_new_message(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, b"dead")
    fill(channel, letters, b"earlier")
    channel.nack(got(channel, queue).delivery_tag)
    again = got(channel, queue)
    assert again.redelivered
    channel.reject(again.delivery_tag, requeue=False)
    channel.sync(queue)
    fill(channel, letters, b"later")
    found = [got(channel, letters) for _ in range(3)]
    assert bodies(found) == [b"earlier", b"dead", b"later"]
    assert [each.redelivered for each in found] == [False] * 3
