"""Expiry of messages and of queues: the rules 4.1 and 4.2."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.expiry import HeadTimer, QueueExpiry
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.time_slice import SLICE_MICROSECONDS, UNLIMITED, TimeSlice
from leveret.broker.core.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, envelope, publish
from tests.support.queues import ManualTimers, declare


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    return declare(vhost, name, arguments=arguments(**given))


def consume(queue: Queue, room: int = 10) -> FakeConsumer:
    consumer = FakeConsumer(queue, room=room)
    queue.add_consumer(consumer)
    return consumer


def gone(queue: Queue) -> int:
    """Return the number of expired messages of a queue."""
    return queue.counters.dropped["expired"]


class TestHeadTimer:
    @pytest.fixture
    def fired(self) -> list[float]:
        return []

    @pytest.fixture
    def timer(self, loop: ManualLoop, fired: list[float]) -> HeadTimer:
        return HeadTimer(ManualTimers(loop), lambda: fired.append(round(loop.now, 6)))

    def test_it_fires_once_at_the_expiry_time(self, loop: ManualLoop, timer: HeadTimer, fired: list[float]) -> None:
        timer.arm(1_002_000_000)
        loop.advance(1.9)
        assert fired == []
        loop.advance(5)
        assert fired == [1002.0]

    def test_it_never_fires_without_an_expiry_time(
        self, loop: ManualLoop, timer: HeadTimer, fired: list[float]
    ) -> None:
        timer.arm(0)
        assert loop.pending_timers == 0

    def test_it_fires_immediately_for_a_past_time(self, loop: ManualLoop, timer: HeadTimer, fired: list[float]) -> None:
        timer.arm(1)
        loop.advance(0)
        assert fired == [1000.0]

    def test_an_earlier_time_replaces_a_later_one(self, loop: ManualLoop, timer: HeadTimer, fired: list[float]) -> None:
        timer.arm(1_005_000_000)
        timer.arm(1_002_000_000)
        timer.arm(1_003_000_000)
        assert loop.pending_timers == 1
        loop.advance(10)
        assert fired == [1002.0]

    def test_a_closed_one_never_calls_and_may_be_armed_again(
        self, loop: ManualLoop, timer: HeadTimer, fired: list[float]
    ) -> None:
        timer.arm(1_002_000_000)
        timer.cancel()
        timer.cancel()
        timer.arm(1_003_000_000)
        loop.advance(10)
        assert fired == [1003.0]

    def test_any_number_is_a_valid_time(self, loop: ManualLoop, timer: HeadTimer, fired: list[float]) -> None:
        timer.arm(10**400)
        loop.advance(86_401)
        assert fired, "it looks once a day"


class TestLease:
    @pytest.fixture
    def ended(self) -> list[float]:
        return []

    @pytest.fixture
    def timers(self, loop: ManualLoop) -> ManualTimers:
        return ManualTimers(loop)

    @pytest.fixture
    def expiry(self, loop: ManualLoop, timers: ManualTimers, ended: list[float]) -> QueueExpiry:
        return QueueExpiry(timers, lambda: ended.append(round(loop.now, 6)))

    def test_without_expires_the_queue_never_expires(
        self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]
    ) -> None:
        expiry.renew()
        assert loop.pending_timers == 0

    def test_an_unused_queue_expires(self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]) -> None:
        expiry.set(1000)
        loop.advance(0.7)
        expiry.renew()
        loop.advance(0.9)
        expiry.renew()
        assert ended == []
        loop.advance(0.999)
        assert ended == []
        loop.advance(0.002)
        assert ended == [1002.6]
        assert loop.pending_timers == 0

    def test_renewing_needs_one_timer_only(self, loop: ManualLoop, expiry: QueueExpiry) -> None:
        expiry.set(1000)
        for _ in range(100):
            expiry.renew()
        assert loop.pending_timers == 1

    def test_consumers_suspend_it_and_removing_the_last_one_restarts_it(
        self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]
    ) -> None:
        expiry.set(1000)
        expiry.set_in_use(True)
        loop.advance(50)
        assert ended == []
        expiry.set_in_use(False)
        loop.advance(0.9)
        assert ended == []
        loop.advance(0.2)
        assert ended == [1051.0]

    def test_a_changed_value_restarts_it_and_the_same_value_does_not(
        self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]
    ) -> None:
        expiry.set(1000)
        loop.advance(0.8)
        expiry.set(1000)
        loop.advance(0.3)
        assert ended == [1001.0]

    @pytest.mark.parametrize(("length", "end"), [(5000, 1005.5), (100, 1000.6)])
    def test_a_changed_value_counts_from_now(
        self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float], length: int, end: float
    ) -> None:
        expiry.set(1000)
        loop.advance(0.5)
        expiry.set(length)
        loop.advance(20)
        assert ended == [end]

    @pytest.mark.parametrize("seconds", [3600, -3600])
    def test_it_uses_the_monotonic_clock(
        self, loop: ManualLoop, timers: ManualTimers, expiry: QueueExpiry, ended: list[float], seconds: int
    ) -> None:
        expiry.set(1000)
        loop.advance(0.5)
        expiry.renew()
        timers.set_by = seconds
        loop.advance(20)
        assert ended == [1001.5]

    def test_removing_the_value_disables_it(self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]) -> None:
        expiry.set(1000)
        expiry.set(None)
        loop.advance(10)
        assert ended == []

    def test_a_closed_one_never_calls(self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]) -> None:
        expiry.set(1000)
        expiry.close()
        expiry.renew()
        loop.advance(10)
        assert (ended, loop.pending_timers) == ([], 0)

    def test_any_number_is_a_valid_value(self, loop: ManualLoop, expiry: QueueExpiry, ended: list[float]) -> None:
        expiry.set(10**400)
        loop.advance(1_000_000)
        assert ended == []


class TestMessages:
    def test_the_message_at_the_head_expires(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=100)
        publish(queue, "a")
        loop.advance(0.05)
        publish(queue, "b")
        loop.advance(0.0499)
        assert queue.store.ready_count == 2
        loop.advance(0.0002)
        assert queue.store.ready_count == 1
        loop.advance(0.05)
        assert (queue.store.ready_count, gone(queue)) == (0, 2)

    @pytest.mark.parametrize(
        ("common", "own", "expected"), [(100, 50, 50), (50, 100, 50), (None, 50, 50), (50, None, 50)]
    )
    def test_the_shorter_time_counts(
        self, vhost: VirtualHost, loop: ManualLoop, common: int | None, own: int | None, expected: int
    ) -> None:
        given: dict[str, Any] = {} if common is None else {"message_ttl": common}
        queue = made(vhost, **given)
        publish(queue, "a", expiration=own)
        loop.advance((expected - 1) / 1000)
        assert queue.store.ready_count == 1
        loop.advance(0.002)
        assert queue.store.ready_count == 0

    def test_a_message_without_expiry_time_never_expires(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, "a")
        assert loop.pending_timers == 0

    def test_behind_a_living_head_it_counts_and_is_never_delivered(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, "long", expiration=1000)
        publish(queue, *"ab", expiration=10)
        publish(queue, "never")
        loop.advance(0.5)
        assert queue.ready_count() == 4
        consumer = consume(queue)
        loop.run()
        assert consumer.received == ["long", "never"]
        assert gone(queue) == 2

    @pytest.mark.parametrize("milliseconds", [1, 999])
    def test_one_that_a_consumer_waits_for_is_delivered_however_long_the_turn_takes(
        self, vhost: VirtualHost, loop: ManualLoop, milliseconds: int
    ) -> None:
        queue = made(vhost)
        consumer = consume(queue, 2)
        publish(queue, *"abc", expiration=milliseconds)
        loop.now += 1
        loop.run()
        assert (consumer.received, gone(queue)) == (["a", "b"], 1)

    def test_so_is_one_with_the_time_to_live_of_its_queue(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=1)
        consumer = consume(queue, 2)
        publish(queue, "a")
        queue.publish_varied([Message(envelope(), b"b")], 1, 1)
        loop.now += 1
        loop.run()
        assert (consumer.received, gone(queue)) == (["a", "b"], 0)

    def test_one_that_nobody_waited_for_is_not_delivered_with_it(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = consume(queue, 1)
        publish(queue, *"ab", expiration=1)
        loop.now += 1
        consumer.acknowledge()
        publish(queue, "c", expiration=1)
        loop.run()
        assert (consumer.received, gone(queue)) == (["a", "c"], 1)

    def test_the_consumers_turn_is_not_lost_to_one_that_has_expired(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, "1")
        publish(queue, "x", expiration=1)
        publish(queue, *"23")
        loop.advance(0.01)
        log: list[str] = []
        for tag in "ab":
            queue.add_consumer(FakeConsumer(queue, tag, log=log))
        loop.run()
        assert log == ["a", "b", "a"]

    def test_one_that_comes_to_the_head_by_a_get_goes_at_its_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        publish(queue, "first")
        publish(queue, "second", expiration=100)
        loop.run()
        assert queue.get(None) is not None
        loop.advance(0.101)
        assert (queue.store.ready_count, gone(queue)) == (0, 1)

    def test_unacked_messages_do_not_expire(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=10)
        consumer = consume(queue)
        publish(queue, "a")
        loop.advance(1)
        assert consumer.received == ["a"]
        consumer.acknowledge()
        assert gone(queue) == 0

    def test_a_message_keeps_its_time_when_it_returns(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=100)
        holder = Holder(queue)
        publish(queue, "a")
        entry = queue.get(holder)
        assert entry is not None
        loop.advance(0.06)
        queue.release(holder, [entry])
        queue.requeue([entry])
        loop.advance(0.03)
        assert queue.store.ready_count == 1
        loop.advance(0.02)
        assert gone(queue) == 1

    def test_one_that_returns_too_late_expires_before_anyone_gets_it(
        self, vhost: VirtualHost, loop: ManualLoop
    ) -> None:
        queue = made(vhost, message_ttl=10)
        holder = Holder(queue)
        publish(queue, "a")
        entry = queue.get(holder)
        assert entry is not None
        consumer = consume(queue)
        loop.advance(1)
        queue.release(holder, [entry])
        queue.requeue([entry])
        loop.run()
        assert (consumer.received, gone(queue)) == ([], 1)

    def test_a_policy_stamps_only_what_comes_afterwards(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        """Rule 3.4.7."""
        queue = made(vhost)
        publish(queue, "old")
        vhost.policies.set(Policy("p", "", {"message-ttl": 10}), operator=False)
        publish(queue, "new")
        vhost.policies.clear("p", operator=False)
        publish(queue, "newest")
        loop.advance(1)
        assert queue.ready_count() == 3
        assert contents(queue) == ["old", "newest"]

    def test_a_lower_priority_waits_behind_a_living_head(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, max_priority=5)
        publish(queue, "low", expiration=10)
        publish(queue, "high", priority=5)
        loop.advance(1)
        assert queue.ready_count() == 2
        assert contents(queue) == ["high"]

    def test_many_expire_in_batches(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=10)
        publish(queue, *["x"] * 10_000)
        loop.advance(1)
        assert (queue.store.ready_count, gone(queue)) == (0, 10_000)

    def test_an_expired_message_is_dead_lettered_without_its_expiration(
        self, vhost: VirtualHost, loop: ManualLoop
    ) -> None:
        queue = made(vhost, dead_letter_exchange="", dead_letter_routing_key="d")
        letters = made(vhost, "d")
        publish(queue, "a", expiration=10)
        loop.advance(100)
        (letter,) = drain(letters)
        assert deaths(letter) == [("q", "expired", 1)]
        assert letter.envelope.expiration_ms is None

    def test_any_number_may_be_a_time_to_live(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        vhost.policies.set(Policy("p", "", {"message-ttl": 10**400}), operator=False)
        publish(queue, "a")
        loop.advance(100_000)
        assert contents(queue) == ["a"]


class TestATimeToLiveOfZero:
    def test_who_has_credit_gets_it_and_the_rest_expires(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=0)
        consumer = consume(queue, 2)
        assert publish(queue, *"abcd") == 4
        loop.run()
        assert (consumer.received, gone(queue)) == (["a", "b"], 2)

    def test_a_returned_one_expires(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = consume(queue, 1)
        publish(queue, "a", expiration=0)
        loop.run()
        consumer.requeue(0)
        loop.run()
        assert gone(queue) == 1

    def test_each_makes_room_for_the_next(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=1, overflow="reject-publish")
        assert publish(queue, *"abc", expiration=0) == 3
        assert (gone(queue), queue.counters.refused) == (3, 0)

    def test_a_consumer_of_a_full_queue_gets_what_fits(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, max_length=1, overflow="reject-publish")
        consumer = consume(queue, 2)
        assert publish(queue, *"abcd", expiration=0) == 4
        loop.run()
        assert (consumer.received, gone(queue)) == (["a", "b"], 2)

    def test_they_expire_rather_than_fall_victim_to_the_limit(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=2, dead_letter_exchange="", dead_letter_routing_key="d")
        letters = made(vhost, "d")
        publish(queue, *"abcde", expiration=0)
        assert [deaths(letter) for letter in drain(letters)] == [[("q", "expired", 1)]] * 5

    @pytest.mark.parametrize(("dlx", "left"), [({}, ["a", "b"]), ({"dead_letter_exchange": "missing"}, ["b"])])
    def test_what_leaves_no_trace_pushes_nobody_out(
        self, vhost: VirtualHost, dlx: dict[str, str], left: list[str]
    ) -> None:
        """Rule 1.7.1 (d), which asks for the queue's time to live and for a dead-letter exchange."""
        queue = made(vhost, max_length=2, **dlx)
        publish(queue, *"ab")
        vhost.policies.set(Policy("p", "", {"message-ttl": 0}), operator=False)
        publish(queue, "c")
        assert contents(queue) == left


