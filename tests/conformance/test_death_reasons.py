"""Rules 2.3.13 to 2.3.15: the reason of each way to die, and `x-death` headers made by clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.deaths import (
    FIRST_DEATH,
    arrival,
    dead_letter,
    dead_lettering,
    death_tables,
    first_death,
    history,
    own_headers,
)
from tests.conformance.fixtures import Unique
from tests.conformance.topology import fill, got
from tests.support import content
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

Act = Callable[[Channel, str], None]

ONE: Triple = ("x-max-length", "I", 1)
REJECT_PUBLISH_DLX: Triple = ("x-overflow", "S", "reject-publish-dlx")
FIRST_KEYS = ["count", "reason", "queue", "time", "exchange", "routing-keys"]


def surplus(channel: Channel, queue: str) -> None:
    """Requeue a message to a queue that has become full in the meantime."""
    fill(channel, queue, b"dead")
    delivery = got(channel, queue)
    fill(channel, queue, b"alive")
    channel.nack(delivery.delivery_tag)


def refuse(channel: Channel, queue: str) -> None:
    fill(channel, queue, b"alive", b"dead")


def publish(channel: Channel, queue: str) -> None:
    fill(channel, queue, b"dead")


def expire(channel: Channel, queue: str) -> None:
    channel.publish("", queue, b"dead", {"expiration": "0"})


WAYS: list[tuple[str, list[Triple], Act, str]] = [
    ("requeue surplus", [ONE], surplus, "maxlen"),
    ("length 0", [("x-max-length", "I", 0)], publish, "maxlen"),
    ("reject-publish-dlx", [ONE, REJECT_PUBLISH_DLX], refuse, "maxlen"),
    ("ttl 0", [("x-message-ttl", "I", 0)], publish, "expired"),
    ("expiration", [], expire, "expired"),
]


@pytest.mark.parametrize(("arguments", "act", "reason"), [row[1:] for row in WAYS], ids=[row[0] for row in WAYS])
def test_2_3_13_reasons(channel: Channel, unique: Unique, arguments: list[Triple], act: Act, reason: str) -> None:
    queue, letters = dead_lettering(channel, unique, *arguments)
    act(channel, queue)
    letter = arrival(channel, letters)
    assert letter.body == b"dead"
    assert history(letter) == [(queue, reason, 1)]
    assert first_death(letter)["x-first-death-reason"] == reason


def past_its_ttl(channel: Channel, unique: Unique) -> tuple[str, str, int]:
    """Take a message that stays unacked beyond its TTL; return queue, queue of letters and delivery tag."""
    ttl: Triple = ("x-message-ttl", "I", 50)
    queue, letters = dead_lettering(channel, unique, ttl)
    witnessed, witness = dead_lettering(channel, unique, ttl)
    channel.consume(queue, "tag")
    channel.publish("", queue, b"one")
    tag = channel.next_delivery().delivery_tag
    channel.cancel("tag")
    fill(channel, witnessed, b"two")
    arrival(channel, witness)
    return queue, letters, tag


def test_2_3_13_rejected_when_past_its_ttl(channel: Channel, unique: Unique) -> None:
    queue, letters, tag = past_its_ttl(channel, unique)
    channel.nack(tag, requeue=False)
    assert history(arrival(channel, letters)) == [(queue, "rejected", 1)]


def forged(queue: str, count: int | None = 7) -> tuple[str, list[Triple]]:
    """Return an entry for `x-death` that a client makes up."""
    entry: list[Triple] = [("queue", "S", queue), ("reason", "S", "rejected")]
    return "F", entry if count is None else [*entry, ("count", "l", count)]


def reject_with(channel: Channel, queue: str, letters: str, *headers: Triple) -> Delivery:
    """Publish a message with headers, reject it, and take it from where it goes."""
    channel.publish("", queue, b"one", {"headers": list(headers)})
    channel.sync(queue)
    return dead_letter(channel, queue, letters)


# 2.3.14 is what 3.10.8 does instead: it counts on from the client's entries, merges equal ones, and adds no
# x-first-death-… headers. Leveret does that only when configured so.


@pytest.mark.departs("4.0")
def test_2_3_15_counts_start_again(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    letter = reject_with(channel, queue, letters, ("x-death", "A", [forged(queue), forged(queue)]))
    assert history(letter) == [(queue, "rejected", 1)]
    assert [key for key, _, _ in death_tables(letter)[0]] == FIRST_KEYS


@pytest.mark.departs("4.0")
@pytest.mark.parametrize(
    "value",
    [("S", "text"), ("A", []), ("A", [forged("other")]), ("A", [("I", 1)]), ("A", [forged("other", None)])],
    ids=["no array", "empty", "another queue", "no table", "no count"],
)
def test_2_3_15_any_header_is_replaced(channel: Channel, unique: Unique, value: tuple[str, Any]) -> None:
    queue, letters = dead_lettering(channel, unique)
    letter = reject_with(channel, queue, letters, ("x-death", *value), ("other", "I", 1))
    assert history(letter) == [(queue, "rejected", 1)]
    assert [first_death(letter)[name] for name in FIRST_DEATH] == ["", queue, "rejected"]
    assert own_headers(letter) == [("other", "I", 1)]


@pytest.mark.departs("4.0")
def test_2_3_15_a_letter_published_again_is_new(channel: Channel, unique: Unique) -> None:
    queue, letters = dead_lettering(channel, unique)
    letter = reject_with(channel, queue, letters)
    again = reject_with(channel, queue, letters, *letter.headers)
    assert history(again) == [(queue, "rejected", 1)]


def test_2_3_15_a_message_that_does_not_die_keeps_its_header(channel: Channel, unique: Unique) -> None:
    queue, _ = dead_lettering(channel, unique)
    headers: list[Triple] = [("x-death", "A", [forged(queue)]), ("a", "L", 1), ("x-first-death-queue", "S", "mine")]
    channel.publish("", queue, b"one", {"headers": headers})
    assert got(channel, queue).raw_properties == content.properties(headers=headers)
