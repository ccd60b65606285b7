from __future__ import annotations

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import ConsumerGroup, Holder, Ring
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost


@pytest.fixture
def queue() -> ClassicQueue:
    return declare(new_vhost(ManualLoop()))


def tags(ring: Ring) -> list[str]:
    return [consumer.tag for consumer in ring.first_level()] if ring else []


def test_a_holder_starts_with_nothing(queue: ClassicQueue) -> None:
    holder = Holder(queue)
    assert (holder.queue, holder.unacked) == (queue, 0)


class TestRing:
    def test_equals_stand_in_the_order_of_arrival(self, queue: ClassicQueue) -> None:
        ring = Ring()
        assert not ring
        for tag in "abc":
            ring.add(FakeConsumer(queue, tag))
        assert ring
        assert tags(ring) == ["a", "b", "c"]

    def test_the_highest_priority_comes_first(self, queue: ClassicQueue) -> None:
        ring = Ring()
        consumers = [FakeConsumer(queue, str(priority), priority=priority) for priority in (0, 7, -3, 7)]
        for consumer in consumers:
            ring.add(consumer)
        seen = []
        while ring:
            level = list(ring.first_level())
            seen.append([consumer.tag for consumer in level])
            for each in level:
                ring.discard(each)
        assert seen == [["7", "7"], ["0"], ["-3"]]

    def test_a_blocked_consumer_leaves_and_knows_it(self, queue: ClassicQueue) -> None:
        ring = Ring()
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        ring.add(a)
        ring.add(b)
        ring.block(a)
        assert (a.blocked, b.blocked) == (True, False)
        assert tags(ring) == ["b"]
        ring.block(b)
        assert not ring

    def test_discarding_who_is_not_in_does_nothing(self, queue: ClassicQueue) -> None:
        ring = Ring()
        ring.discard(FakeConsumer(queue, "a"))
        ring.add(FakeConsumer(queue, "b"))
        ring.discard(FakeConsumer(queue, "c"))
        ring.discard(FakeConsumer(queue, "d", priority=1))
        assert tags(ring) == ["b"]

    def test_a_level_that_was_empty_can_fill_again(self, queue: ClassicQueue) -> None:
        ring = Ring()
        high, low = FakeConsumer(queue, "high", priority=1), FakeConsumer(queue, "low")
        ring.add(high)
        ring.add(low)
        ring.block(high)
        assert tags(ring) == ["low"]
        ring.add(high)
        assert tags(ring) == ["high"]


class TestConsumerGroup:
    def test_all_members_are_in_the_ring(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=False)
        members = [FakeConsumer(queue, tag) for tag in "abc"]
        for member in members:
            group.add(member)
        assert len(group) == 3
        assert list(group) == members
        assert tags(group.ring) == ["a", "b", "c"]
        assert group.active is None
        group.remove(members[1])
        assert tags(group.ring) == ["a", "c"]

    def test_an_unblocked_member_stands_last(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=False)
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        group.add(a)
        group.add(b)
        group.ring.block(a)
        group.unblock(a)
        assert not a.blocked
        assert tags(group.ring) == ["b", "a"]

    @pytest.mark.parametrize("single_active", [False, True])
    def test_a_removed_consumer_is_not_blocked(self, queue: ClassicQueue, single_active: bool) -> None:
        """Else an acknowledgement that comes later would put it back into the ring."""
        group = ConsumerGroup(single_active)
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        group.add(a)
        group.add(b)
        group.ring.block(a)
        group.remove(a)
        assert not a.blocked
        assert tags(group.ring) == ["b"]

    def test_a_cleared_group_has_neither_members_nor_ring(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=True)
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        group.add(a)
        group.add(b)
        group.ring.block(a)
        assert group.clear() == [a, b]
        assert (len(group), bool(group.ring), group.active) == (0, False, None)
        assert group.clear() == []

    def test_exclusive_is_what_its_member_is(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=False)
        assert not group.exclusive
        alone = FakeConsumer(queue, "a", exclusive=True)
        group.add(alone)
        assert group.exclusive
        group.remove(alone)
        group.add(FakeConsumer(queue, "b"))
        assert not group.exclusive


class TestSingleActive:
    def test_the_first_one_is_active_whatever_comes_later(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=True)
        first, better = FakeConsumer(queue, "first"), FakeConsumer(queue, "better", priority=9)
        group.add(first)
        group.add(better)
        assert group.active is first
        assert tags(group.ring) == ["first"]
        assert len(group) == 2

    def test_the_one_of_highest_priority_and_longest_wait_takes_over(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=True)
        members = [
            FakeConsumer(queue, tag, priority=priority) for tag, priority in zip("abcd", (0, 1, 2, 2), strict=True)
        ]
        for member in members:
            group.add(member)
        order = []
        while (active := group.active) is not None:
            order.append(active.tag)
            group.remove(active)
        assert not group.ring
        assert order == ["a", "c", "d", "b"]

    def test_a_waiting_one_may_leave(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=True)
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        group.add(a)
        group.add(b)
        group.remove(b)
        assert group.active is a
        group.remove(a)
        assert group.active is None
        assert not group.ring

    def test_the_active_one_stays_active_while_it_is_blocked(self, queue: ClassicQueue) -> None:
        group = ConsumerGroup(single_active=True)
        a, b = FakeConsumer(queue, "a"), FakeConsumer(queue, "b")
        group.add(a)
        group.add(b)
        group.ring.block(a)
        assert group.active is a
        assert not group.ring
        group.unblock(a)
        assert tags(group.ring) == ["a"]


class CountedConsumer(FakeConsumer):
    """A consumer that counts how often it is looked at."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        CountedConsumer.looks += 1
        return self is other

    __hash__ = FakeConsumer.__hash__

    def __getattribute__(self, name: str) -> object:
        if name == "priority":
            CountedConsumer.looks += 1
        return super().__getattribute__(name)


class TestManyConsumers:
    """The work for one that leaves does not grow with the number of those that stay."""

    @pytest.mark.parametrize("single_active", [False, True])
    @pytest.mark.parametrize("priorities", [1, 3, 2000])
    @pytest.mark.parametrize("order", ["first come, first go", "last come, first go"])
    def test_leaving_costs_the_same_for_each(
        self, queue: ClassicQueue, single_active: bool, priorities: int, order: str
    ) -> None:
        group = ConsumerGroup(single_active)
        members = [CountedConsumer(queue, str(number), priority=number % priorities) for number in range(2000)]
        for member in members:
            group.add(member)
        CountedConsumer.looks = 0
        for member in members if order.startswith("first") else reversed(members):
            group.remove(member)
        assert CountedConsumer.looks < 2000 * 20
        assert (len(group), group.active, bool(group.ring)) == (0, None, False)


def test_channels_are_shared_while_one_has_two_of_the_consumers(queue: ClassicQueue) -> None:
    group, channel = ConsumerGroup(False), list[str]()
    alone, first, second = FakeConsumer(queue, "a"), FakeConsumer(queue, log=channel), FakeConsumer(queue, log=channel)
    group.add(alone)
    group.add(first)
    assert not group.share_channels
    group.add(second)
    assert group.share_channels
    group.remove(alone)
    assert group.share_channels
    group.remove(first)
    assert not group.share_channels
    group.add(first)
    assert group.share_channels
    assert group.clear() == [second, first]
    assert not group.share_channels
