"""Limits that count unacked messages; test_queue_model.py compares them with a model in random histories."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.policy_effects import describe_fill, fill_percent, preview_policy
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.scheduling.turn import SLICE_MICROSECONDS
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.policies.policy import Policy
from tests.support.fake_consumer import PLENTY, FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, publish
from tests.support.queues import declare, new_vhost


def counting(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    return declare(vhost, name, arguments=arguments(length_counts="all", **given))


def hold(queue: ClassicQueue, loop: ManualLoop, *texts: str, room: int = PLENTY) -> FakeConsumer:
    """Return a consumer that has these messages, and no credit for more."""
    consumer = FakeConsumer(queue, room=room)
    queue.add_consumer(consumer)
    publish(queue, *texts)
    loop.run()
    assert consumer.received == list(texts)
    return consumer


@pytest.mark.parametrize("kind", ["classic", "quorum"])
class TestDropHead:
    def test_a_consumer_with_credit_does_not_get_more_than_the_limit(
        self, vhost: VirtualHost, loop: ManualLoop, kind: str
    ) -> None:
        queue = counting(vhost, max_length=3, queue_type=kind)
        consumer = FakeConsumer(queue, room=PLENTY)
        queue.add_consumer(consumer)
        assert publish(queue, *"01234567") == 8
        loop.run()
        assert consumer.received == list("012")
        assert (queue.store.ready_count, queue.unacked_count, queue.counters.dropped["maxlen"]) == (0, 3, 5)
        consumer.acknowledge()
        publish(queue, "8", "9")
        loop.run()
        assert consumer.received == list("0128")

    def test_ready_messages_are_dropped_first(self, vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
        queue = counting(vhost, max_length=4, queue_type=kind)
        consumer = hold(queue, loop, "a", "b")
        consumer.room = 0
        publish(queue, *"0123")
        publish(queue, "4")
        assert contents(queue) == ["3", "4"]
        assert queue.unacked_count == 2

    def test_bytes(self, vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
        queue = counting(vhost, max_length_bytes=10, queue_type=kind)
        consumer = hold(queue, loop, "six by")
        consumer.room = 0
        publish(queue, *"0123")
        publish(queue, "two", "six")
        assert contents(queue) == ["six"]
        publish(queue, "five!")
        assert contents(queue) == []

    def test_what_comes_back_stays(self, vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
        queue = counting(vhost, max_length=4, queue_type=kind)
        consumer = hold(queue, loop, *"abcd")
        consumer.room = 0
        vhost.policies.set(Policy("less", "", {"max-length": 2}), operator=False)
        consumer.requeue(0, 1, 2, 3)
        loop.run()
        assert queue.store.ready_count == 4
        publish(queue, "e")
        loop.run()
        assert contents(queue) == ["d", "e"]

    def test_an_expired_message_is_not_handed_out_beyond_the_limit(
        self, vhost: VirtualHost, loop: ManualLoop, kind: str
    ) -> None:
        queue = counting(vhost, max_length=1, queue_type=kind, message_ttl=0)
        consumer = FakeConsumer(queue, room=PLENTY)
        queue.add_consumer(consumer)
        publish(queue, "a", "b")
        loop.run()
        assert consumer.received == ["a"]
        assert +queue.counters.dropped == {"maxlen": 1}


@pytest.mark.parametrize("kind", ["classic", "quorum"])
class TestRejectPublish:
    def test_what_is_held_takes_room(self, vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
        queue = counting(vhost, max_length=3, overflow="reject-publish", queue_type=kind)
        consumer = hold(queue, loop, "a", "b")
        assert publish(queue, "c", "d") == 1
        loop.run()
        assert consumer.received == ["a", "b", "c"]
        assert publish(queue, "e") == 0
        consumer.acknowledge()
        assert publish(queue, "f", "g") == 1

    def test_what_is_acknowledged_when_sent_takes_none(self, vhost: VirtualHost, loop: ManualLoop, kind: str) -> None:
        queue = counting(vhost, max_length=2, overflow="reject-publish", queue_type=kind)
        consumer = FakeConsumer(queue, room=PLENTY, no_ack=True)
        queue.add_consumer(consumer)
        assert publish(queue, *"01234567") == 8
        loop.run()
        assert consumer.received == list("01234567")


def test_an_eviction_that_is_not_finished_takes_no_returned_messages(loop: ManualLoop) -> None:
    step = 0
    now = 0

    def clock() -> int:
        nonlocal now
        now += step
        return now

    queue = counting(new_vhost(loop, clock=clock), max_length=20_000)
    consumer = hold(queue, loop, *"abcd")
    consumer.room = 0
    publish(queue, *["x"] * 19_996)
    # From now on a slice is over after its first step.
    step = SLICE_MICROSECONDS * 2 // 3
    queue.apply_policies(None, None, {"max-length": 2})
    assert queue.contents.is_shrinking
    consumer.requeue(0, 1, 2, 3)
    step = 0
    assert contents(queue) == list("abcd")


def test_operator_policies_may_count_all(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost)
    consumer = hold(queue, loop, *"abc")
    consumer.room = 0
    vhost.policies.set(Policy("user", "", {"max-length": 4, "length-counts": "ready"}), operator=False)
    publish(queue, *"0123")
    vhost.policies.set(Policy("cap", "", {"length-counts": "all"}), operator=True)
    assert contents(queue) == ["3"]
    vhost.policies.clear("cap", operator=True)
    assert publish(queue, *"4567") == 4
    assert contents(queue) == ["4", "5", "6", "7"]


def test_a_preview_counts_what_is_held(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost, arguments=arguments(max_length=9))
    consumer = hold(queue, loop, *"abc")
    consumer.room = 0
    publish(queue, *"0123")
    (previewed,) = preview_policy(vhost, Policy("p", "", {"length-counts": "all", "max-length": 5}), operator=False)
    assert previewed.drop.messages == 2
    (previewed,) = preview_policy(vhost, Policy("p", "", {"length-counts": "all", "max-length": 1}), operator=False)
    assert previewed.drop.messages == 4


def test_fill(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = counting(vhost, max_length=8, max_length_bytes=100)
    consumer = hold(queue, loop, *"abc")
    consumer.room = 0
    publish(queue, "0")
    fill = describe_fill(queue)
    assert (fill["length_counts"], fill["messages_ready"], fill["messages_counted"]) == ("all", 1, 4)
    assert (fill["message_bytes_ready"], fill["message_bytes_counted"]) == (1, 4)
    assert (fill["percent"], fill_percent(queue)) == (50.0, 50.0)
    bare = describe_fill(declare(vhost, "bare"))
    assert (bare["length_counts"], bare["percent"]) == ("ready", None)
