from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.protocol.field_table import FieldTable, FieldValue
from tests.support.fake_consumer import PLENTY, FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message, size_of
from tests.support.queues import declare, new_vhost, settle

SINGLE_ACTIVE: FieldTable = (("x-single-active-consumer", FieldValue("t", True)),)


@pytest.fixture
def queue(vhost: VirtualHost) -> Queue:
    return declare(vhost)


def publish(queue: Queue, *texts: str) -> None:
    messages = [message(text) for text in texts]
    queue.publish(messages, size_of(messages))


def consume(queue: Queue, tag: str = "c", **options: object) -> FakeConsumer:
    consumer = FakeConsumer(queue, tag, **options)  # type: ignore[arg-type]
    queue.add_consumer(consumer)
    return consumer


def got(queue: Queue, holder: Holder | None = None) -> tuple[str, bool] | None:
    entry = queue.get(holder)
    return None if entry is None else (entry[1].body.decode(), entry[2])


class TestDelivering:
    def test_messages_wait_for_the_end_of_the_turn(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue)
        publish(queue, "a", "b")
        assert consumer.received == []
        loop.run()
        assert consumer.runs == [["a", "b"]]
        assert (queue.store.ready_count, queue.unacked_count) == (0, 2)

    def test_a_consumer_gets_what_was_there_before_it(self, queue: Queue, loop: ManualLoop) -> None:
        publish(queue, "a")
        loop.run()
        consumer = consume(queue)
        loop.run()
        assert consumer.received == ["a"]

    def test_a_queue_without_consumers_is_not_scheduled(self, queue: Queue, loop: ManualLoop) -> None:
        publish(queue, "a")
        assert loop.is_idle

    def test_equal_consumers_take_turns(self, queue: Queue, loop: ManualLoop) -> None:
        log: list[str] = []
        for tag in "abc":
            consume(queue, tag, log=log)
        publish(queue, *"1234567")
        loop.run()
        assert log == list("abcabca")
        publish(queue, *"89")
        loop.run()
        assert log == list("abcabcabc")

    def test_consumers_on_different_channels_get_what_their_turns_give_at_once(
        self, queue: Queue, loop: ManualLoop
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

    def test_credit_is_respected(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"12345")
        loop.run()
        assert consumer.received == ["1", "2"]
        assert consumer.blocked
        assert queue.store.ready_count == 3

    def test_a_consumer_without_credit_is_skipped(self, queue: Queue, loop: ManualLoop) -> None:
        log: list[str] = []
        consume(queue, "a", room=1, log=log)
        consume(queue, "b", room=3, log=log)
        consume(queue, "c", room=0, log=log)
        publish(queue, *"123456")
        loop.run()
        assert log == list("abbb")
        assert queue.store.ready_count == 2

    def test_a_settled_message_makes_room(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"123")
        loop.run()
        for expected in ("12", "123"):
            consumer.acknowledge()
            loop.run()
            assert consumer.received == list(expected)
        assert queue.counters.acknowledged == 2

    def test_asking_without_being_blocked_changes_nothing(self, queue: Queue, loop: ManualLoop) -> None:
        log: list[str] = []
        consumer = consume(queue, "a", log=log)
        consume(queue, "b", log=log)
        loop.run()
        queue.unblock(consumer)
        assert loop.is_idle
        publish(queue, *"1234")
        loop.run()
        assert log == list("abab")

    def test_an_unacked_consumer_that_left_gets_no_more(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"12")
        loop.run()
        assert consumer.blocked
        queue.remove_consumer(consumer)
        consumer.acknowledge()
        loop.run()
        assert consumer.received == ["1"]
        assert queue.store.ready_count == 1

    def test_higher_priority_goes_first_as_long_as_it_has_credit(self, queue: Queue, loop: ManualLoop) -> None:
        log: list[str] = []
        consume(queue, "low", log=log)
        high = consume(queue, "high", room=2, priority=5, log=log)
        publish(queue, *"1234")
        loop.run()
        assert log == ["high", "high", "low", "low"]
        high.acknowledge(2)
        publish(queue, *"56")
        loop.run()
        assert log[4:] == ["high", "high"]

    def test_a_backlog_comes_in_runs_that_others_can_break_into(self, queue: Queue, loop: ManualLoop) -> None:
        publish(queue, *map(str, range(600)))
        consumer = consume(queue)
        loop.run()
        assert [len(run) for run in consumer.runs] == [256, 256, 88]
        publish(queue, *["x" * 100_000] * 5)
        loop.run()
        assert [len(run) for run in consumer.runs[3:]] == [3, 2]
        assert consumer.received[:600] == [str(number) for number in range(600)]

    def test_messages_sent_without_acknowledgement_are_settled(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, no_ack=True)
        publish(queue, *"12")
        loop.run()
        assert consumer.received == ["1", "2"]
        assert (queue.unacked_count, consumer.unacked) == (0, 0)


class TestRequeue:
    def test_a_message_returns_to_its_place(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=3)
        publish(queue, *"12345")
        loop.run()
        queue.remove_consumer(consumer)
        consumer.requeue(2, 0)
        assert [got(queue) for _ in range(4)] == [("1", True), ("3", True), ("4", False), ("5", False)]
        assert got(queue) is None
        assert (queue.unacked_count, consumer.unacked) == (1, 1)

    def test_it_may_go_straight_back_to_the_same_consumer(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"12")
        loop.run()
        consumer.requeue(0)
        queue.unblock(consumer)
        loop.run()
        assert consumer.received == ["1", "1"]
        assert consumer.held[0][2] is True
        assert (queue.counters.requeued, queue.counters.redelivered, queue.counters.delivered) == (1, 1, 2)

    def test_a_requeued_message_goes_to_a_waiting_consumer(self, queue: Queue, loop: ManualLoop) -> None:
        holder = Holder(queue)
        publish(queue, "1")
        entry = queue.get(holder)
        assert entry is not None
        consumer = consume(queue)
        loop.run()
        assert consumer.received == []
        settle(holder, [entry], "requeue")
        loop.run()
        assert consumer.received == ["1"]
        assert holder.unacked == 0

    def test_rejected_messages_are_dropped(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"12")
        loop.run()
        settle(consumer, consumer.held, "reject")
        assert (queue.unacked_count, consumer.unacked, queue.store.ready_count) == (0, 0, 0)
        assert queue.counters.acknowledged == 0


class TestGet:
    def test_an_empty_queue_has_nothing_to_get(self, queue: Queue) -> None:
        assert got(queue) is None
        assert queue.counters.got == 0

    def test_get_takes_the_head(self, queue: Queue) -> None:
        holder = Holder(queue)
        publish(queue, *"12")
        assert got(queue, holder) == ("1", False)
        assert (holder.unacked, queue.unacked_count, queue.counters.got) == (1, 1, 1)
        assert got(queue) == ("2", False)
        assert (holder.unacked, queue.unacked_count) == (1, 1)

    def test_an_empty_body_can_be_got_too(self, queue: Queue) -> None:
        publish(queue, "", "")
        assert (got(queue), got(queue), got(queue)) == (("", False), ("", False), None)

    def test_consumers_with_credit_go_first(self, queue: Queue) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"123")
        assert got(queue) == ("3", False)
        assert consumer.received == ["1", "2"]

    def test_a_message_got_again_counts_as_redelivered(self, queue: Queue) -> None:
        holder = Holder(queue)
        publish(queue, "1")
        entry = queue.get(holder)
        assert entry is not None
        settle(holder, [entry], "requeue")
        assert got(queue) == ("1", True)
        assert (queue.counters.got, queue.counters.redelivered) == (2, 1)

    def test_ready_messages_are_counted_after_consumers_were_served(self, queue: Queue) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"123")
        assert queue.ready_count() == 1
        assert consumer.received == ["1", "2"]


