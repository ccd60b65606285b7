"""A queue checks for expired messages only while one with an expiry time may be ready."""

from __future__ import annotations

import pytest

from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.protocol.field_table import FieldValue
from leveret.storage.message import Envelope, Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.manual_loop import ManualLoop
from tests.support.queues import declare, new_vhost, settle

_PRIORITIES = (("x-max-priority", FieldValue("I", 9)),)
_QUORUM = (("x-queue-type", FieldValue("S", b"quorum")),)


@pytest.fixture(params=[(), _PRIORITIES, _QUORUM], ids=["classic", "priorities", "quorum"])
def queue(request: pytest.FixtureRequest, loop: ManualLoop) -> ClassicQueue:
    return declare(new_vhost(loop), arguments=request.param)


def publish(
    queue: ClassicQueue, loop: ManualLoop, expiration: int | None = None, priority: int = 0, count: int = 1
) -> None:
    envelope = Envelope(b"\0\1q", b"\0\x3c" + bytes(12), priority=priority, expiration_ms=expiration)
    queue.publish([Message(envelope, b"m")] * count, count)
    loop.run()


def test_it_ends_with_the_last_timed_message_that_expires(queue: ClassicQueue, loop: ManualLoop) -> None:
    publish(queue, loop, 1000)
    assert queue.contents.may_have_timed
    loop.advance(2)
    assert queue.store.ready_count == 0
    assert not queue.contents.may_have_timed


def test_it_ends_with_the_last_that_is_taken(queue: ClassicQueue, loop: ManualLoop) -> None:
    publish(queue, loop, 100_000, count=3)
    consumer = FakeConsumer(queue, room=2)
    queue.add_consumer(consumer)
    loop.run()
    assert queue.contents.may_have_timed
    consumer.acknowledge(2)
    loop.run()
    assert not queue.contents.may_have_timed


def test_it_ends_though_others_wait_behind(loop: ManualLoop) -> None:
    queue = declare(new_vhost(loop))
    publish(queue, loop, 100_000)
    publish(queue, loop, count=5)
    assert queue.contents.may_have_timed
    consumer = FakeConsumer(queue, room=1)
    queue.add_consumer(consumer)
    loop.run()
    assert queue.store.ready_count == 5
    assert not queue.contents.may_have_timed


def test_one_of_low_priority_may_still_wait(loop: ManualLoop) -> None:
    queue = declare(new_vhost(loop), arguments=_PRIORITIES)
    publish(queue, loop, 2000)
    publish(queue, loop, priority=9, count=5)
    consumer = FakeConsumer(queue, room=3)
    queue.add_consumer(consumer)
    loop.run()
    assert queue.contents.may_have_timed
    loop.advance(3)
    consumer.room = 10
    consumer.acknowledge(3)
    loop.run()
    assert len(consumer.received) == 5
    assert queue.store.ready_count == 0


@pytest.mark.parametrize("behind", [1, 3])
def test_it_begins_again_with_one_that_returns(queue: ClassicQueue, loop: ManualLoop, behind: int) -> None:
    publish(queue, loop, 2000)
    consumer = FakeConsumer(queue, room=1)
    queue.add_consumer(consumer)
    loop.run()
    assert not queue.contents.may_have_timed
    publish(queue, loop, count=behind)
    queue.remove_consumer(consumer)
    settle(consumer, consumer.held, "requeue")
    loop.run()
    assert queue.contents.may_have_timed
    loop.advance(3)
    # A quorum queue has put it at its tail, where nobody looks for it yet.
    assert queue.store.ready_count == behind + (queue.queue_type == "quorum")