class TestQueues:
    def test_an_unused_queue_goes_without_dead_lettering(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, expires=1000, dead_letter_exchange="", dead_letter_routing_key="d")
        letters = made(vhost, "d")
        publish(queue, "a")
        loop.advance(0.99)
        publish(queue, "b")
        loop.advance(0.02)
        assert queue.deleted
        assert "q" not in vhost.queues
        assert letters.ready_count() == 0

    def test_basic_get_uses_it(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, expires=1000)
        loop.advance(0.9)
        assert queue.get(None) is None
        loop.advance(0.9)
        assert not queue.deleted
        loop.advance(0.2)
        assert queue.deleted

    def test_consumers_use_it_all_the_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, expires=1000)
        first, second = consume(queue), consume(queue)
        loop.advance(5)
        queue.remove_consumer(first)
        loop.advance(5)
        assert not queue.deleted
        queue.remove_consumer(second)
        loop.advance(0.9)
        assert not queue.deleted
        loop.advance(0.2)
        assert queue.deleted

    def test_a_policy_starts_counting_when_it_comes(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        loop.advance(100)
        vhost.policies.set(Policy("p", "", {"expires": 1000}), operator=False)
        loop.advance(0.9)
        assert not queue.deleted
        vhost.policies.clear("p", operator=False)
        loop.advance(10)
        assert not queue.deleted
        vhost.policies.set(Policy("p", "", {"expires": 500}), operator=False)
        loop.advance(1)
        assert queue.deleted

    @pytest.mark.parametrize("operator", [False, True])
    def test_a_change_of_its_policy_starts_it_anew_another_policy_does_not(
        self, vhost: VirtualHost, loop: ManualLoop, operator: bool
    ) -> None:
        queue = made(vhost, expires=1000)
        loop.advance(0.6)
        vhost.policies.set(Policy("p", "", {"max-length": 5}), operator=operator)
        loop.advance(0.6)
        assert not queue.deleted
        vhost.policies.set(Policy("p", "", {"max-length": 5}, priority=1), operator=operator)
        loop.advance(0.6)
        assert not queue.deleted
        vhost.policies.set(Policy("other", "", {"max-length": 5}), operator=operator)
        loop.advance(0.5)
        assert queue.deleted

    def test_a_deleted_queue_leaves_no_timer(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, expires=1000, message_ttl=100)
        publish(queue, "a")
        loop.run()
        vhost.delete_queue(queue)
        assert loop.pending_timers == 0


def test_expiry_that_takes_too_long_is_not_finished(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = made(vhost)
    publish(queue, *["x"] * 600, expiration=1000)
    publish(queue, "last")
    loop.run()
    clock = iter(range(0, 1 << 40, SLICE_MICROSECONDS))
    over = TimeSlice(lambda: next(clock))
    # Nothing has expired.
    assert queue.contents.expire(over)
    loop.now += 2
    assert not queue.contents.expire(over)
    assert queue.store.ready_count == 601
    assert queue.contents.expire(UNLIMITED)
    assert (queue.store.ready_count, gone(queue)) == (1, 600)
    assert queue.contents.expire(over)
    queue.purge()
    assert queue.contents.expire(over)
