"""Rules 34.1 to 34.6: RabbitMQ 4.3's delayed retries on quorum queues."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pamqp import commands

from tests.conformance.bounded import QUORUM, outcomes, quorum, take_dead_letters
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.operator_policies import NAME, PolicySet, check, of, only, refusal
from tests.conformance.reply_texts import inequivalent
from tests.conformance.topology import bodies, counts, drain, fill, got, new_queue
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel, Delivery

pytestmark = pytest.mark.departs("4.3")

#: A delay in milliseconds that a test waits for, and one that no test waits for.
SHORT, LONG = 300, 3_600_000


def retry(kind: str = "all", least: int = SHORT, most: int | None = None) -> list[Triple]:
    """Return the arguments of a queue with delayed retries."""
    longest: list[Triple] = [] if most is None else [("x-delayed-retry-max", "I", most)]
    return [("x-delayed-retry-type", "S", kind), ("x-delayed-retry-min", "I", least), *longest]


def give_back(channel: Channel, connect: Connect, queue: str, way: str) -> None:
    if way in ("channel", "connection"):
        other = connect().channel()
        got(other, queue)
        if way == "channel":
            other.close()
        else:
            other.connection.abort()
        return
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    if way == "nack":
        channel.nack(tag)
    elif way == "reject":
        channel.reject(tag)
    else:
        channel.recover()


def count_headers(delivery: Delivery) -> dict[str, object]:
    return {name: value for name, _, value in delivery.headers if name in ("x-delivery-count", "x-acquired-count")}


def next_one(channel: Channel, queue: str, poll: Poll) -> Delivery:
    """Wait until a message is ready, and take it."""
    poll(lambda: counts(channel, queue)[0] > 0)
    return got(channel, queue)


FAILED = ("reject", "channel", "connection")
RETURNED = ("nack", "recover")


@pytest.mark.parametrize("way", [*FAILED, *RETURNED])
@pytest.mark.parametrize("kind", ["all", "failed", "returned", "disabled", "bogus"])
def test_34_4_which_returns_are_delayed(
    channel: Channel,
    connect: Connect,
    unique: Unique,
    management: Management,
    vhost: str,
    poll: Poll,
    kind: str,
    way: str,
) -> None:
    queue = quorum(channel, unique, arguments=retry(kind, LONG))
    fill(channel, queue, b"1")
    give_back(channel, connect, queue, way)
    is_delayed = kind == "all" or kind == ("failed" if way in FAILED else "returned")
    expected = (1, 0, 1) if is_delayed else (1, 1, 0)

    def figures() -> tuple[object, ...]:
        found = management.request("GET", "queues", vhost, queue)
        return found["messages"], found["messages_ready"], found["messages_delayed"]

    poll(lambda: figures() == expected)
    channel.queue_delete(queue)


def test_34_3_the_delay_grows_with_failures(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique, arguments=retry("all", SHORT, 2 * SHORT))
    fill(channel, queue, b"1")
    for failed, delay in ((False, 1), (False, 1), (True, 1), (True, 2), (False, 2), (True, 2)):
        tag = next_one(channel, queue, poll).delivery_tag
        assert tag is not None
        began = time.monotonic()
        (channel.reject if failed else channel.nack)(tag)
        poll(lambda: counts(channel, queue)[0] == 1)
        assert time.monotonic() - began >= delay * SHORT / 1000


def test_34_5_only_failures_count(channel: Channel, connect: Connect, unique: Unique, poll: Poll) -> None:
    letters = new_queue(channel, unique, hint="letters")
    limit: Triple = ("x-delivery-limit", "I", 1)
    queue = quorum(channel, unique, letters=letters, arguments=[*retry("all", 20), limit])
    fill(channel, queue, b"1")
    for way in ("nack", "recover", "nack", "reject", "nack"):
        poll(lambda: counts(channel, queue)[0] == 1)
        give_back(channel, connect, queue, way)
    delivery = next_one(channel, queue, poll)
    assert count_headers(delivery) == {"x-delivery-count": 1, "x-acquired-count": 5}
    assert delivery.delivery_tag is not None
    channel.reject(delivery.delivery_tag)
    poll(lambda: counts(channel, letters)[0] == 1)
    assert take_dead_letters(channel, letters) == [(b"1", "delivery_limit")]


def test_34_4_rejected_messages_are_dead_lettered_at_once(channel: Channel, unique: Unique, poll: Poll) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = quorum(channel, unique, letters=letters, arguments=retry("all", LONG))
    fill(channel, queue, b"1")
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    channel.reject(tag, requeue=False)
    poll(lambda: counts(channel, letters)[0] == 1)


def test_34_6_they_precede_others_and_count_for_limits(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique, 2, None, "reject-publish", arguments=retry("all", SHORT))
    assert outcomes(channel, queue, b"1", b"2") == [True, True]
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    channel.nack(tag)
    channel.sync()
    assert outcomes(channel, queue, b"3") == [False]
    poll(lambda: counts(channel, queue)[0] == 2)
    assert drain(channel, queue) == [b"1", b"2"]


def test_34_6_a_purge_counts_them(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique, arguments=retry("all", LONG))
    fill(channel, queue, b"1", b"2")
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    channel.nack(tag)
    channel.sync()
    assert channel.queue_purge(queue).message_count == 2


def test_34_6_http_fields(channel: Channel, unique: Unique, management: Management, vhost: str, poll: Poll) -> None:
    queue = quorum(channel, unique, arguments=retry("all", LONG, 2 * LONG))
    fill(channel, queue, b"1")
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    before = time.time() * 1000 + LONG
    channel.nack(tag)
    poll(lambda: management.request("GET", "queues", vhost, queue)["messages_delayed"] == 1)
    found = management.request("GET", "queues", vhost, queue)
    assert found["delayed_retry"] == f"all (min: {LONG}ms, max: {2 * LONG}ms)"
    assert before - 1000 < found["next_delayed_at"] == found["last_delayed_at"] < time.time() * 1000 + LONG + 1000
    other = new_queue(channel, unique)
    assert management.request("GET", "queues", vhost, other)["delayed_retry"] == "disabled"


def test_34_1_arguments_are_compared_and_not_checked(channel: Channel, unique: Unique, vhost: str) -> None:
    wrong: list[Triple] = [("x-delayed-retry-type", "I", 1), ("x-delayed-retry-min", "S", "x")]
    queue = quorum(channel, unique, arguments=wrong)
    fill(channel, queue, b"1")
    tag = got(channel, queue).delivery_tag
    assert tag is not None
    channel.nack(tag)
    assert bodies([got(channel, queue, no_ack=True)]) == [b"1"]
    arguments: list[Triple] = [QUORUM, ("x-delayed-retry-type", "I", 1), ("x-delayed-retry-min", "S", "y")]
    text = inequivalent("x-delayed-retry-min", f"queue '{queue}'", vhost, "'y'", "'x'")
    with channel.expect_channel_close(406, text, commands.Queue.Declare):
        channel.queue_declare(queue, durable=True, arguments=arguments)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"type": "x", "min": 1}, '<<"x">> is not a valid delayed retry type. Must be one of: {types}'),
        ({"type": "all", "min": 0}, "0 is not a valid delayed retry minimum delay. Must be a positive integer"),
        ({"max": "1"}, '<<"1">> is not a valid delayed retry maximum delay. Must be a positive integer'),
        ({"type": "all"}, "delayed-retry-min is required when delayed-retry-type is all"),
        ({"type": "all", "min": 2, "max": 1}, "delayed-retry-max (1) must not be smaller than delayed-retry-min (2)"),
    ],
)
def test_34_2_wrong_policies(policies: PolicySet, definition: dict[str, Any], reason: str) -> None:
    keys = {f"delayed-retry-{key}": value for key, value in definition.items()}
    check(policies.put(NAME, of(keys)), 400, refusal(reason.format(types="all, failed, returned, disabled")))


def test_34_2_policies(
    channel: Channel, unique: Unique, management: Management, vhost: str, policies: PolicySet, poll: Poll
) -> None:
    queue = quorum(channel, unique, arguments=retry("all", 500, 5000))
    policies.set(only(queue), {"delayed-retry-type": "failed", "delayed-retry-min": 1000, "delayed-retry-max": 4000})
    poll(
        lambda: management.request("GET", "queues", vhost, queue)["delayed_retry"] == "failed (min: 500ms, max: 4000ms)"
    )
