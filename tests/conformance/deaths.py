"""Declares queues with dead-lettering, moves messages through them, and reads x-death headers."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.fixtures import Unique
from tests.conformance.topology import fill, got, new_queue
from tests.support.tables import Triple, plain
from tests.support.wire import Channel, Delivery

FIRST_DEATH = ["x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"]
LAST_DEATH = ["x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"]


def dead_letter_to(exchange: str, key: str | None = None) -> list[Triple]:
    """Return queue arguments that dead-letter to an exchange, with the original routing keys or with `key`."""
    arguments: list[Triple] = [("x-dead-letter-exchange", "S", exchange)]
    if key is not None:
        arguments.append(("x-dead-letter-routing-key", "S", key))
    return arguments


def dead_lettering(channel: Channel, unique: Unique, *arguments: Triple, **options: Any) -> tuple[str, str]:
    """Declare a queue that dead-letters to a second one through the default exchange; return both names."""
    letters = new_queue(channel, unique, hint="letters")
    given = [*dead_letter_to("", letters), *arguments]
    return new_queue(channel, unique, arguments=given, **options), letters


def reject(channel: Channel, queue: str) -> None:
    """Get the next message of a queue and reject it; return when the queue has processed the reject."""
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.sync(queue)


def arrival(channel: Channel, queue: str, timeout: float = 30) -> Delivery:
    """Wait until a queue has a message and take it."""
    deadline = time.monotonic() + timeout
    while (delivery := channel.get(queue, no_ack=True)) is None:
        assert time.monotonic() < deadline, f"nothing came to {queue} within {timeout} s"
        time.sleep(0.01)
    return delivery


def dead_letter(channel: Channel, queue: str, letters: str) -> Delivery:
    """Reject the next message of a queue and take the dead letter from `letters`."""
    reject(channel, queue)
    return arrival(channel, letters)


def arrivals(channel: Channel, queue: str, count: int) -> list[bytes]:
    """Wait for `count` messages of a queue and take them; return their bodies in order."""
    return [arrival(channel, queue).body for _ in range(count)]


def after(channel: Channel, unique: Unique, ttl: int) -> None:
    """Wait until a message published now to another queue with this TTL in milliseconds has expired."""
    queue, letters = dead_lettering(channel, unique, ("x-message-ttl", "I", ttl))
    fill(channel, queue, b"witness")
    arrival(channel, letters)


def death_tables(delivery: Delivery) -> list[list[Triple]]:
    """Return the tables of `x-death` as triples, the latest death first."""
    ((letter, entries),) = [(letter, value) for key, letter, value in delivery.headers if key == "x-death"]
    assert letter == "A"
    assert {kind for kind, _ in entries} == {"F"}
    return [table for _, table in entries]


def deaths(delivery: Delivery) -> list[dict[str, Any]]:
    """Return the tables of `x-death` without types, the latest death first."""
    return [plain(table) for table in death_tables(delivery)]


def history(delivery: Delivery) -> list[tuple[str, str, int]]:
    """Return queue, reason and count of each entry of `x-death`, the latest death first."""
    return [(death["queue"], death["reason"], death["count"]) for death in deaths(delivery)]


def first_death(delivery: Delivery) -> dict[str, Any]:
    return {key: value for key, value in plain(delivery.headers).items() if key.startswith("x-first-death-")}


def headers_of_3_10(delivery: Delivery) -> list[Triple]:
    """Return the headers without those that RabbitMQ adds since 3.13 (2.3.8)."""
    return [header for header in delivery.headers if header[0] not in LAST_DEATH]


def own_headers(delivery: Delivery) -> list[Triple]:
    """Return the headers that were not added by dead-lettering."""
    return [header for header in headers_of_3_10(delivery) if header[0] not in ("x-death", *FIRST_DEATH)]
