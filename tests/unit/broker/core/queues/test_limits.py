"""Length limits of queues: the examples of the rules 1.3 to 1.6 and 2.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.traits import Limits
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.policies.queue_settings import QueueSettings
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queue_content import arguments, contents, publish
from tests.support.queues import declare
from tests.support.segment_stores import memory_store


def bounded(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    return declare(vhost, name, arguments=arguments(**given))


def consume(queue: ClassicQueue, room: int) -> FakeConsumer:
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
        store = memory_store()
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

    @pytest.mark.parametrize(
        ("overflow", "refuses", "dead_letters"),
        [("drop-head", False, False), ("reject-publish", True, False), ("reject-publish-dlx", True, True)],
    )
    def test_what_an_overflow_means(self, overflow: str, refuses: bool, dead_letters: bool) -> None:
        limits = Limits(QueueSettings(max_length=1, overflow=overflow))
        assert (limits.refuses, limits.dead_letters_refused) == (refuses, dead_letters)


class TestDropHead:
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

    def test_a_long_surplus_goes_in_batches(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = bounded(vhost, max_length=1)
        publish(queue, *["x"] * 10_000)
        loop.run()
        assert queue.store.ready_count == 1
        assert queue.counters.dropped["maxlen"] == 9999


class TestRejectPublish:
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


@pytest.mark.parametrize(("before", "left"), [("drop-head", ["d", "e"]), ("reject-publish", list("abcde"))])
def test_a_new_limit_applies_with_the_previous_overflow_first(vhost: VirtualHost, before: str, left: list[str]) -> None:
    vhost.policies.set(Policy("p", "", {"overflow": before}), operator=False)
    queue = bounded(vhost)
    publish(queue, *"abcde")
    vhost.policies.set(Policy("p", "", {"overflow": "reject-publish", "max-length": 2}), operator=False)
    assert contents(queue) == left
