"""Rules 3.4.1 to 3.4.10: policies that change while queues and exchanges are in use."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conformance.accounts import Accounts
from tests.conformance.bounded import refill
from tests.conformance.deaths import after, arrival, arrivals, dead_lettering, history, reject
from tests.conformance.fixtures import Connect, Poll, Unique
from tests.conformance.leases import gone
from tests.conformance.operator_policies import PolicySet, only
from tests.conformance.topology import bodies, bound_queue, counts, drain, fill, got, new_exchange, new_queue, numbered
from tests.support.management import Management
from tests.support.wire import Channel


def test_3_4_1_set_changed_and_cleared(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, *numbered(10))
    name = policies.set(only(queue), {"max-length": 5})
    assert counts(channel, queue)[0] == 5
    policies.set(only(queue), {"max-length": 3}, name=name)
    assert counts(channel, queue)[0] == 3
    policies.clear(name)
    refill(channel, queue, *numbered(10))
    assert counts(channel, queue)[0] == 13


def test_3_4_1_dead_letters(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    first, second = new_queue(channel, unique), new_queue(channel, unique)
    queue = new_queue(channel, unique, *numbered(4))
    name = policies.set(only(queue), {"dead-letter-exchange": "", "dead-letter-routing-key": first})
    reject(channel, queue)
    policies.set(only(queue), {"dead-letter-exchange": "", "dead-letter-routing-key": second}, name=name)
    reject(channel, queue)
    policies.set(only(queue), {"dead-letter-routing-key": second}, name=name)
    reject(channel, queue)
    policies.clear(name)
    reject(channel, queue)
    assert (arrivals(channel, first, 1), arrivals(channel, second, 1)) == ([b"1"], [b"2"])
    assert (drain(channel, first), drain(channel, second)) == ([], [])


@pytest.mark.parametrize("definition", [{"max-length": 3}, {"max-length-bytes": 3}], ids=str)
def test_3_4_2_a_lower_limit_evicts_the_oldest(
    channel: Channel, unique: Unique, policies: PolicySet, definition: dict[str, Any]
) -> None:
    letters, queue = new_queue(channel, unique), new_queue(channel, unique, *numbered(9))
    to = {"dead-letter-exchange": "", "dead-letter-routing-key": letters}
    policies.set(only(queue), {**definition, **to})
    assert counts(channel, queue)[0] == 3
    found = [arrival(channel, letters) for _ in range(6)]
    assert bodies(found) == numbered(6)
    assert {each for letter in found for each in history(letter)} == {(queue, "maxlen", 1)}
    assert drain(channel, queue) == [b"7", b"8", b"9"]


def test_3_4_2_unacked_messages_are_not_evicted(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, *numbered(5))
    taken = [got(channel, queue) for _ in range(2)]
    policies.set(only(queue), {"max-length": 1})
    assert counts(channel, queue)[0] == 1
    for delivery in taken:
        channel.ack(delivery.delivery_tag)
    assert drain(channel, queue) == [b"5"]


def test_3_4_3_dead_letters_are_set_before_limits(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    first, second = new_queue(channel, unique), new_queue(channel, unique)
    queue = new_queue(channel, unique, *numbered(4))
    to = {"dead-letter-exchange": "", "dead-letter-routing-key": first}
    name = policies.set(only(queue), {"max-length": 3, **to})
    to["dead-letter-routing-key"] = second
    policies.set(only(queue), {"max-length": 2, **to}, name=name)
    channel.sync(queue)
    assert (arrivals(channel, first, 1), arrivals(channel, second, 1)) == ([b"1"], [b"2"])
    assert (drain(channel, first), drain(channel, second)) == ([], [])


def test_3_4_3_dead_letters_are_gone_before_a_limit_evicts(
    channel: Channel, unique: Unique, policies: PolicySet
) -> None:
    letters, queue = new_queue(channel, unique), new_queue(channel, unique, *numbered(4))
    to = {"dead-letter-exchange": "", "dead-letter-routing-key": letters}
    name = policies.set(only(queue), to)
    policies.set(only(queue), {"max-length": 2}, name=name)
    assert counts(channel, queue)[0] == 2
    assert drain(channel, letters) == []


def test_3_4_4_a_new_limit_evicts_although_it_rejects(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, *numbered(10))
    policies.set(only(queue), {"max-length": 4, "overflow": "reject-publish"})
    fill(channel, queue, b"rejected")
    assert drain(channel, queue) == [b"7", b"8", b"9", b"10"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_3_4_4_a_lower_limit_evicts_nothing_when_it_rejects(
    channel: Channel, unique: Unique, policies: PolicySet, overflow: str
) -> None:
    queue = new_queue(channel, unique, *numbered(4))
    name = policies.set(only(queue), {"max-length": 4, "overflow": overflow})
    policies.set(only(queue), {"max-length": 2, "overflow": overflow}, name=name)
    fill(channel, queue, b"rejected")
    assert drain(channel, queue) == numbered(4)
    fill(channel, queue, *numbered(4))
    assert drain(channel, queue) == numbered(2)


def test_3_4_5_without_overflow_the_head_is_dropped(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, *numbered(4))
    name = policies.set(only(queue), {"max-length": 4, "overflow": "reject-publish"})
    policies.set(only(queue), {"max-length": 2}, name=name)
    assert counts(channel, queue)[0] == 2
    fill(channel, queue, b"5")
    assert drain(channel, queue) == [b"4", b"5"]


def test_3_4_5_a_limit_by_argument_remains(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 2)])
    name = policies.set(only(queue), {"overflow": "reject-publish"})
    fill(channel, queue, *numbered(4))
    policies.clear(name)
    fill(channel, queue, b"5")
    assert drain(channel, queue) == [b"2", b"5"]


def test_3_4_5_requeued_messages_above_the_limit(
    channel: Channel, unique: Unique, policies: PolicySet, poll: Poll
) -> None:
    queue = new_queue(channel, unique, arguments=[("x-max-length", "I", 2)])
    name = policies.set(only(queue), {"overflow": "reject-publish"})
    fill(channel, queue, *numbered(2))
    taken = [got(channel, queue) for _ in range(2)]
    refill(channel, queue, b"3", b"4")
    channel.nack(taken[-1].delivery_tag, multiple=True)
    poll(lambda: counts(channel, queue)[0] == 4)
    policies.clear(name)
    assert counts(channel, queue)[0] == 2
    assert drain(channel, queue) == [b"3", b"4"]


@pytest.mark.parametrize("definition", [None, {"max-length": 8}], ids=["cleared", "raised"])
def test_3_4_6_no_limit_or_a_higher_one(
    channel: Channel, unique: Unique, policies: PolicySet, definition: dict[str, Any] | None
) -> None:
    queue = new_queue(channel, unique)
    name = policies.set(only(queue), {"max-length": 4})
    refill(channel, queue, *numbered(6))
    if definition is None:
        policies.clear(name)
    else:
        policies.set(only(queue), definition, name=name)
    assert counts(channel, queue)[0] == 4
    refill(channel, queue, *numbered(6))
    assert counts(channel, queue)[0] == (10 if definition is None else 8)


def test_3_4_7_a_ttl_is_for_later_messages(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique, *numbered(3))
    policies.set(only(queue), {"message-ttl": 50})
    fill(channel, queue, b"new")
    after(channel, unique, 150)
    # The new one is behind the old ones, so it is still counted.
    assert counts(channel, queue)[0] == 4
    assert drain(channel, queue) == numbered(3)
    assert counts(channel, queue)[0] == 0


def test_3_4_7_a_cleared_ttl_stays_with_its_messages(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue, letters = dead_lettering(channel, unique)
    name = policies.set(only(queue), {"message-ttl": 200})
    fill(channel, queue, b"stamped")
    policies.clear(name)
    fill(channel, queue, b"unstamped")
    assert arrival(channel, letters).body == b"stamped"
    after(channel, unique, 300)
    assert drain(channel, queue) == [b"unstamped"]


def test_3_4_8_expiry_counts_from_now(channel: Channel, unique: Unique, policies: PolicySet, poll: Poll) -> None:
    queue = new_queue(channel, unique)
    after(channel, unique, 150)
    started = time.monotonic()
    policies.set(only(queue), {"expires": 150})
    poll(lambda: gone(channel, queue))
    assert time.monotonic() - started >= 0.15


def test_3_4_8_a_cleared_expiry(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    queue = new_queue(channel, unique)
    name = policies.set(only(queue), {"expires": 1500})
    policies.clear(name)
    after(channel, unique, 1800)
    assert not gone(channel, queue)


def test_3_4_8_a_queue_in_use(channel: Channel, unique: Unique, policies: PolicySet, poll: Poll) -> None:
    queue = new_queue(channel, unique)
    channel.consume(queue, "tag", no_ack=True)
    policies.set(only(queue), {"expires": 50})
    after(channel, unique, 200)
    assert not gone(channel, queue)
    channel.cancel("tag")
    poll(lambda: gone(channel, queue))


def unroutable(channel: Channel, exchange: str, *queues: str) -> list[list[bytes]]:
    """Publish to an exchange that has no bindings; return what each queue and the publisher get."""
    channel.publish(exchange, "key", b"one", mandatory=True)
    channel.sync(*queues)
    returned = [each.body for each in channel.returns]
    channel.returns.clear()
    return [*(drain(channel, queue) for queue in queues), returned]


def test_3_4_9_alternate_exchange(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    exchange, alternate = new_exchange(channel, unique), new_exchange(channel, unique, "fanout")
    queue = bound_queue(channel, unique, alternate, "")
    assert unroutable(channel, exchange, queue) == [[], [b"one"]]
    name = policies.set(only(exchange), {"alternate-exchange": alternate})
    assert unroutable(channel, exchange, queue) == [[b"one"], []]
    policies.clear(name)
    assert unroutable(channel, exchange, queue) == [[], [b"one"]]


def test_3_4_9_an_argument_wins(channel: Channel, unique: Unique, policies: PolicySet) -> None:
    mine, theirs = [new_exchange(channel, unique, "fanout") for _ in range(2)]
    queues = [bound_queue(channel, unique, each, "") for each in (mine, theirs)]
    exchange = new_exchange(channel, unique, arguments=[("alternate-exchange", "S", mine)])
    policies.set(only(exchange), {"alternate-exchange": theirs})
    assert unroutable(channel, exchange, *queues) == [[b"one"], [], []]


def test_3_4_9_not_of_the_default_exchange(management: Management, connect: Connect, accounts: Accounts) -> None:
    vhost = accounts.vhost("max-queues")
    channel = connect(vhost=vhost).channel()
    queue = channel.queue_declare("", exclusive=True).queue
    channel.queue_bind(queue, "amq.fanout")
    with PolicySet(management, vhost) as policies:
        policies.set("", {"alternate-exchange": "amq.fanout"})
        assert unroutable(channel, "", queue) == [[], [b"one"]]
        assert unroutable(channel, "amq.direct", queue) == [[b"one"], []]


def test_3_4_10_a_large_shrink(channel: Channel, unique: Unique, policies: PolicySet, poll: Poll) -> None:
    queue, letters = dead_lettering(channel, unique)
    refill(channel, queue, *([b"x"] * 5000))
    policies.set(only(queue), {"max-length": 10})
    assert counts(channel, queue)[0] == 10
    poll(lambda: counts(channel, letters)[0] == 4990)
