"""Quorum queues: the rules of 6.1."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.traits import QUORUM
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.vhost import VirtualHost
from leveret.policies.policy import Policy
from leveret.protocol.field_table import FieldTable, FieldValue, find, longstr
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, contents, deaths, drain, headers_of, publish, texts
from tests.support.queues import ManualTimers, declare


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> Queue:
    queue = declare(vhost, name, arguments=arguments(queue_type="quorum", **given))
    assert queue.traits is QUORUM
    return queue


def returned(queue: Queue, times: int = 1) -> None:
    """Get and requeue the only message of a queue this many times."""
    for _ in range(times):
        holder = Holder(queue)
        entry = queue.get(holder)
        assert entry is not None
        queue.release(holder, [entry])
        queue.requeue([entry])


def count(message: Message) -> FieldValue | None:
    return find(headers_of(message), "x-delivery-count")


class TestTheDeliveryCount:
    def test_a_get_always_shows_it(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, "a", headers=(("h", longstr("v")),))
        for expected in range(3):
            holder = Holder(queue)
            entry = queue.get(holder)
            assert entry is not None
            assert count(entry[1]) == FieldValue("l", expected)
            assert find(headers_of(entry[1]), "h") == longstr("v")
            assert entry[2] is (expected > 0)
            queue.release(holder, [entry])
            queue.requeue([entry])

    def test_a_delivery_shows_it_from_the_second_on(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=1)
        queue.add_consumer(consumer)
        publish(queue, "a")
        loop.run()
        assert count(consumer.held[0][1]) is None
        consumer.requeue(0)
        loop.run()
        queue.unblock(consumer)
        loop.run()
        assert count(consumer.held[0][1]) == FieldValue("l", 1)
        assert consumer.held[0][2]

    def test_a_count_of_the_publisher_is_replaced(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        forged: FieldTable = (("x-delivery-count", longstr("many")),)
        publish(queue, "a", headers=forged)
        (message,) = drain(queue)
        assert headers_of(message) == (("x-delivery-count", FieldValue("l", 0)),)

    def test_messages_that_say_the_same_share_what_shows_it(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=100)
        queue.add_consumer(consumer)
        publish(queue, *["a"] * 100)
        loop.run()
        consumer.room = 0
        consumer.requeue(*range(100))
        envelopes = {entry[1].envelope for entry in queue.store.take(100, 1000)[0]}
        assert len(envelopes) == 1


class TestRequeue:
    def test_messages_return_to_the_tail(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        """Rule 6.1.5."""
        queue = made(vhost)
        consumer = FakeConsumer(queue, room=2)
        queue.add_consumer(consumer)
        publish(queue, "a0", "a1", "b2")
        loop.run()
        consumer.room = 0
        consumer.requeue(0, 1)
        assert contents(queue) == ["b2", "a0", "a1"]

    def test_among_others_they_still_count_as_delivered(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        publish(queue, "a")
        returned(queue)
        publish(queue, "b")
        entries = queue.store.take(2, 100)[0]
        assert [(entry[1].body, entry[2]) for entry in entries] == [(b"a", True), (b"b", False)]

    def test_a_redelivery_behind_a_new_message_is_counted(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost)
        holder = Holder(queue)
        publish(queue, *"ab")
        entry = queue.get(holder)
        assert entry is not None
        queue.release(holder, [entry])
        queue.requeue([entry])
        consumer = FakeConsumer(queue)
        queue.add_consumer(consumer)
        loop.run()
        assert consumer.received == ["b", "a"]
        assert queue.counters.redelivered == 1

    def test_the_limit_drops_the_new_head(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, max_length=2)
        consumer = FakeConsumer(queue, room=1)
        queue.add_consumer(consumer)
        publish(queue, *"abc")
        loop.run()
        consumer.room = 0
        consumer.requeue(0)
        assert contents(queue) == ["c", "a"]

    def test_nothing_returns_to_a_deleted_queue(self, vhost: VirtualHost) -> None:
        queue = made(vhost)
        holder = Holder(queue)
        publish(queue, "a")
        entry = queue.get(holder)
        assert entry is not None
        vhost.delete_queue(queue)
        queue.release(holder, [entry])
        queue.requeue([entry])
        assert (queue.store.ready_count, queue.unacked_count) == (0, 0)


class TestTheDeliveryLimit:
    @pytest.mark.parametrize(("given", "limit"), [({}, 20), ({"delivery_limit": 2}, 2), ({"delivery_limit": 0}, 0)])
    def test_a_message_is_dropped_at_the_delivery_limit(
        self, vhost: VirtualHost, given: dict[str, Any], limit: int
    ) -> None:
        queue = made(vhost, dead_letter_exchange="", dead_letter_routing_key="d", **given)
        letters = declare(vhost, "d")
        publish(queue, "a")
        returned(queue, limit)
        assert (queue.ready_count(), letters.ready_count()) == (1, 0)
        returned(queue)
        assert queue.ready_count() == 0
        (letter,) = drain(letters)
        assert deaths(letter) == [("q", "delivery_limit", 1)]
        assert count(letter) is None, "it is a new message"
        assert queue.counters.dropped["delivery_limit"] == 1
        assert queue.counters.requeued == limit

    def test_a_negative_one_is_none(self, vhost: VirtualHost) -> None:
        queue = made(vhost, delivery_limit=-1)
        publish(queue, "a")
        returned(queue, 50)
        assert queue.ready_count() == 1

    def test_a_policy_lowers_it(self, vhost: VirtualHost) -> None:
        queue = made(vhost, delivery_limit=5)
        publish(queue, "a")
        returned(queue, 2)
        vhost.policies.set(Policy("p", "", {"delivery-limit": 1}), operator=False)
        returned(queue)
        assert queue.ready_count() == 0

    def test_only_messages_at_the_limit_are_dropped(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, delivery_limit=1)
        publish(queue, "old")
        returned(queue)
        publish(queue, *"ab")
        consumer = FakeConsumer(queue, room=3)
        queue.add_consumer(consumer)
        loop.run()
        consumer.room = 0
        consumer.requeue(0, 1, 2)
        assert contents(queue) == ["a", "b"]

    def test_acks_and_rejects_do_not_count(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, delivery_limit=0)
        consumer = FakeConsumer(queue)
        queue.add_consumer(consumer)
        publish(queue, *"ab")
        loop.run()
        consumer.acknowledge()
        queue.release(consumer, consumer.held)
        queue.reject(consumer.held)
        assert (queue.counters.acknowledged, queue.counters.dropped) == (1, {"rejected": 1})


class TestLimits:
    def test_drop_head(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=2)
        publish(queue, *"abcd")
        assert contents(queue) == ["c", "d"]
        assert publish(made(vhost, "q0", max_length=0), "a") == 1
        assert vhost.queues["q0"].ready_count() == 0

    def test_reject_publish_is_exact(self, vhost: VirtualHost) -> None:
        queue = made(vhost, max_length=2, overflow="reject-publish")
        assert publish(queue, *"abcd") == 2
        assert contents(queue) == ["a", "b"]

    def test_reject_publish_dlx_is_drop_head(self, vhost: VirtualHost) -> None:
        """Rule 6.1.10."""
        queue = made(
            vhost,
            max_length=2,
            overflow="reject-publish-dlx",
            dead_letter_exchange="",
            dead_letter_routing_key="d",
        )
        letters = declare(vhost, "d")
        assert publish(queue, *"abcd") == 4
        assert (contents(queue), contents(letters)) == (["c", "d"], ["a", "b"])

    def test_dead_letters_are_not_refused(self, vhost: VirtualHost) -> None:
        """Rule 6.1.14."""
        source = declare(
            vhost, "s", arguments=arguments(max_length=0, dead_letter_exchange="", dead_letter_routing_key="q")
        )
        queue = made(vhost, max_length=1, overflow="reject-publish")
        publish(source, *"abc")
        assert publish(queue, "new") == 0
        assert contents(queue) == ["a", "b", "c"]

    def test_a_dead_letter_with_ttl_0_goes_to_a_consumer_with_credit(
        self, vhost: VirtualHost, loop: ManualLoop
    ) -> None:
        source = declare(
            vhost, "s", arguments=arguments(max_length=0, dead_letter_exchange="", dead_letter_routing_key="q")
        )
        queue = made(vhost, max_length=0, overflow="reject-publish", message_ttl=0)
        consumer = FakeConsumer(queue, room=1)
        queue.add_consumer(consumer)
        publish(source, *"ab")
        loop.run()
        assert consumer.received == ["a"]
        assert queue.counters.dropped["expired"] == 1


class TestTime:
    def test_a_returned_message_keeps_its_time(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=100)
        publish(queue, "a")
        returned(queue, 2)
        loop.advance(0.09)
        assert queue.ready_count() == 1
        loop.advance(0.02)
        assert queue.counters.dropped["expired"] == 1

    def test_a_dead_letter_shows_no_count(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = made(vhost, message_ttl=100, dead_letter_exchange="", dead_letter_routing_key="d")
        letters = declare(vhost, "d")
        publish(queue, "a")
        returned(queue)
        loop.advance(1)
        (letter,) = drain(letters)
        assert count(letter) is None
        assert letter.envelope.delivery_count is None


class TestAtLeastOnce:
    """Rule 6.1.12."""

    def source(self, vhost: VirtualHost, **given: Any) -> Queue:
        common = {
            "overflow": "reject-publish",
            "dead_letter_strategy": "at-least-once",
            "dead_letter_exchange": "x",
            "message_ttl": 10,
        }
        return made(vhost, "s", **common | given)

    def test_dead_letters_that_no_queue_accepts_are_published_again(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = self.source(vhost)
        publish(queue, *"ab")
        loop.advance(1)
        assert (queue.ready_count(), queue.retained_count) == (0, 2)
        letters = declare(vhost, "d")
        vhost.declare_exchange("x", "fanout", True, False, False, ())
        loop.advance(180)
        assert queue.retained_count == 2, "there is an exchange, and no way from it"
        vhost.topology.bind(vhost.topology.exchange("x"), letters, "", ())
        loop.advance(180)
        assert (queue.retained_count, contents(letters)) == (0, ["a", "b"])
        assert loop.pending_timers == 0

    def test_dead_letters_that_a_full_queue_refuses_are_published_again(
        self, vhost: VirtualHost, loop: ManualLoop
    ) -> None:
        queue = self.source(vhost)
        letters = declare(vhost, "d", arguments=arguments(max_length=1, overflow="reject-publish"))
        vhost.declare_exchange("x", "fanout", True, False, False, ())
        vhost.topology.bind(vhost.topology.exchange("x"), letters, "", ())
        publish(queue, *"ab")
        loop.advance(1)
        assert queue.retained_count == 1
        assert contents(letters) == ["a"]
        loop.advance(180)
        assert (queue.retained_count, contents(letters)) == (0, ["b"])

    @pytest.mark.parametrize("given", [{"overflow": "drop-head"}, {"dead_letter_strategy": "at-most-once"}])
    def test_otherwise_it_is_lost(self, vhost: VirtualHost, loop: ManualLoop, given: dict[str, str]) -> None:
        queue = self.source(vhost, **given)
        publish(queue, *"ab")
        loop.advance(1)
        assert (queue.retained_count, loop.pending_timers) == (0, 0)

    def test_a_deleted_queue_publishes_no_dead_letters_again(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = self.source(vhost)
        publish(queue, "a")
        loop.advance(1)
        vhost.delete_queue(queue)
        assert loop.pending_timers == 0

    def test_neither_does_one_whose_messages_expire_as_it_is_deleted(self, loop: ManualLoop) -> None:
        timers = ManualTimers(loop)
        vhost = VirtualHost("v", Turn(loop.call_soon), timers)
        queue = self.source(vhost)
        publish(queue, "a")
        loop.run()
        timers.set_by = 1.0
        vhost.delete_queue(queue)
        assert queue.counters.dropped["expired"] == 1
        assert loop.pending_timers == 0


def test_texts_are_those_that_were_published(vhost: VirtualHost) -> None:
    queue = made(vhost)
    publish(queue, *"ab")
    assert texts(drain(queue)) == ["a", "b"]
