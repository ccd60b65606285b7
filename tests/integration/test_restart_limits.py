"""Rules 1.5.7, 1.5.8 and 4.6.2: limits and policies after a restart."""

from __future__ import annotations

import pytest

from tests.conformance.bounded import REJECTING, limits, outcomes, refill, take_dead_letters
from tests.conformance.deaths import dead_letter_to
from tests.conformance.topology import bodies, counts, drain, got, numbered
from tests.integration.restarts import PERSISTENT, Restarts, process, restart
from tests.support.wire import Channel

__all__ = ["process", "restart"]

MAXLEN = "maxlen"


def overfill(restart: Restarts, channel: Channel, queue: str) -> None:
    """Have a queue that holds 2 and refuses more have 4, by requeue."""
    refill(channel, queue, *numbered(2), **PERSISTENT)
    for _ in range(2):
        got(channel, queue)
    refill(channel, queue, b"3", b"4", **PERSISTENT)
    channel.nack(multiple=True)
    assert counts(channel, queue)[0] == 4


@pytest.mark.parametrize("by", ["argument", "policy", "operator policy"])
@pytest.mark.parametrize("overflow", REJECTING)
def test_1_5_7_the_oldest_surplus_goes_when_the_queue_starts(restart: Restarts, overflow: str, by: str) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="z-letters")
    exchange = restart.new("x")
    channel.exchange_declare(exchange, durable=True)
    channel.queue_bind(letters, exchange, "letters")
    dead = dead_letter_to(exchange, "letters")
    if by == "argument":
        queue = restart.queue(channel, *limits(2, overflow=overflow), *dead, hint="a")
    elif by == "policy":
        queue = restart.queue(channel, *dead, hint="a")
        restart.policy(queue, {"max-length": 2, "overflow": overflow})
    else:
        queue = restart.queue(channel, ("x-overflow", "S", overflow), *dead, hint="a")
        restart.policy(queue, {"max-length": 2}, "operator-policies")
    overfill(restart, channel, queue)
    channel = restart()
    assert counts(channel, queue)[0] == 2
    # The target's binding was restored after the queue.
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"2", MAXLEN)]
    assert outcomes(channel, queue, b"5", properties=PERSISTENT) == [False]
    assert drain(channel, queue) == [b"3", b"4"]


def test_1_5_7_bytes(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *limits(None, 2, "reject-publish"))
    overfill(restart, channel, queue)
    channel = restart()
    assert drain(channel, queue) == [b"3", b"4"]


@pytest.mark.parametrize("dead_letters", [False, True])
@pytest.mark.parametrize("mode", ["default", "lazy"])
def test_1_5_8_unacked_messages_are_requeued_and_the_surplus_goes(
    restart: Restarts, dead_letters: bool, mode: str
) -> None:
    """At a clean stop that happens before it ends; after a crash, at the start."""
    channel = restart.channel()
    letters = restart.queue(channel, hint="z-letters")
    target = letters if dead_letters else None
    queue = restart.queue(channel, *limits(3, letters=target), ("x-queue-mode", "S", mode), hint="a")
    refill(channel, queue, *numbered(3), **PERSISTENT)
    for _ in range(3):
        got(channel, queue)
    refill(channel, queue, b"4", b"5", **PERSISTENT)
    channel = restart()
    assert take_dead_letters(channel, letters) == ([(b"1", MAXLEN), (b"2", MAXLEN)] if dead_letters else [])
    assert drain(channel, queue) == [b"3", b"4", b"5"]


def test_1_5_8_bytes_of_a_consumer(restart: Restarts) -> None:
    channel = restart.channel()
    queue = restart.queue(channel, *limits(None, 6))
    channel.qos(2)
    channel.consume(queue)
    refill(channel, queue, b"1", b"22", b"333", b"333", **PERSISTENT)
    assert bodies(channel.deliveries(2)) == [b"1", b"22"]
    channel = restart()
    assert drain(channel, queue) == [b"333", b"333"]


def test_1_5_8_a_transient_letter_of_a_clean_stop_does_not_survive(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel, *limits(1, letters=letters))
    refill(channel, queue, b"transient")
    got(channel, queue)
    refill(channel, queue, b"persistent", **PERSISTENT)
    channel = restart()
    assert drain(channel, letters) == []
    assert drain(channel, queue) == [b"persistent"]


def test_4_6_2_a_limit_that_came_while_the_broker_was_down(restart: Restarts) -> None:
    """It cannot; but one that came last before the end is applied to all that was there."""
    channel = restart.channel()
    queue = restart.queue(channel)
    refill(channel, queue, *numbered(5000), **PERSISTENT)
    restart.policy(queue, {"max-length": 3})
    channel = restart()
    assert counts(channel, queue)[0] == 3
    assert drain(channel, queue) == [b"4998", b"4999", b"5000"]


def test_4_6_2_policies_go_on(restart: Restarts) -> None:
    channel = restart.channel()
    letters = restart.queue(channel, hint="letters")
    queue = restart.queue(channel)
    definition = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": letters}
    restart.policy(queue, definition)
    restart.policy(queue, {"max-length": 1}, "operator-policies")
    refill(channel, queue, b"1", **PERSISTENT)
    channel = restart()
    refill(channel, queue, b"2", b"3", **PERSISTENT)
    assert drain(channel, queue) == [b"3"]
    assert take_dead_letters(channel, letters) == [(b"1", MAXLEN), (b"2", MAXLEN)]
    shown = restart.management.request("GET", "queues", "/", queue)
    assert (shown["policy"], shown["operator_policy"]) == (queue, queue)
    assert shown["effective_policy_definition"] == {**definition, "max-length": 1}


def test_limits_of_virtual_hosts_and_that_the_last_was_lifted(restart: Restarts) -> None:
    api = restart.management
    for name in ("limited", "lifted"):
        api.request("PUT", "vhosts", name)
        api.request("PUT", "vhost-limits", name, "max-queues", body={"value": 5})
    api.request("DELETE", "vhost-limits", "lifted", "max-queues")
    restart()
    found = {each["vhost"]: each["value"] for each in restart.management.request("GET", "vhost-limits")}
    assert found == {"limited": {"max-queues": 5}, "lifted": []}
    for name in ("limited", "lifted"):
        restart.management.request("DELETE", "vhosts", name)
