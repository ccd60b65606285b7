"""Rules 6.1.8 to 6.1.15: limits and dead letters of quorum queues on one node."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from tests.conformance.bounded import QUORUM, REJECTING, bounded, outcomes, quorum, refill, take_dead_letters
from tests.conformance.fixtures import Connect, Poll, SetPolicy, Unique
from tests.conformance.topology import counts, drain, got, new_queue, numbered
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.wire import Channel

AT_LEAST_ONCE: Triple = ("x-dead-letter-strategy", "S", "at-least-once")
MAXLEN = "maxlen"


def letters_of(channel: Channel, unique: Unique) -> str:
    return new_queue(channel, unique, hint="letters")


def expect_buried(channel: Channel, poll: Poll, letters: str, *dead: tuple[bytes, str]) -> None:
    """Wait for dead letters, which a quorum queue sends some time after its answers."""
    poll(lambda: counts(channel, letters)[0] >= len(dead))
    assert take_dead_letters(channel, letters) == list(dead)


@pytest.mark.parametrize("limit", [{"length": 2}, {"size": 2}, {"length": 2, "size": 3}, {"length": 3, "size": 2}])
def test_6_1_8_drop_head(channel: Channel, unique: Unique, poll: Poll, limit: dict[str, Any]) -> None:
    letters = letters_of(channel, unique)
    queue = quorum(channel, unique, letters=letters, **limit)
    refill(channel, queue, *numbered(4))
    assert drain(channel, queue) == [b"3", b"4"]
    expect_buried(channel, poll, letters, (b"1", MAXLEN), (b"2", MAXLEN))


def test_6_1_8_unacked_messages_do_not_count(channel: Channel, unique: Unique) -> None:
    queue = quorum(channel, unique, 2)
    refill(channel, queue, *numbered(2))
    assert [got(channel, queue).body for _ in range(2)] == numbered(2)
    refill(channel, queue, b"3", b"4")
    assert drain(channel, queue) == [b"3", b"4"]


@pytest.mark.departs("none")
def test_6_1_9_pipelined_publishes_do_not_exceed_the_limit(channel: Channel, unique: Unique) -> None:
    # 3.10.8 accepts all of them: its channels hear of the full queue too late.
    queue = quorum(channel, unique, 3, None, "reject-publish")
    assert outcomes(channel, queue, *numbered(10)) == [True] * 3 + [False] * 7
    assert drain(channel, queue) == numbered(3)


@pytest.mark.departs("none")
def test_6_1_9_bytes(channel: Channel, unique: Unique) -> None:
    queue = quorum(channel, unique, None, 10, "reject-publish")
    published = [b"x" * 11, b"x" * 10, b"", b"x"]
    assert outcomes(channel, queue, *published) == [False, True, True, False]


def test_6_1_9_in_the_end_publishes_are_rejected(channel: Channel, unique: Unique, poll: Poll) -> None:
    queue = quorum(channel, unique, 3, None, "reject-publish")
    publisher = channel.connection.channel()
    publisher.confirm_select()
    nacked: list[int] = []

    def rejected() -> bool:
        publisher.publish("", queue, b"x")
        publisher.wait_until(lambda: bool(publisher.confirms), "confirm")
        confirm = publisher.confirms.popleft()
        nacked.extend([confirm.delivery_tag] if not confirm.ack else [])
        return not confirm.ack

    poll(rejected)
    assert counts(channel, queue)[0] == nacked[0] - 1
    assert nacked[0] > 3


def test_6_1_10_reject_publish_dlx_is_drop_head(channel: Channel, unique: Unique, poll: Poll) -> None:
    letters = letters_of(channel, unique)
    queue = quorum(channel, unique, 2, None, "reject-publish-dlx", letters=letters)
    refill(channel, queue, *numbered(4))
    assert drain(channel, queue) == [b"3", b"4"]
    expect_buried(channel, poll, letters, (b"1", MAXLEN), (b"2", MAXLEN))


@pytest.mark.departs("none")
def test_6_1_11_a_transaction(channel: Channel, connect: Connect, unique: Unique) -> None:
    # 3.10.8 may answer commit-ok although it dropped some.
    queue = quorum(channel, unique, 1, None, "reject-publish")
    transaction = connect().channel()
    transaction.tx_select()
    for body in numbered(2):
        transaction.publish("", queue, body)
    text = "PRECONDITION_FAILED - partial tx completion"
    with transaction.expect_channel_close(406, text, commands.Tx.Commit):
        transaction.tx_commit()
    assert drain(channel, queue) == [b"1"]


def test_6_1_12_at_least_once(channel: Channel, unique: Unique, poll: Poll) -> None:
    letters = letters_of(channel, unique)
    queue = quorum(channel, unique, 9, None, "reject-publish", letters=letters, arguments=[AT_LEAST_ONCE])
    refill(channel, queue, *numbered(3))
    for _ in range(3):
        channel.reject(got(channel, queue).delivery_tag, requeue=False)
    expect_buried(channel, poll, letters, *[(body, "rejected") for body in numbered(3)])


@pytest.mark.parametrize("missing", ["exchange", "route"])
def test_6_1_12_at_least_once_keeps_what_goes_nowhere(
    channel: Channel, management: Management, unique: Unique, vhost: str, poll: Poll, missing: str
) -> None:
    exchange: Triple = ("x-dead-letter-exchange", "S", unique("x") if missing == "exchange" else "amq.direct")
    queue = quorum(channel, unique, 9, None, "reject-publish", arguments=[AT_LEAST_ONCE, exchange])
    refill(channel, queue, *numbered(2))
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    channel.ack(got(channel, queue).delivery_tag)
    assert channel.get(queue) is None
    # RabbitMQ refreshes it every five seconds.
    poll(lambda: management.request("GET", "queues", vhost, queue).get("messages") == 1)


@pytest.mark.parametrize(
    "change",
    [
        {"dead-letter-strategy": "at-most-once"},
        {"overflow": "drop-head"},
        {"dead-letter-exchange": None},
        {"dead-letter-routing-key": "to the letters"},
        {"max-length": 100},
    ],
    ids=lambda change: next(iter(change)),
)
def test_6_1_12_waiting_letters_follow_the_policy_at_once(
    channel: Channel,
    management: Management,
    unique: Unique,
    vhost: str,
    poll: Poll,
    policy: SetPolicy,
    change: dict[str, Any],
) -> None:
    queue, nowhere, letters = unique("queue"), unique("nowhere"), letters_of(channel, unique)
    common = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
    common |= {"dead-letter-exchange": "", "dead-letter-routing-key": nowhere}
    # It is in force on the queue from the declaration on.
    policy(queue, common)
    channel.queue_declare(queue, durable=True, arguments=[QUORUM])
    refill(channel, queue, b"two", b"three")
    channel.reject(got(channel, queue).delivery_tag, requeue=False)

    def sizes() -> tuple[object, ...]:
        document = management.request("GET", "queues", vhost, queue)
        names = "messages", "messages_dlx", "message_bytes", "message_bytes_dlx"
        return tuple(document.get(name) for name in names)

    poll(lambda: sizes() == (2, 1, 8, 3))
    if "max-length" in change:
        # Any change makes RabbitMQ look for targets again.
        channel.queue_declare(nowhere)
    if "dead-letter-routing-key" in change:
        change = {"dead-letter-routing-key": letters}
    policy(queue, {key: value for key, value in (common | change).items() if value is not None})
    poll(lambda: sizes() == (1, 0, 5, 0))
    if "max-length" in change:
        assert drain(channel, nowhere) == [b"two"]
    else:
        assert drain(channel, letters) == ([b"two"] if "dead-letter-routing-key" in change else [])


def test_6_1_12_with_drop_head_it_is_at_most_once(
    channel: Channel, management: Management, unique: Unique, vhost: str, poll: Poll
) -> None:
    exchange: Triple = ("x-dead-letter-exchange", "S", unique("x"))
    queue = quorum(channel, unique, 9, arguments=[AT_LEAST_ONCE, exchange])
    refill(channel, queue, *numbered(3))
    channel.reject(got(channel, queue).delivery_tag, requeue=False)
    # The two that are left say that the count has been refreshed.
    poll(lambda: management.request("GET", "queues", vhost, queue).get("messages") == 2)


def test_6_1_13_the_overflow_of_a_policy_beats_the_argument(
    channel: Channel, unique: Unique, policy: SetPolicy, poll: Poll
) -> None:
    queue = quorum(channel, unique, 2, None, "reject-publish")
    policy(queue, {"overflow": "drop-head"})
    poll(lambda: all(outcomes(channel, queue, *numbered(5))) and counts(channel, queue)[0] == 2)
    refill(channel, queue, b"x", b"y")
    assert drain(channel, queue) == [b"x", b"y"]


def test_6_1_13_a_smaller_limit_evicts_at_once(channel: Channel, unique: Unique, policy: SetPolicy, poll: Poll) -> None:
    letters = letters_of(channel, unique)
    queue = quorum(channel, unique, letters=letters)
    refill(channel, queue, *numbered(5))
    policy(queue, {"max-length": 2})
    poll(lambda: counts(channel, queue)[0] == 2)
    poll(lambda: counts(channel, letters)[0] == 3)
    # 3.10.8 sends the dead letters of one step with the youngest first.
    assert sorted(take_dead_letters(channel, letters)) == [(body, MAXLEN) for body in numbered(3)]
    assert drain(channel, queue) == [b"4", b"5"]


def test_6_1_14_dead_letters_are_never_rejected(channel: Channel, unique: Unique, poll: Poll) -> None:
    letters = quorum(channel, unique, 1, None, "reject-publish")
    queue = bounded(channel, unique, 0, letters=letters)
    refill(channel, queue, *numbered(5))
    expect_buried(channel, poll, letters, *[(body, MAXLEN) for body in numbered(5)])


@pytest.mark.parametrize("overflow", ["drop-head", *REJECTING])
def test_6_1_15_no_priorities(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = quorum(channel, unique, 9, None, overflow)
    for body, priority in ((b"low", 0), (b"high", 9), (b"middle", 5)):
        refill(channel, queue, body, priority=priority)
    assert drain(channel, queue) == [b"low", b"high", b"middle"]
