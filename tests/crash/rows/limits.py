"""Rules 1.5.7, 1.5.8 and 4.6.2: limits and policies after a place."""

from __future__ import annotations

import itertools

from tests.conformance.bounded import REJECTING, limits, outcomes, refill, take_dead_letters
from tests.conformance.deaths import dead_letter_to
from tests.conformance.topology import bodies, counts, drain, got, numbered
from tests.crash.rows.table import Steps, row
from tests.integration.restarts import PERSISTENT, Restarts
from tests.support.wire import Channel

MAXLEN = "maxlen"


def overfill(place: Restarts, channel: Channel, queue: str) -> None:
    """Have a queue that holds 2 and refuses more have 4, by requeue."""
    refill(channel, queue, *numbered(2), **PERSISTENT)
    for _ in range(2):
        got(channel, queue)
    refill(channel, queue, b"3", b"4", **PERSISTENT)
    channel.nack(multiple=True)
    assert counts(channel, queue)[0] == 4


@row(*itertools.product(REJECTING, ("argument", "policy", "operator policy")))
def the_oldest_surplus_goes_when_the_queue_starts(place: Restarts, overflow: str, by: str) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="z-letters")
    exchange = place.new("x")
    channel.exchange_declare(exchange, durable=True)
    channel.queue_bind(letters, exchange, "letters")
    dead = dead_letter_to(exchange, "letters")
    if by == "argument":
        queue = place.queue(channel, *limits(2, overflow=overflow), *dead, hint="a")
    elif by == "policy":
        queue = place.queue(channel, *dead, hint="a")
        place.policy(queue, {"max-length": 2, "overflow": overflow})
    else:
        queue = place.queue(channel, ("x-overflow", "S", overflow), *dead, hint="a")
        place.policy(queue, {"max-length": 2}, "operator-policies")
    overfill(place, channel, queue)
    channel = yield
    assert counts(channel, queue)[0] == 2
    # The target's binding was restored after the queue.
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"2", MAXLEN)]
    assert outcomes(channel, queue, b"5", properties=PERSISTENT) == [False]
    assert drain(channel, queue) == [b"3", b"4"]


@row()
def surplus_of_bytes(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *limits(None, 2, "reject-publish"))
    overfill(place, channel, queue)
    channel = yield
    assert drain(channel, queue) == [b"3", b"4"]


@row(*itertools.product((False, True), ("default", "lazy")))
def unacked_messages_are_requeued_and_the_surplus_goes(place: Restarts, dead_letters: bool, mode: str) -> Steps:
    """At a clean stop that happens before it ends; after a crash, at the start."""
    channel = place.channel()
    letters = place.queue(channel, hint="z-letters")
    target = letters if dead_letters else None
    queue = place.queue(channel, *limits(3, letters=target), ("x-queue-mode", "S", mode), hint="a")
    refill(channel, queue, *numbered(3), **PERSISTENT)
    for _ in range(3):
        got(channel, queue)
    refill(channel, queue, b"4", b"5", **PERSISTENT)
    channel = yield
    assert take_dead_letters(channel, letters) == ([(b"1", MAXLEN), (b"2", MAXLEN)] if dead_letters else [])
    assert drain(channel, queue) == [b"3", b"4", b"5"]


@row()
def bytes_of_a_consumer(place: Restarts) -> Steps:
    channel = place.channel()
    queue = place.queue(channel, *limits(None, 6))
    channel.qos(2)
    channel.consume(queue)
    refill(channel, queue, b"1", b"22", b"333", b"333", **PERSISTENT)
    assert bodies(channel.deliveries(2)) == [b"1", b"22"]
    channel = yield
    assert drain(channel, queue) == [b"333", b"333"]


@row()
def a_transient_letter_of_a_clean_stop_does_not_survive(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel, *limits(1, letters=letters))
    refill(channel, queue, b"transient")
    got(channel, queue)
    refill(channel, queue, b"persistent", **PERSISTENT)
    channel = yield
    assert drain(channel, letters) == []
    assert drain(channel, queue) == [b"persistent"]


@row()
def a_limit_that_came_while_the_broker_was_down(place: Restarts) -> Steps:
    """It cannot; but one that came last before the end is applied to all that was there."""
    channel = place.channel()
    queue = place.queue(channel)
    refill(channel, queue, *numbered(5000), **PERSISTENT)
    place.policy(queue, {"max-length": 3})
    channel = yield
    assert counts(channel, queue)[0] == 3
    assert drain(channel, queue) == [b"4998", b"4999", b"5000"]


@row()
def policies_go_on(place: Restarts) -> Steps:
    channel = place.channel()
    letters = place.queue(channel, hint="letters")
    queue = place.queue(channel)
    definition = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": letters}
    place.policy(queue, definition)
    place.policy(queue, {"max-length": 1}, "operator-policies")
    refill(channel, queue, b"1", **PERSISTENT)
    channel = yield
    refill(channel, queue, b"2", b"3", **PERSISTENT)
    assert drain(channel, queue) == [b"3"]
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"2", MAXLEN)]
    shown = place.management.request("GET", "queues", "/", queue)
    assert (shown["policy"], shown["operator_policy"]) == (queue, queue)
    assert shown["effective_policy_definition"] == {**definition, "max-length": 1}


@row()
def limits_of_virtual_hosts_and_that_the_last_was_lifted(place: Restarts) -> Steps:
    limited, lifted = place.new("vhost"), place.new("vhost")
    for name in (limited, lifted):
        place.management.request("PUT", "vhosts", name)
        place.management.request("PUT", "vhost-limits", name, "max-queues", body={"value": 5})
    place.management.request("DELETE", "vhost-limits", lifted, "max-queues")
    yield
    found = {each["vhost"]: each["value"] for each in place.management.request("GET", "vhost-limits")}
    assert (found[limited], found[lifted]) == ({"max-queues": 5}, [])
