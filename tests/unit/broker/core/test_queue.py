from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from broker.core.consumers import Holder
from broker.core.queues.queue import Queue
from broker.core.turn import Turn
from protocol.faults import ChannelFault
from protocol.field_table import FieldTable, FieldValue
from storage.memory_store import MemoryStore
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message, size_of

SINGLE_ACTIVE: FieldTable = (("x-single-active-consumer", FieldValue("t", True)),)

Make = Callable[..., Queue]


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def unused() -> list[Queue]:
    """The queues that said they lost their last consumer."""
    return []


@pytest.fixture
def make(loop: ManualLoop, unused: list[Queue]) -> Make:
    def make_queue(*, arguments: FieldTable = (), auto_delete: bool = False) -> Queue:
        return Queue("/", "q", False, auto_delete, None, arguments, MemoryStore(), Turn(loop.call_soon), unused.append)

    return make_queue


@pytest.fixture
def queue(make: Make) -> Queue:
    return make()


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

    def test_a_queue_without_consumers_asks_for_no_turn(self, queue: Queue, loop: ManualLoop) -> None:
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

    def test_credit_is_respected(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"12345")
        loop.run()
        assert consumer.received == ["1", "2"]
        assert consumer.blocked
        assert queue.store.ready_count == 3

    def test_who_has_no_credit_is_passed_over(self, queue: Queue, loop: ManualLoop) -> None:
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

    def test_it_goes_to_whoever_waits(self, queue: Queue, loop: ManualLoop) -> None:
        holder = Holder(queue)
        publish(queue, "1")
        entry = queue.get(holder)
        assert entry is not None
        consumer = consume(queue)
        loop.run()
        assert consumer.received == []
        queue.requeue(holder, [entry])
        loop.run()
        assert consumer.received == ["1"]
        assert holder.unacked == 0

    def test_rejected_messages_are_gone(self, queue: Queue, loop: ManualLoop) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"12")
        loop.run()
        queue.reject(consumer, consumer.held)
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
        queue.requeue(holder, [entry])
        assert got(queue) == ("1", True)
        assert (queue.counters.got, queue.counters.redelivered) == (2, 1)

    def test_ready_messages_are_counted_after_consumers_were_served(self, queue: Queue) -> None:
        consumer = consume(queue, room=2)
        publish(queue, *"123")
        assert queue.ready_count() == 1
        assert consumer.received == ["1", "2"]


class TestExclusiveUse:
    def refused(self, queue: Queue, exclusive: bool) -> bool:
        try:
            queue.check_exclusive_use(exclusive)
        except ChannelFault as fault:
            return fault.text == "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
        return False

    def test_a_free_queue_takes_anyone(self, queue: Queue) -> None:
        assert not self.refused(queue, False)
        assert not self.refused(queue, True)

    def test_who_wants_to_be_alone_must_be(self, queue: Queue) -> None:
        consume(queue)
        assert not self.refused(queue, False)
        assert self.refused(queue, True)

    def test_an_exclusive_consumer_keeps_all_out_until_it_leaves(self, queue: Queue) -> None:
        consumer = consume(queue, exclusive=True)
        assert self.refused(queue, False)
        assert self.refused(queue, True)
        queue.remove_consumer(consumer)
        assert not self.refused(queue, True)

    def test_a_single_active_consumer_queue_refuses_exclusive_ones(self, make: Make) -> None:
        queue = make(arguments=SINGLE_ACTIVE)
        assert self.refused(queue, True)
        assert not self.refused(queue, False)


class TestSingleActiveConsumer:
    def test_one_gets_all_and_the_next_takes_over_with_what_returns(self, make: Make, loop: ManualLoop) -> None:
        queue = make(arguments=SINGLE_ACTIVE)
        first, second = consume(queue, "first", room=2), consume(queue, "second")
        publish(queue, *"123")
        loop.run()
        assert (first.received, second.received) == (["1", "2"], [])
        queue.remove_consumer(first)
        first.requeue(1, 0)
        loop.run()
        assert second.received == ["1", "2", "3"]
        assert [entry[2] for entry in second.held] == [True, True, False]

    def test_the_argument_may_say_no(self, make: Make, loop: ManualLoop) -> None:
        queue = make(arguments=(("x-single-active-consumer", FieldValue("t", False)),))
        log: list[str] = []
        consume(queue, "a", log=log)
        consume(queue, "b", log=log)
        publish(queue, *"12")
        loop.run()
        assert log == ["a", "b"]


class TestTheEnd:
    def test_the_last_consumer_of_an_auto_delete_queue_ends_it(
        self, make: Make, loop: ManualLoop, unused: list[Queue]
    ) -> None:
        queue = make(auto_delete=True)
        publish(queue, "1")
        assert unused == []
        a, b = consume(queue, "a"), consume(queue, "b")
        loop.run()
        queue.remove_consumer(a)
        assert unused == []
        queue.remove_consumer(b)
        assert unused == [queue]

    def test_other_queues_outlive_their_consumers(self, queue: Queue, unused: list[Queue]) -> None:
        queue.remove_consumer(consume(queue))
        assert unused == []

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
        assert (a.gone, b.gone, len(queue.consumers)) == (1, 1, 0)
        loop.run()
        assert (a.received, b.received) == (["1"], [])

    @pytest.mark.parametrize("outcome", ["acknowledge", "reject", "requeue"])
    def test_messages_of_a_deleted_queue_are_settled_into_the_void(
        self, queue: Queue, loop: ManualLoop, outcome: str
    ) -> None:
        consumer = consume(queue)
        publish(queue, "1")
        loop.run()
        queue.delete()
        getattr(queue, outcome)(consumer, consumer.held)
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

    def test_idle_time_starts_anew_with_use(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = [100.0]
        monkeypatch.setattr(time, "time", lambda: clock[0])
        queue.touch()
        assert queue.idle_since == 100.0
        consumer = consume(queue)
        clock[0] = 200.0
        queue.remove_consumer(consumer)
        assert queue.idle_since == 200.0
