"""Rules 2.3.7 to 2.3.12: what the headers `x-death` and `x-first-death-…` say."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from tests.conformance.deaths import (
    LAST_DEATH,
    arrival,
    dead_letter,
    dead_letter_to,
    dead_lettering,
    death_tables,
    deaths,
    first_death,
    headers_of_3_10,
    history,
    reject,
)
from tests.conformance.fixtures import Unique
from tests.conformance.topology import fill, got, new_exchange, new_queue
from tests.support.tables import Triple, plain
from tests.support.wire import Channel, Delivery

CC: Triple = ("CC", "A", [("S", "second"), ("S", "third")])
BCC: Triple = ("BCC", "A", [("S", "blind")])
FIRST_KEYS = ["count", "reason", "queue", "time", "exchange", "routing-keys"]
ALL_KEYS = [*FIRST_KEYS, "original-expiration"]


def to_oneself(channel: Channel, unique: Unique, exchange: str) -> str:
    """Declare a queue whose dead letters come back to itself, bound to an exchange by `first`."""
    queue = unique()
    channel.queue_declare(queue, arguments=dead_letter_to("", queue))
    channel.queue_bind(queue, exchange, "first")
    return queue


def two_deaths(channel: Channel, unique: Unique, *, again: str = "rejected") -> tuple[str, str, Delivery]:
    """Let a message be rejected by one queue, and be rejected by or expire in another; return both queues and it."""
    between, letters = dead_lettering(channel, unique, *([("x-message-ttl", "I", 20)] if again == "expired" else []))
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to("", between))
    reject(channel, queue)
    if again == "rejected":
        reject(channel, between)
    return queue, between, arrival(channel, letters)


def peek(channel: Channel, queue: str) -> Delivery:
    """Get the next message of a queue and put it back."""
    found = got(channel, queue)
    channel.nack(found.delivery_tag)
    channel.sync(queue)
    return found


def test_2_3_7_headers_of_the_first_death(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, b"one")
    letter = dead_letter(channel, queue, letters)
    assert headers_of_3_10(letter)[1:] == [
        ("x-first-death-exchange", "S", ""),
        ("x-first-death-queue", "S", queue),
        ("x-first-death-reason", "S", "rejected"),
    ]


def test_2_3_7_the_exchange_that_it_was_published_to(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queue, letters = dead_lettering(channel, unique, ("x-max-length", "I", 0))
    channel.queue_bind(queue, exchange)
    channel.publish(exchange, "key", b"one")
    assert first_death(arrival(channel, letters)) == {
        "x-first-death-exchange": exchange,
        "x-first-death-queue": queue,
        "x-first-death-reason": "maxlen",
    }


@pytest.mark.parametrize("again", ["rejected", "expired"])
def test_2_3_7_the_first_death_is_never_changed(channel: Channel, unique: Unique, again: str) -> None:
    queue, between, letter = two_deaths(channel, unique, again=again)
    assert history(letter) == [(between, again, 1), (queue, "rejected", 1)]
    assert first_death(letter) == {
        "x-first-death-exchange": "",
        "x-first-death-queue": queue,
        "x-first-death-reason": "rejected",
    }


def test_2_3_7_headers_of_a_client_are_replaced(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    headers: list[Triple] = [("x-first-death-reason", "S", "mine"), ("x-first-death-queue", "I", 1)]
    channel.publish("", queue, properties={"headers": headers})
    channel.sync(queue)
    letter = dead_letter(channel, queue, letters)
    assert first_death(letter) == {
        "x-first-death-exchange": "",
        "x-first-death-queue": queue,
        "x-first-death-reason": "rejected",
    }
    assert len(headers_of_3_10(letter)) == 4


@pytest.mark.departs("3.13")
def test_2_3_8_the_last_death_is_the_first_one(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    fill(channel, queue, b"one")
    assert dead_letter(channel, queue, letters).headers[-3:] == [
        ("x-last-death-exchange", "S", ""),
        ("x-last-death-queue", "S", queue),
        ("x-last-death-reason", "S", "rejected"),
    ]


@pytest.mark.departs("3.13")
def test_2_3_8_each_death_is_the_last_one(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    between, letters = dead_lettering(channel, unique, ("x-message-ttl", "I", 20))
    channel.queue_bind(between, exchange)
    queue = new_queue(channel, unique, b"one", arguments=dead_letter_to(exchange))
    reject(channel, queue)
    headers = plain(arrival(channel, letters).headers)
    assert [headers[name] for name in LAST_DEATH] == [exchange, between, "expired"]


@pytest.mark.departs("3.13")
def test_2_3_8_they_are_sorted_in(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    headers: list[Triple] = [("z", "I", 1), ("x-last-death-queue", "I", 1), ("x-g", "I", 1)]
    channel.publish("", queue, properties={"headers": headers})
    channel.sync(queue)
    keys = [key for key, _, _ in dead_letter(channel, queue, letters).headers]
    first = ["x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
    assert keys == ["x-death", *first, "x-g", *LAST_DEATH, "z"]


def test_2_3_9_types_of_an_entry(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    queue, letters = dead_lettering(channel, unique)
    channel.queue_bind(queue, exchange)
    channel.publish(exchange, "key", b"one", {"expiration": "600000"})
    channel.sync(queue)
    (entry,) = death_tables(dead_letter(channel, queue, letters))
    died = plain(entry)["time"]
    assert abs(died - time.time()) < 60
    assert entry == [
        ("count", "l", 1),
        ("reason", "S", "rejected"),
        ("queue", "S", queue),
        ("time", "T", died),
        ("exchange", "S", exchange),
        ("routing-keys", "A", [("S", "key")]),
        ("original-expiration", "S", "600000"),
    ]


@pytest.mark.departs("4.0")
def test_2_3_9_all_deaths_are_in_order(channel: Channel, unique: Unique) -> None:
    # 3.10.8 turns the entries below the new one round at each death, against its own documentation.
    queues = [unique() for _ in range(6)]
    for queue, target in pairwise(queues):
        channel.queue_declare(queue, arguments=dead_letter_to("", target))
    channel.queue_declare(queues[-1])
    fill(channel, queues[0], b"one")
    expected: list[str] = []
    for queue, target in pairwise(queues):
        reject(channel, queue)
        expected = [queue, *expected]
        assert [name for name, _, _ in history(peek(channel, target))] == expected


def test_2_3_9_the_exchange_of_each_death(channel: Channel, unique: Unique) -> None:
    exchange, dlx = new_exchange(channel, unique, "fanout"), new_exchange(channel, unique, "fanout")
    between, letters = dead_lettering(channel, unique)
    channel.queue_bind(between, dlx)
    queue = new_queue(channel, unique, arguments=dead_letter_to(dlx, "dead"))
    channel.queue_bind(queue, exchange)
    channel.publish(exchange, "key")
    channel.sync(queue)
    reject(channel, queue)
    found = deaths(dead_letter(channel, between, letters))
    assert [(each["exchange"], each["routing-keys"]) for each in found] == [(dlx, ["dead"]), (exchange, ["key"])]


@pytest.mark.parametrize("expires", [False, True])
def test_2_3_10_key_order_of_the_first_death(channel: Channel, unique: Unique, expires: bool) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, b"one", {"expiration": "600000"} if expires else None)
    channel.sync(queue)
    (entry,) = death_tables(dead_letter(channel, queue, letters))
    assert [key for key, _, _ in entry] == (ALL_KEYS if expires else FIRST_KEYS)


def test_2_3_10_key_order_of_a_later_death(channel: Channel, unique: Unique) -> None:
    _, _, letter = two_deaths(channel, unique)
    later, first = death_tables(letter)
    assert [key for key, _, _ in later] == sorted(FIRST_KEYS)
    assert [key for key, _, _ in first] == FIRST_KEYS
    assert [kind for _, kind, _ in later] == ["l", "S", "S", "S", "A", "T"]


@pytest.mark.parametrize("expires", [False, True])
def test_2_3_10_key_order_of_a_repeated_death(channel: Channel, unique: Unique, expires: bool) -> None:
    queue = to_oneself(channel, unique, "amq.direct")
    channel.publish("", queue, b"one", {"expiration": "600000"} if expires else None)
    channel.sync(queue)
    reject(channel, queue)
    (entry,) = death_tables(dead_letter(channel, queue, queue))
    assert [key for key, _, _ in entry] == sorted(ALL_KEYS if expires else FIRST_KEYS)


def test_2_3_11_routing_keys_have_cc_and_no_bcc(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    channel.publish("", queue, properties={"headers": [CC, BCC]})
    channel.sync(queue)
    assert deaths(dead_letter(channel, queue, letters))[0]["routing-keys"] == [queue, "second", "third"]


def test_2_3_11_routing_keys_of_a_later_death(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique, "fanout")
    between, letters = dead_lettering(channel, unique)
    channel.queue_bind(between, exchange)
    queue = new_queue(channel, unique, arguments=dead_letter_to(exchange))
    channel.publish("", queue, properties={"headers": [CC, BCC]})
    channel.sync(queue)
    reject(channel, queue)
    found = deaths(dead_letter(channel, between, letters))
    assert [each["routing-keys"] for each in found] == [[queue, "second", "third"]] * 2


def test_2_3_12_a_repeat_keeps_the_first_values(channel: Channel, unique: Unique) -> None:
    exchange = new_exchange(channel, unique)
    queue = to_oneself(channel, unique, exchange)
    channel.publish(exchange, "first", b"one", {"expiration": "600000"})
    channel.sync(queue)
    reject(channel, queue)
    first = deaths(peek(channel, queue))[0]
    witnessed, witness = dead_lettering(channel, unique, ("x-message-ttl", "I", 1100))
    fill(channel, witnessed, b"a second later")
    arrival(channel, witness)
    again = deaths(dead_letter(channel, queue, queue))[0]
    assert again == {**first, "count": 2}
    assert (again["exchange"], again["routing-keys"], again["original-expiration"]) == (exchange, ["first"], "600000")


def test_2_3_12_a_repeat_comes_first(channel: Channel, unique: Unique) -> None:
    queue, between = unique("a"), unique("b")
    channel.queue_declare(queue, arguments=dead_letter_to("", between))
    channel.queue_declare(between, arguments=dead_letter_to("", queue))
    fill(channel, queue, b"one")
    seen = []
    for here, there in [(queue, between), (between, queue)] * 2:
        reject(channel, here)
        seen.append(history(peek(channel, there)))
    assert seen == [
        [(queue, "rejected", 1)],
        [(between, "rejected", 1), (queue, "rejected", 1)],
        [(queue, "rejected", 2), (between, "rejected", 1)],
        [(between, "rejected", 2), (queue, "rejected", 2)],
    ]


@pytest.mark.departs("4.0")
def test_2_3_12_reasons_are_counted_apart(channel: Channel, unique: Unique) -> None:
    queue, between = unique("a"), unique("b")
    channel.queue_declare(queue, arguments=[*dead_letter_to("", between), ("x-message-ttl", "I", 50)])
    channel.queue_declare(between, arguments=dead_letter_to("", queue))
    tag = channel.consume(queue).consumer_tag
    channel.publish("", queue, b"one")
    channel.reject(channel.next_delivery().delivery_tag, requeue=False)
    channel.cancel(tag)
    channel.sync(queue)
    reject(channel, between)
    letter = arrival(channel, between)
    assert history(letter) == [(queue, "expired", 1), (between, "rejected", 1), (queue, "rejected", 1)]
