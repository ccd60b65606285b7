"""Quorum queues: the rules of 6.1."""

from __future__ import annotations

from typing import Any

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.queue import Holder
from leveret.broker.core.queues.traits import QUORUM
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.protocol.field_table import FieldValue, find
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queue_content import arguments, drain, headers_of, publish
from tests.support.queues import ManualTimers, declare, new_vhost


def made(vhost: VirtualHost, name: str = "q", **given: Any) -> ClassicQueue:
    queue = declare(vhost, name, arguments=arguments(queue_type="quorum", **given))
    assert queue.traits is QUORUM
    return queue


def returned(queue: ClassicQueue, times: int = 1) -> None:
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

    def source(self, vhost: VirtualHost, **given: Any) -> ClassicQueue:
        common = {
            "overflow": "reject-publish",
            "dead_letter_strategy": "at-least-once",
            "dead_letter_exchange": "x",
            "message_ttl": 10,
        }
        return made(vhost, "s", **common | given)

    def test_a_deleted_queue_publishes_no_dead_letters_again(self, vhost: VirtualHost, loop: ManualLoop) -> None:
        queue = self.source(vhost)
        publish(queue, "a")
        loop.advance(1)
        vhost.delete_queue(queue)
        assert loop.pending_timers == 0

    def test_neither_does_one_whose_messages_expire_as_it_is_deleted(self, loop: ManualLoop) -> None:
        timers = ManualTimers(loop)
        vhost = new_vhost(loop, timers=timers)
        queue = self.source(vhost)
        publish(queue, "a")
        loop.run()
        timers.set_by = 1.0
        vhost.delete_queue(queue)
        assert queue.counters.dropped["expired"] == 1
        assert loop.pending_timers == 0
