"""The argument x-redelivery-limit: returned messages are counted, and dropped when they have returned too often."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldValue, find
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.returns_store import ReturnsStore
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish
from tests.support.queues import declare


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    return declare(vhost, name, arguments=arguments(**given))


def returned(queue: Queue, times: int = 1) -> None:
    """Get and requeue the message at the head this many times."""
    for _ in range(times):
        entry = got(queue)
        queue.requeue([entry])


def got(queue: Queue) -> Entry:
    """Get the message at the head, to be settled by the caller."""
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    return entry


def count(message: Message) -> FieldValue | None:
    return find(headers_of(message), "x-delivery-count")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("limit", [0, 2])
def test_a_message_that_returns_too_often_is_dead_lettered(vhost: VirtualHost, kind: str, limit: int) -> None:
    queue = made(vhost, queue_type=kind, redelivery_limit=limit, dead_letter_exchange="", dead_letter_routing_key="d")
    letters = declare(vhost, "d")
    publish(queue, "a")
    returned(queue, limit)
    assert (queue.ready_count(), letters.ready_count()) == (1, 0)
    returned(queue)
    assert queue.ready_count() == 0
    (letter,) = drain(letters)
    assert deaths(letter) == [("q", "delivery_limit", 1)]
    assert count(letter) is None, "it is a new message"
    assert (queue.counters.dropped["delivery_limit"], queue.counters.requeued) == (1, limit)


def test_without_a_dead_letter_exchange_it_is_dropped(vhost: VirtualHost) -> None:
    queue = made(vhost, redelivery_limit=1)
    publish(queue, *"ab")
    returned(queue, 2)
    assert contents(queue) == ["b"]


def test_of_two_limits_the_smaller_one_counts(vhost: VirtualHost) -> None:
    queue = made(vhost, queue_type="quorum", redelivery_limit=3, delivery_limit=1)
    publish(queue, "a")
    returned(queue, 2)
    assert queue.ready_count() == 0
    queue = made(vhost, "p", queue_type="quorum", redelivery_limit=1, delivery_limit=-1)
    publish(queue, "a")
    returned(queue, 2)
    assert queue.ready_count() == 0


def test_returned_messages_show_the_count_and_come_first(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, redelivery_limit=5)
    consumer = FakeConsumer(queue, room=3)
    queue.add_consumer(consumer)
    publish(queue, *"abcd")
    loop.run()
    assert [count(entry[1]) for entry in consumer.held] == [None] * 3
    consumer.room = 0
    consumer.requeue(2, 0)
    entries = queue.store.take(3, 100)[0]
    assert [(entry[1].body, entry[2]) for entry in entries] == [(b"c", True), (b"a", True), (b"d", False)]
    assert [count(entry[1]) for entry in entries] == [FieldValue("l", 1), FieldValue("l", 1), None]


def test_a_priority_comes_before_a_return(vhost: VirtualHost) -> None:
    queue = made(vhost, redelivery_limit=5, max_priority=9)
    publish(queue, "low", priority=1)
    publish(queue, "old", priority=5)
    publish(queue, "new", priority=5)
    first, second, third = got(queue), got(queue), got(queue)
    assert [entry[1].body for entry in (first, second, third)] == [b"old", b"new", b"low"]
    queue.requeue([third])
    queue.requeue([second])
    publish(queue, "top", priority=9)
    publish(queue, "newer", priority=5)
    publish(queue, "lower", priority=1)
    queue.requeue([first])
    assert contents(queue) == ["top", "new", "old", "newer", "low", "lower"]


def test_it_applies_with_many_priorities(vhost: VirtualHost) -> None:
    queue = made(vhost, redelivery_limit=1, max_priority=126)
    publish(queue, "a", priority=126)
    returned(queue, 2)
    assert contents(queue) == []


def test_with_very_many_priorities_it_is_refused_as_argument_and_has_no_effect_as_policy(vhost: VirtualHost) -> None:
    with pytest.raises(Exception, match=r"invalid arg 'x-redelivery-limit' .*: x-max-priority is above 126"):
        made(vhost, redelivery_limit=1, max_priority=127)
    queue = made(vhost, max_priority=200)
    vhost.policies.set(Policy("p", "", {"redelivery-limit": 0}), operator=False)
    publish(queue, "a", priority=150)
    returned(queue, 3)
    assert contents(queue) == ["a"]


def test_a_policy_counts_from_then_on(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost)
    consumer = FakeConsumer(queue, room=2)
    queue.add_consumer(consumer)
    publish(queue, *"abc")
    loop.run()
    consumer.room = 0
    assert not isinstance(queue.store, ReturnsStore)
    vhost.policies.set(Policy("p", "", {"redelivery-limit": 1}), operator=False)
    assert isinstance(queue.store, ReturnsStore)
    consumer.requeue(0, 1)
    assert queue.ready_count() == 3
    returned(queue)
    assert +queue.counters.dropped == {"delivery_limit": 1}
    assert contents(queue) == ["b", "c"]


def test_without_the_policy_messages_return_to_where_they_were(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost)
    vhost.policies.set(Policy("p", "", {"redelivery-limit": 1}), operator=False)
    publish(queue, *"abc")
    returned(queue)
    vhost.policies.clear("p", operator=False)
    returned(queue, 3)
    first, second = got(queue), got(queue)
    assert [count(entry[1]) for entry in (first, second)] == [FieldValue("l", 1), None]
    queue.requeue([second])
    queue.requeue([first])
    assert contents(queue) == ["a", "b", "c"]


def test_limits_drop_what_was_returned_first(vhost: VirtualHost) -> None:
    queue = made(vhost, redelivery_limit=5, max_length=2)
    publish(queue, *"ab")
    entry = got(queue)
    publish(queue, "c")
    queue.requeue([entry])
    assert contents(queue) == ["b", "c"]


def test_a_returned_message_keeps_its_time_to_live(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, redelivery_limit=5, message_ttl=1000)
    publish(queue, "a")
    loop.advance(0.6)
    returned(queue)
    loop.advance(0.3)
    assert queue.ready_count() == 1
    loop.advance(0.2)
    assert queue.store.ready_count == 0
    assert +queue.counters.dropped == {"expired": 1}


def test_the_timer_of_a_priority_queue_sees_returned_messages(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost, redelivery_limit=5, max_priority=3)
    publish(queue, "a", priority=1, expiration=1000)
    returned(queue)
    publish(queue, *"bcd", priority=2)
    assert [got(queue)[1].body for _ in range(3)] == [b"b", b"c", b"d"]
    loop.advance(1.1)
    assert +queue.counters.dropped == {"expired": 1}
