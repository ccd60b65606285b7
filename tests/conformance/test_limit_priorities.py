"""Rules 1.6.1 to 1.6.5: limits of queues with priorities."""

from __future__ import annotations

import pytest

from tests.conformance.bounded import REJECTING, bounded, outcomes, refill, take_dead_letters
from tests.conformance.fixtures import Poll, SetPolicy, Unique
from tests.conformance.topology import counts, drain, got, new_queue
from tests.support.wire import Channel

MAXLEN = "maxlen"


def fill_by_priority(channel: Channel, queue: str, *messages: tuple[bytes, int]) -> None:
    """Publish bodies with their priorities, in order; all are acked."""
    for body, priority in messages:
        refill(channel, queue, body, priority=priority)


def test_1_6_1_and_1_6_2_the_oldest_of_the_highest_priority_goes(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 4, letters=letters, priority=9)
    fill_by_priority(channel, queue, (b"low", 0), (b"high 1", 9), (b"high 2", 9), (b"middle", 5))
    fill_by_priority(channel, queue, (b"low 2", 0), (b"low 3", 0), (b"low 4", 0))
    assert drain(channel, queue) == [b"low", b"low 2", b"low 3", b"low 4"]
    assert take_dead_letters(channel, letters) == [(b"high 1", MAXLEN), (b"high 2", MAXLEN), (b"middle", MAXLEN)]


def test_1_6_1_bytes(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, None, 6, letters=letters, priority=9)
    fill_by_priority(channel, queue, (b"ll", 0), (b"hh", 9), (b"mm", 5), (b"llll", 0))
    assert drain(channel, queue) == [b"ll", b"llll"]
    assert take_dead_letters(channel, letters) == [(b"hh", MAXLEN), (b"mm", MAXLEN)]


def test_1_6_3_the_new_message_may_be_the_one_that_goes(channel: Channel, unique: Unique) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 3, letters=letters, priority=10)
    fill_by_priority(channel, queue, (b"1", 0), (b"2", 0), (b"3", 0), (b"new", 5))
    assert drain(channel, queue) == [b"1", b"2", b"3"]
    assert take_dead_letters(channel, letters) == [(b"new", MAXLEN)]


def test_1_6_4_a_policy_removes_from_the_highest_priority_down(
    channel: Channel, unique: Unique, policy: SetPolicy, poll: Poll
) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, letters=letters, priority=10)
    fill_by_priority(channel, queue, *[(b"p%d" % priority, priority) for priority in range(4)])
    policy(queue, {"max-length": 2})
    poll(lambda: counts(channel, queue)[0] == 2)
    assert drain(channel, queue) == [b"p1", b"p0"]
    assert take_dead_letters(channel, letters) == [(b"p3", MAXLEN), (b"p2", MAXLEN)]


@pytest.mark.parametrize("overflow", REJECTING)
def test_1_6_5_rejecting_looks_at_no_priority(channel: Channel, unique: Unique, overflow: str) -> None:
    letters = new_queue(channel, unique, hint="letters")
    queue = bounded(channel, unique, 2, None, overflow, letters=letters, priority=10)
    fill_by_priority(channel, queue, (b"low", 0), (b"middle", 5))
    for priority in (0, 5, 10):
        assert outcomes(channel, queue, b"new", properties={"priority": priority}) == [False]
    assert drain(channel, queue) == [b"middle", b"low"]
    dead = [(b"new", MAXLEN)] * 3
    assert take_dead_letters(channel, letters) == (dead if overflow == "reject-publish-dlx" else [])


@pytest.mark.parametrize("overflow", REJECTING)
def test_1_6_5_bytes_of_all_priorities_count(channel: Channel, unique: Unique, overflow: str) -> None:
    queue = bounded(channel, unique, None, 5, overflow, priority=10)
    fill_by_priority(channel, queue, (b"22", 0), (b"22", 5))
    assert outcomes(channel, queue, b"22", b"1", properties={"priority": 10}) == [False, True]


def test_1_6_1_requeued_messages_of_the_highest_priority_go(channel: Channel, unique: Unique) -> None:
    queue = bounded(channel, unique, 2, priority=10)
    fill_by_priority(channel, queue, (b"low", 0), (b"high", 10))
    high, low = got(channel, queue), got(channel, queue)
    assert (high.body, low.body) == (b"high", b"low")
    fill_by_priority(channel, queue, (b"low 2", 0), (b"middle", 5))
    channel.nack(low.delivery_tag, multiple=True)
    assert drain(channel, queue) == [b"low", b"low 2"]
