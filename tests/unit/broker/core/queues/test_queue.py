from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.fake_consumer import PLENTY, FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message, size_of
from tests.support.queues import declare, new_vhost, settle

SINGLE_ACTIVE: FieldTable = (("x-single-active-consumer", FieldValue("t", True)),)


@pytest.fixture
def queue(vhost: VirtualHost) -> ClassicQueue:
    return declare(vhost)


def publish(queue: ClassicQueue, *texts: str) -> None:
    messages = [message(text) for text in texts]
    queue.publish(messages, size_of(messages))


def consume(queue: ClassicQueue, tag: str = "c", **options: object) -> FakeConsumer:
    consumer = FakeConsumer(queue, tag, **options)  # type: ignore[arg-type]
    queue.add_consumer(consumer)
    return consumer


class TestDelivering:
    def test_messages_wait_for_the_end_of_the_turn(self, queue: ClassicQueue, loop: ManualLoop) -> None:
        consumer = consume(queue)
        publish(queue, "a", "b")
        assert consumer.received == []
        loop.run()
        assert consumer.runs == [["a", "b"]]
        assert (queue.store.ready_count, queue.unacked_count) == (0, 2)

    def test_a_queue_without_consumers_is_not_scheduled(self, queue: ClassicQueue, loop: ManualLoop) -> None:
        publish(queue, "a")
        assert loop.is_idle

    def test_consumers_on_different_channels_get_what_their_turns_give_at_once(
        self, queue: ClassicQueue, loop: ManualLoop
    ) -> None:
        consumers = [consume(queue, tag) for tag in "abc"]
        publish(queue, *"1234567")
        loop.run()
        assert [consumer.runs for consumer in consumers] == [[["1", "4", "7"]], [["2", "5"]], [["3", "6"]]]
        publish(queue, *"89")
        loop.run()
        assert [consumer.received[-1] for consumer in consumers] == ["7", "8", "9"]

    @given(
        rooms=st.lists(st.sampled_from([0, 1, 2, 3, 7, PLENTY]), min_size=2, max_size=5),
        steps=st.lists(
            st.one_of(st.integers(1, 12), st.tuples(st.integers(0, 4), st.integers(1, 3))), min_size=1, max_size=12
        ),
    )
    def test_channels_make_no_difference_to_who_gets_what(
        self, rooms: list[int], steps: list[int | tuple[int, int]]
    ) -> None:
        """A step publishes that many messages, or one of the consumers acknowledges that many."""
        received = []
        for shared in (None, list[str]()):
            loop = ManualLoop()
            queue = declare(new_vhost(loop))
            consumers = [consume(queue, room=room, log=shared) for room in rooms]
            for number, step in enumerate(steps):
                if isinstance(step, int):
                    publish(queue, *(f"{number}-{each}" for each in range(step)))
                else:
                    consumers[step[0] % len(consumers)].acknowledge(step[1])
                loop.run()
            received.append([consumer.received for consumer in consumers])
        assert received[0] == received[1]

    def test_asking_without_being_blocked_changes_nothing(self, queue: ClassicQueue, loop: ManualLoop) -> None:
        log: list[str] = []
        consumer = consume(queue, "a", log=log)
        consume(queue, "b", log=log)
        loop.run()
        queue.unblock(consumer)
        assert loop.is_idle
        publish(queue, *"1234")
        loop.run()
        assert log == list("abab")

    def test_an_unacked_consumer_that_left_gets_no_more(self, queue: ClassicQueue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"12")
        loop.run()
        assert consumer.blocked
        queue.remove_consumer(consumer)
        consumer.acknowledge()
        loop.run()
        assert consumer.received == ["1"]
        assert queue.store.ready_count == 1

    def test_a_backlog_comes_in_runs_that_others_can_break_into(self, queue: ClassicQueue, loop: ManualLoop) -> None:
        publish(queue, *map(str, range(600)))
        consumer = consume(queue)
        loop.run()
        assert [len(run) for run in consumer.runs] == [256, 256, 88]
        publish(queue, *["x" * 100_000] * 5)
        loop.run()
        assert [len(run) for run in consumer.runs[3:]] == [3, 2]
        assert consumer.received[:600] == [str(number) for number in range(600)]


class TestTheEnd:
    @pytest.mark.parametrize("outcome", ["acknowledge", "reject", "requeue"])
    def test_settling_messages_of_a_deleted_queue_has_no_effect(
        self, queue: ClassicQueue, loop: ManualLoop, outcome: Literal["acknowledge", "reject", "requeue"]
    ) -> None:
        consumer = consume(queue)
        publish(queue, "1")
        loop.run()
        queue.delete()
        settle(consumer, consumer.held, outcome)
        queue.unblock(consumer)
        queue.remove_consumer(consumer)
        loop.run()
        assert (consumer.unacked, queue.unacked_count, queue.store.ready_count) == (0, 0, 0)
        assert (queue.counters.acknowledged, queue.counters.requeued) == (0, 0)

    def test_a_blocked_consumer_of_a_deleted_queue_is_not_served_again(
        self, queue: ClassicQueue, loop: ManualLoop
    ) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"12")
        loop.run()
        queue.delete()
        consumer.acknowledge()
        loop.run()
        assert consumer.received == ["1"]
        assert not queue.consumers.ring
