"""How long the oldest messages of a queue in memory have been in it."""

from __future__ import annotations

from leveret.broker.core.queues.ages import holders, oldest_ready_age, oldest_unacked_age
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.storage.interface import Entry
from leveret.storage.stores.memory_store import MemoryStore
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queues import declare, settle


def publish(queue: Queue, body: str) -> None:
    """Publish a message, and note its arrival, as is done for all messages once per sample."""
    store = queue.store
    assert isinstance(store, MemoryStore)
    now = queue.host.timers.now()
    store.times.note(store.next_number, now, now, is_empty=False)
    queue.publish([message(body)], len(body))


def take(holder: Holder) -> Entry:
    entry = holder.queue.get(holder)
    assert entry is not None
    holder.taken = [*holder.taken, entry]
    return entry


def test_an_empty_queue_has_none(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert (oldest_ready_age(queue), oldest_unacked_age(queue)) == (None, None)


def test_the_oldest_ready_and_the_oldest_unacked_message(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost)
    for body in ("a", "b", "c"):
        publish(queue, body)
        loop.advance(2)
    assert (oldest_ready_age(queue), oldest_unacked_age(queue)) == (6, None)
    holder, other = Holder(queue), Holder(queue)
    first = take(holder)
    assert (oldest_ready_age(queue), oldest_unacked_age(queue)) == (4, 6)
    take(other)
    assert holders(queue) == [holder, other]
    settle(holder, [first], "acknowledge")
    holder.taken = []
    loop.advance(1)
    assert holders(queue) == [other]
    assert (oldest_ready_age(queue), oldest_unacked_age(queue)) == (3, 5)


def test_a_redelivered_message_may_be_the_oldest_of_its_holder(vhost: VirtualHost, loop: ManualLoop) -> None:
    queue = declare(vhost)
    for body in ("a", "b"):
        publish(queue, body)
        loop.advance(2)
    holder, other = Holder(queue), Holder(queue)
    first = take(holder)
    take(other)
    settle(holder, [first], "requeue")
    holder.taken = []
    # Behind a newer one, in the order of delivery.
    take(other)
    assert [entry[1].body for entry in other.taken] == [b"b", b"a"]
    assert oldest_unacked_age(queue) == 4


def test_a_message_whose_arrival_is_not_noted_yet_has_no_age(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    queue.publish([message("a")], 1)
    assert oldest_ready_age(queue) is None
