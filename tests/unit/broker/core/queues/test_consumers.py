from __future__ import annotations

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import ConsumerGroup, Ring
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost


@pytest.fixture
def queue() -> ClassicQueue:
    return declare(new_vhost(ManualLoop()))


def tags(ring: Ring) -> list[str]:
    return [consumer.tag for consumer in ring.first_level()] if ring else []


class TestRing:
    def test_discarding_who_is_not_in_does_nothing(self, queue: ClassicQueue) -> None:
        ring = Ring()
        ring.discard(FakeConsumer(queue, "a"))
        ring.add(FakeConsumer(queue, "b"))
        ring.discard(FakeConsumer(queue, "c"))
        ring.discard(FakeConsumer(queue, "d", priority=1))
        assert tags(ring) == ["b"]


class TestConsumerGroup:
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