class TestSingleActiveConsumer:
    def test_one_gets_all_and_the_next_takes_over_with_what_returns(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = declare(vhost, arguments=SINGLE_ACTIVE)
        first, second = consume(queue, "first", room=2), consume(queue, "second")
        publish(queue, *"123")
        loop.run()
        assert (first.received, second.received) == (["1", "2"], [])
        queue.remove_consumer(first)
        first.requeue(1, 0)
        loop.run()
        assert second.received == ["1", "2", "3"]
        assert [entry[2] for entry in second.held] == [True, True, False]

    def test_the_argument_may_say_no(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = declare(vhost, arguments=(("x-single-active-consumer", FieldValue("t", False)),))
        log: list[str] = []
        consume(queue, "a", log=log)
        consume(queue, "b", log=log)
        publish(queue, *"12")
        loop.run()
        assert log == ["a", "b"]


class TestTheEnd:
    def test_the_last_consumer_of_an_auto_delete_queue_ends_it(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = declare(vhost, auto_delete=True)
        publish(queue, "1")
        a, b = consume(queue, "a"), consume(queue, "b")
        loop.run()
        queue.remove_consumer(a)
        assert vhost.queues == {"q": queue}
        queue.remove_consumer(b)
        assert vhost.queues == {}
        assert queue.deleted

    def test_other_queues_outlive_their_consumers(self, vhost: VirtualHost, queue: Queue) -> None:
        queue.remove_consumer(consume(queue))
        assert vhost.queues == {"q": queue}

    def test_purge_takes_what_no_consumer_could(self, queue: Queue) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"123")
        assert queue.purge() == 2
        assert queue.purge() == 0
        assert consumer.received == ["1"]
        assert queue.unacked_count == 1
        consumer.requeue(0)
        assert queue.store.ready_count == 1

    def test_delete_cancels_consumers_and_counts_ready_messages(self, queue: Queue, loop: ManualLoop) -> None:
        a, b = consume(queue, "a", room=1), consume(queue, "b", room=0)
        publish(queue, *"123")
        assert queue.delete() == 2
        assert (a.cancellations, b.cancellations, len(queue.consumers)) == (1, 1, 0)
        loop.run()
        assert (a.received, b.received) == (["1"], [])

    @pytest.mark.parametrize("outcome", ["acknowledge", "reject", "requeue"])
    def test_settling_messages_of_a_deleted_queue_has_no_effect(
        self, queue: Queue, loop: ManualLoop, outcome: Literal["acknowledge", "reject", "requeue"]
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

    def test_a_blocked_consumer_of_a_deleted_queue_is_not_served_again(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=1)
        publish(queue, *"12")
        loop.run()
        queue.delete()
        consumer.acknowledge()
        loop.run()
        assert consumer.received == ["1"]
        assert not queue.consumers.ring
