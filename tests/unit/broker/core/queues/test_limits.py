"""Length limits of queues: the examples of the rules 1.3 to 1.6 and 2.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.queues.limits import UNBOUNDED, Limits
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.policies.settings import QueueSettings
from leveret.storage.stores.memory_store import MemoryStore
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queue_content import arguments, contents, deaths, drain, publish
from tests.support.queues import declare


def bounded(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    return declare(vhost, name, arguments=arguments(**given))


def consume(queue: Queue, room: int) -> FakeConsumer:
    consumer = FakeConsumer(queue, room=room)
    queue.add_consumer(consumer)
    return consumer


class TestRoomAndExcess:
    @given(
        st.lists(st.integers(0, 6), max_size=6),
        st.none() | st.integers(0, 8),
        st.none() | st.integers(0, 20),
        st.integers(0, 7),
    )
    def test_what_fits_is_what_one_by_one_would_not_exceed(
        self, sizes: list[int], most: int | None, most_bytes: int | None, size: int
    ) -> None:
        store = MemoryStore()
        for ready in sizes:
            store.append([message("x" * ready)], ready)
        limits = Limits(QueueSettings(max_length=most, max_length_bytes=most_bytes))

        def over(count: int, total: int) -> bool:
            return (most is not None and count > most) or (most_bytes is not None and total > most_bytes)

        count, total = len(sizes), sum(sizes)
        assert limits.exceeded(store) is over(count, total)
        fits = 0
        while fits < 50 and not over(count + fits + 1, total + (fits + 1) * size):
            fits += 1
        assert min(max(limits.room(store, size), 0), 50) == fits

    def test_no_limit_at_all(self) -> None:
        limits, store = Limits(QueueSettings()), MemoryStore()
        assert limits.room(store, 1000) > 1 << 40
        assert limits.room(store, 0) == UNBOUNDED
        assert not limits.refuses
        assert not limits.exceeded(store)

    @pytest.mark.parametrize(
        ("overflow", "refuses", "dead_letters"),
        [("drop-head", False, False), ("reject-publish", True, False), ("reject-publish-dlx", True, True)],
    )
    def test_what_an_overflow_means(self, overflow: str, refuses: bool, dead_letters: bool) -> None:
        limits = Limits(QueueSettings(max_length=1, overflow=overflow))
        assert (limits.refuses, limits.dead_letters_refused) == (refuses, dead_letters)


class TestDropHead:
    def test_the_newest_survive(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length=3)
        assert publish(queue, *"0123456") == 7
        assert contents(queue) == list("456")

    def test_equal_to_the_limit_is_allowed(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length=3, max_length_bytes=6)
        publish(queue, "aa", "bb", "cc")
        assert contents(queue) == ["aa", "bb", "cc"]

    def test_whichever_limit_is_hit_first(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length=3, max_length_bytes=10)
        for text in ("aaaaa", "bbbbb", "c"):
            publish(queue, text)
        assert contents(queue) == ["bbbbb", "c"]

    def test_one_message_may_push_out_several(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length_bytes=10)
        publish(queue, *"0123456789")
        publish(queue, "nine byte")
        assert contents(queue) == ["9", "nine byte"]

    def test_a_body_of_the_whole_limit_stays_alone(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length_bytes=10)
        publish(queue, "a", "b")
        publish(queue, "0123456789")
        assert contents(queue) == ["0123456789"]

    def test_a_body_beyond_the_limit_empties_the_queue(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length_bytes=10)
        publish(queue, "a", "b")
        assert publish(queue, "0123456789a") == 1, "the publish is confirmed"
        assert contents(queue) == []
        assert queue.counters.dropped["maxlen"] == 3

    def test_no_byte_at_all_lets_empty_bodies_in(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length_bytes=0)
        publish(queue, *[""] * 50)
        assert queue.store.ready_count == 50
        publish(queue, "a")
        assert queue.store.ready_count == 0

    def test_a_consumer_bypasses_the_limit(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=0)
        consumer = consume(queue, 1)
        publish(queue, "a", "b", "c")
        loop.run()
        consumer.acknowledge()
        loop.run()
        assert consumer.received == ["a"], "the others are gone, and do not come back"

    def test_what_credit_and_limit_leave(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=2)
        consumer = consume(queue, 3)
        publish(queue, *"01234567")
        loop.run()
        assert consumer.received == list("012")
        assert contents(queue) == list("67")
        assert queue.unacked_count == 3

    def test_a_message_that_came_within_the_turn_does_not_push_out_a_returned_one(
        self, vhost: VirtualHost, loop: ManualLoop
    ) -> None:
        queue = bounded(vhost, max_length=2)
        consumer = consume(queue, 2)
        publish(queue, "a")
        publish(queue, *"bc")
        publish(queue, "d")
        loop.run()
        assert consumer.received == ["a", "b"]
        assert contents(queue) == ["c", "d"]

    def test_high_priorities_go_first(self, vhost: VirtualHost) -> None:
        """Rules 1.6.1 to 1.6.3: the head is what a consumer would get next."""
        queue = bounded(vhost, max_length=3, max_priority=5)
        for text, priority in (("lo1", 1), ("hi1", 5), ("mid", 3), ("lo2", 1)):
            publish(queue, text, priority=priority)
        assert contents(queue) == ["mid", "lo1", "lo2"]
        publish(queue, *"abc")
        publish(queue, "new", priority=5)
        assert contents(queue) == ["a", "b", "c"]

    def test_a_long_surplus_goes_in_batches(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=1)
        publish(queue, *["x"] * 10_000)
        loop.run()
        assert queue.store.ready_count == 1
        assert queue.counters.dropped["maxlen"] == 9999


class TestRequeue:
    def held(self, queue: Queue, loop: ManualLoop, count: int) -> FakeConsumer:
        """Return a consumer with unacked messages u0, u1 and so on, and no credit."""
        consumer = consume(queue, count)
        for number in range(count):
            publish(queue, f"u{number}")
            loop.run()
        consumer.room = 0
        return consumer

    def test_returned_messages_are_the_oldest(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=3, dead_letter_exchange="", dead_letter_routing_key="d")
        letters = declare(vhost, "d")
        consumer = self.held(queue, loop, 3)
        publish(queue, "n0", "n1")
        consumer.requeue(0, 1, 2)
        loop.run()
        assert contents(queue) == ["u2", "n0", "n1"]
        found = drain(letters)
        assert [letter.body for letter in found] == [b"u0", b"u1"]
        assert [deaths(letter) for letter in found] == [[("q", "maxlen", 1)]] * 2

    def test_the_limit_comes_before_the_next_delivery(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=1)
        holder = self.held(queue, loop, 2)
        idle = consume(queue, 5)
        loop.run()
        holder.requeue(0, 1)
        loop.run()
        assert idle.received == ["u1"]

    @pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
    def test_nothing_is_dropped_where_publishes_are_refused(
        self, vhost: VirtualHost, loop: ManualLoop, overflow: str
    ) -> None:
        queue = bounded(vhost, max_length=2, overflow=overflow)
        consumer = self.held(queue, loop, 2)
        assert publish(queue, "n0", "n1") == 2
        consumer.requeue(0, 1)
        loop.run()
        assert queue.ready_count() == 4
        assert publish(queue, "n2") == 0
        for expected in ("u0", "u1"):
            entry = queue.get(None)
            assert entry is not None
            assert entry[1].body.decode() == expected
        assert publish(queue, "n3") == 0
        queue.get(None)
        assert publish(queue, "n4") == 1
        assert contents(queue) == ["n1", "n4"]


class TestRejectPublish:
    def test_the_newest_are_refused(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length=3, overflow="reject-publish")
        assert publish(queue, *"01234") == 3
        assert publish(queue, "5") == 0
        assert queue.counters.refused == 3
        assert contents(queue) == list("012")

    def test_bytes_are_looked_at_message_by_message(self, vhost: VirtualHost) -> None:
        """Rule 2.1.4."""
        queue = bounded(vhost, max_length_bytes=10, overflow="reject-publish")
        answers = [publish(queue, "x" * size) for size in (11, 10, 0, 1)]
        assert answers == [0, 1, 1, 0]

    @pytest.mark.parametrize("limit", [{"max_length": 0}, {"max_length_bytes": 2}])
    def test_what_does_not_fit_is_refused_beside_an_idle_consumer(
        self, vhost: VirtualHost, loop: ManualLoop, limit: dict[str, Any]
    ) -> None:
        queue = bounded(vhost, overflow="reject-publish", **limit)
        consumer = consume(queue, 5)
        loop.run()
        assert publish(queue, "abc") == 0
        loop.run()
        assert consumer.received == []

    def test_what_consumers_take_makes_room(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=1, overflow="reject-publish")
        consumer = consume(queue, 3)
        assert publish(queue, *"01234") == 4
        loop.run()
        assert consumer.received == list("012")
        assert contents(queue) == ["3"]

    def test_what_a_consumer_is_about_to_get_takes_no_room(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=1, overflow="reject-publish")
        consumer = consume(queue, 1)
        assert publish(queue, *"ab") == 2
        loop.run()
        # Both in one turn: the acknowledgement lets b go, which makes room for c.
        consumer.acknowledge()
        assert publish(queue, "c") == 1
        loop.run()
        assert consumer.received == ["a", "b"]

    @pytest.mark.parametrize(("overflow", "letters"), [("reject-publish", []), ("reject-publish-dlx", ["b", "c"])])
    def test_only_one_of_the_two_dead_letters(self, vhost: VirtualHost, overflow: str, letters: list[str]) -> None:
        queue = bounded(vhost, max_length=1, overflow=overflow, dead_letter_exchange="", dead_letter_routing_key="d")
        dead = declare(vhost, "d")
        assert publish(queue, *"abc") == 1
        assert contents(dead) == letters

    def test_priority_makes_no_difference(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, max_length=1, max_priority=5, overflow="reject-publish")
        assert publish(queue, "low") == 1
        assert publish(queue, "high", priority=5) == 0

    def test_without_a_limit_it_means_nothing(self, vhost: VirtualHost) -> None:
        queue = bounded(vhost, overflow="reject-publish")
        assert publish(queue, *"abc") == 3


def test_bodies_alone_count(vhost: VirtualHost) -> None:
    queue = bounded(vhost, max_length_bytes=1)
    publish(queue, "", "", key="k" * 200)
    assert (queue.store.ready_count, queue.store.ready_bytes) == (2, 0)


@pytest.mark.parametrize(("before", "left"), [("drop-head", ["d", "e"]), ("reject-publish", list("abcde"))])
def test_a_new_limit_applies_with_the_previous_overflow_first(vhost: VirtualHost, before: str, left: list[str]) -> None:
    vhost.policies.set(Policy("p", "", {"overflow": before}), operator=False)
    queue = bounded(vhost)
    publish(queue, *"abcde")
    vhost.policies.set(Policy("p", "", {"overflow": "reject-publish", "max-length": 2}), operator=False)
    assert contents(queue) == left
