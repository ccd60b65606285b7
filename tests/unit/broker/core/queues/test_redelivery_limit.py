"""The argument x-redelivery-limit: returned messages are counted, and dropped when they have returned too often."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.queues.returns import DeliveryCounter, unstored, without_count
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr
from leveret.storage.interface import Entry
from leveret.storage.message import Message, StoredMessage, TimedMessage
from leveret.storage.stores.priority_store import ReturnsStore
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import ENVELOPE_FIELDS
from tests.support.queue_content import arguments, contents, deaths, drain, envelope, headers_of, publish
from tests.support.queues import declare
from tests.support.simulated_files import SimulatedFiles
from tests.support.stored_queue import Start


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    return declare(vhost, name, arguments=arguments(**given))


def returned(queue: ClassicQueue, times: int = 1) -> None:
    """Get and requeue the message at the head this many times."""
    for _ in range(times):
        entry = got(queue)
        queue.requeue([entry])


def got(queue: ClassicQueue) -> Entry:
    """Get the message at the head, to be settled by the caller."""
    holder = Holder(queue)
    entry = queue.get(holder)
    assert entry is not None
    queue.release(holder, [entry])
    return entry


def count(message: Message) -> FieldValue | None:
    return find(headers_of(message), "x-delivery-count")


def test_messages_of_two_priorities_return_together(vhost: VirtualHost) -> None:
    """What returns second in its priority has one number in both; only one of these two has returned too often."""
    queue = made(vhost, max_priority=1, redelivery_limit=2)
    publish(queue, "low")
    returned(queue, 2)
    publish(queue, "aa", "bb", priority=1)
    queue.requeue([got(queue), got(queue)])
    queue.requeue([got(queue), got(queue), got(queue)])
    assert contents(queue) == ["aa", "bb"]


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


OWN = ("own", FieldValue("S", b"x"))
ENVELOPE = envelope("k", exchange="x", headers=(OWN,), expiration=500, priority=3, persistent=True, blind_keys=("b",))
MESSAGES = {
    "plain": Message(ENVELOPE, b"body"),
    "timed": TimedMessage(ENVELOPE, b"body", 77),
    "stored": StoredMessage(ENVELOPE, b"body", 0, 99),
    "stored and timed": StoredMessage(ENVELOPE, b"body", 77, 99),
}


@pytest.fixture(params=MESSAGES)
def original(request: pytest.FixtureRequest) -> Message:
    return MESSAGES[request.param]


def is_same(message: Message, original: Message, *but: str) -> bool:
    same = (message.body, message.expires_at) == (original.body, original.expires_at)
    fields = [name for name in ENVELOPE_FIELDS if name not in but]
    return same and all(getattr(message.envelope, name) == getattr(original.envelope, name) for name in fields)


def counts(delivered: int, acquired: int) -> FieldTable:
    return ("x-delivery-count", FieldValue("l", delivered)), ("x-acquired-count", FieldValue("l", acquired))


def test_a_count_is_a_header_and_changes_nothing_else(original: Message) -> None:
    counted = DeliveryCounter().with_count(original, 2)
    assert is_same(counted, original, "header", "delivery_count")
    assert counted.envelope.delivery_count == 2
    assert headers_of(counted) == (OWN, *counts(2, 0)[:1])
    assert type(counted) is type(original)
    assert getattr(counted, "arrived_at", None) == getattr(original, "arrived_at", None)


def test_all_returns_are_counted_beside_the_failed_ones(original: Message) -> None:
    counter = DeliveryCounter()
    counted = counter.with_count(original, 1, 4)
    assert dict(headers_of(counted)) == dict((OWN, *counts(1, 4)))
    # The next ones replace them.
    assert dict(headers_of(counter.with_count(counted, 2, 5))) == dict((OWN, *counts(2, 5)))
    assert dict(headers_of(counter.with_count(original, 0, 3))) == dict((OWN, *counts(0, 3)[1:]))


def test_without_its_count_a_message_is_as_it_was_published(original: Message) -> None:
    counted = DeliveryCounter().with_count(original, 2, 5)
    assert is_same(without_count(counted), original)
    assert without_count(original) is original


def test_a_message_without_its_place_on_disk_keeps_the_rest(original: Message) -> None:
    found = unstored(original)
    assert is_same(found, original)
    assert not isinstance(found, StoredMessage)
    assert isinstance(found, TimedMessage) is (original.expires_at > 0)


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


def test_returned_messages_are_found_without_the_limit(files: SimulatedFiles) -> None:
    before = Start(files, redelivery_limit=2)
    publish(before.queue, *"ab", persistent=True)
    before.returned()
    before.stop()
    assert Start(files).drain() == [("a", True, 1), ("b", False, None)]


def test_priorities(files: SimulatedFiles) -> None:
    given: dict[str, Any] = {"redelivery_limit": 2, "max_priority": 9}
    before = Start(files, **given)
    for body, priority in (("low", 0), ("a", 5), ("b", 5), ("top", 9)):
        publish(before.queue, body, priority=priority, persistent=True)
    entries = [before.got() for _ in range(4)]
    before.queue.requeue([entries[2]])
    before.queue.requeue([entries[3]])
    before.stop()
    after = Start(files, **given)
    assert after.drain() == [("top", True, None), ("b", True, 1), ("a", True, None), ("low", True, 1)]


@pytest.mark.parametrize("lazy", [True, False])
def test_transient_messages(files: SimulatedFiles, lazy: bool) -> None:
    """They can be read wherever they are, and are gone after a restart."""
    given: dict[str, Any] = {"redelivery_limit": 9, "queue_mode": "lazy" if lazy else "default"}
    before = Start(files, **given)
    publish(before.queue, *"abc")
    for _ in range(4):
        before.loop.run()
        before.returned()
    before.queue.backing.page_out(1 << 20)
    before.loop.run()
    before.returned()
    before.loop.run()
    assert before.drain() == [("a", True, 5), ("b", False, None), ("c", False, None)]
    publish(before.queue, *"d")
    before.returned()
    before.stop()
    assert Start(files, **given).drain() == []


def test_a_queue_in_memory_moves_to_disk(files: SimulatedFiles) -> None:
    start = Start(files, durable=False, redelivery_limit=9, max_priority=2)
    publish(start.queue, *"abc")
    publish(start.queue, *"d", priority=1)
    held = [start.got() for _ in range(3)]
    start.queue.requeue([held[1]])
    start.queue.backing.page_out(1 << 20)
    start.loop.run()
    start.queue.requeue([held[2], held[0]])
    start.loop.run()
    assert start.drain() == [("d", True, 1), ("a", True, 1), ("b", True, 1), ("c", False, None)]


def test_a_queue_that_moved_to_disk_with_what_was_held_can_be_deleted(files: SimulatedFiles) -> None:
    start = Start(files, durable=False)
    publish(start.queue, *"abcd")
    held = [start.got() for _ in range(4)]
    start.queue.requeue([held[3]])
    start.queue.backing.page_out(1 << 20)
    start.loop.run()
    assert start.drain() == [("d", True, None)]
    # How long these are, the store in memory has not counted.
    start.queue.acknowledge(held[:2])
    (store,) = start.queue.backing.stores()
    assert (store.taken_count, store.taken_bytes) == (1, 0)
    # A checkpoint and an event have the sums of bytes.
    start.engine.checkpoint()
    start.loop.advance(2)
    start.queue.backing.delete()
    start.loop.advance(2)
    assert not start.engine.queues


# -- delayed retries ----------------------------------------------------------------------------------------

RETRY: dict[str, Any] = {"delayed_retry_type": "all", "delayed_retry_min": 10_000, "delayed_retry_max": 60_000}


def test_they_are_found_without_the_arguments_and_by_priority(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY, max_priority=5)
    for body, priority in (("a", 1), ("b", 5)):
        publish(before.queue, body, priority=priority, persistent=True)
    before.returned(2)
    before.stop()
    after = Start(files, 1020.0, max_priority=5)
    publish(after.queue, "c", priority=5)
    after.loop.advance(0)
    assert [body for body, *_ in after.drain()] == ["b", "c", "a"]


def test_their_time_to_live_survives(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY)
    publish(before.queue, "b", persistent=True, expiration=5_000)
    publish(before.queue, "a", persistent=True, expiration=15_000)
    before.returned(2)
    before.stop()
    after = Start(files, 1010.0, **RETRY)
    after.loop.advance(0)
    assert (after.queue.ready_count(), after.queue.counters.dropped["expired"]) == (1, 1)
    after.loop.advance(4.9)
    assert after.queue.ready_count() == 1
    after.loop.advance(0.2)
    assert after.queue.ready_count() == 0


@pytest.mark.parametrize("durable", [True, False])
def test_transient_messages_wait_on_disk_until_the_restart(files: SimulatedFiles, durable: bool) -> None:
    before = Start(files, durable=durable, **RETRY)
    publish(before.queue, *"ab")
    publish(before.queue, "c", persistent=True)
    before.returned(3)
    before.loop.run()
    before.loop.advance(1)
    assert before.queue.backing.held_bytes == 0
    before.loop.advance(9)
    assert [body for body, *_ in before.drain()] == ["a", "b", "c"]
    publish(before.queue, *"de")
    publish(before.queue, "f", persistent=True)
    before.returned(3)
    before.stop()
    after = Start(files, 2000.0, durable=durable, **RETRY)
    after.loop.advance(0)
    assert [body for body, *_ in after.drain()] == (["f"] if durable else [])


@pytest.mark.parametrize("loaded", [True, False])
def test_a_purge_after_a_start(files: SimulatedFiles, loaded: bool) -> None:
    before = Start(files, **RETRY)
    publish(before.queue, *["a"] * 3000, persistent=True)
    before.returned(3000)
    before.stop()
    after = Start(files, 1001.0, **RETRY)
    if loaded:
        after.loop.advance(0)
    assert after.queue.purge() == 3000
    publish(after.queue, "b", persistent=True)
    after.returned()
    after.loop.advance(11)
    assert [body for body, *_ in after.drain()] == ["b"]
    after.stop()
    again = Start(files, 3000.0, **RETRY)
    again.loop.advance(1)
    assert again.drain() == []


def test_very_many_return_in_their_order(files: SimulatedFiles) -> None:
    before = Start(files, **RETRY)
    bodies = [f"{number:04d}" for number in range(3000)]
    publish(before.queue, *bodies, persistent=True)
    before.returned(3000)
    before.loop.advance(10)
    assert [body for body, *_ in before.drain()] == bodies
    before.stop()
    again = Start(files, 3000.0, **RETRY)
    again.loop.advance(1)
    assert again.drain() == []


def test_a_queue_in_memory_moves_to_disk_with_what_is_held(files: SimulatedFiles) -> None:
    start = Start(files, durable=False, **RETRY)
    publish(start.queue, *"abcd")
    held = [start.got() for _ in range(3)]
    start.queue.requeue([held[1]])
    start.queue.acknowledge([held[0]])
    start.loop.advance(1)
    start.queue.requeue([held[2]])
    start.loop.advance(10)
    assert [body for body, *_ in start.drain()] == ["b", "c", "d"]


@pytest.mark.parametrize("wait", [1.0, 11.0])
def test_a_duplicate_of_what_waits_is_dropped(files: SimulatedFiles, wait: float) -> None:
    """Before a restart and after it."""
    headers: FieldTable = (("x-deduplication-header", longstr("a")),)
    given: dict[str, Any] = {**RETRY, "message_deduplication": "true"}
    before = Start(files, **given)
    for _ in range(2):
        publish(before.queue, "a", headers=headers, persistent=True)
    before.returned()
    publish(before.queue, "a", headers=headers, persistent=True)
    assert (before.queue.store.ready_count, before.queue.counters.deduplicated) == (0, 2)
    before.stop()
    after = Start(files, **given)
    after.loop.advance(wait)
    publish(after.queue, "a", headers=headers, persistent=True)
    assert after.queue.counters.deduplicated == 1
    after.loop.advance(11)
    assert len(after.drain()) == 1
    publish(after.queue, "a", headers=headers, persistent=True)
    assert len(after.drain()) == 1
