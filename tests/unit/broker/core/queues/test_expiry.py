"""Expiry of messages and of queues: the rules 4.1 and 4.2."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue, HeadTimer, QueueExpiry
from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS, UNLIMITED, TimeSlice
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, envelope, publish
from tests.support.queues import ManualTimers, declare


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    return declare(vhost, name, arguments=arguments(**given))


def consume(queue: ClassicQueue, room: int = 10) -> FakeConsumer:
    consumer = FakeConsumer(queue, room=room)
    queue.add_consumer(consumer)
    return consumer


def gone(queue: ClassicQueue) -> int:
    """Return the number of expired messages of a queue."""
    return queue.counters.dropped["expired"]


class TestHeadTimer:
    @pytest.fixture
    def fired(self) -> list[float]:
        return []

    @pytest.fixture
    def timer(self, loop: ManualLoop, fired: list[float]) -> HeadTimer:
        return HeadTimer(ManualTimers(loop), lambda: fired.append(round(loop.now, 6)))

    def test_it_never_fires_without_an_expiry_time(
        self, loop: ManualLoop, timer: HeadTimer, fired: list[float]
    ) -> None:
        timer.arm(0)
        assert loop.pending_timers == 0

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

    def test_renewing_needs_one_timer_only(self, loop: ManualLoop, expiry: QueueExpiry) -> None:
        expiry.set(1000)
        for _ in range(100):
            expiry.renew()
        assert loop.pending_timers == 1

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

    def test_many_expire_in_batches(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=10)
        publish(queue, *["x"] * 10_000)
        loop.advance(1)
        assert (queue.store.ready_count, gone(queue)) == (0, 10_000)

    def test_any_number_may_be_a_time_to_live(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        vhost.policies.set(Policy("p", "", {"message-ttl": 10**400}), operator=False)
        publish(queue, "a")
        loop.advance(100_000)
        assert contents(queue) == ["a"]


class TestATimeToLiveOfZero:
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


class TestQueues:
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
