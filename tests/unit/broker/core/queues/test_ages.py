"""How long the oldest messages of a queue have been in it, in memory or on disk."""

from __future__ import annotations

import pytest

from leveret.broker.core.queues.browsing import holders, oldest_ready_age, oldest_unacked_age
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.storage.interface import Entry
from tests.support.manual_loop import ManualLoop
from tests.support.messages import message
from tests.support.queues import declare, settle


def publish(queue: Queue, body: str) -> None:
    """Publish a message, and note its arrival, as is done once per sample for all messages in memory."""
    now = queue.host.timers.now()
    queue.store.note_time(now, now)
    queue.publish([message(body)], len(body))


def ages(queue: Queue) -> tuple[int | None, int | None]:
    """The ages of the oldest ready and unacked message in full seconds."""
    found = oldest_ready_age(queue), oldest_unacked_age(queue)
    return None if found[0] is None else round(found[0]), None if found[1] is None else round(found[1])


def take(holder: Holder) -> Entry:
    entry = holder.queue.get(holder)
    assert entry is not None
    holder.taken = [*holder.taken, entry]
    return entry


def test_an_empty_queue_has_none(vhost: VirtualHost) -> None:
    queue = declare(vhost)
    assert ages(queue) == (None, None)


@pytest.mark.parametrize("durable", [False, True])
def test_the_oldest_ready_and_the_oldest_unacked_message(vhost: VirtualHost, loop: ManualLoop, durable: bool) -> None:
    queue = declare(vhost, durable=durable)
    for body in ("a", "b", "c"):
        publish(queue, body)
        loop.advance(2)
    assert ages(queue) == (6, None)
    holder, other = Holder(queue), Holder(queue)
    first = take(holder)
    assert ages(queue) == (4, 6)
    take(other)
    assert holders(queue) == [holder, other]
    settle(holder, [first], "acknowledge")
    holder.taken = []
    loop.advance(1)
    assert holders(queue) == [other]
    assert ages(queue) == (3, 5)


@pytest.mark.parametrize("durable", [False, True])
def test_a_redelivered_message_may_be_the_oldest_of_its_holder(
    vhost: VirtualHost, loop: ManualLoop, durable: bool
) -> None:
    queue = declare(vhost, durable=durable)
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
    assert ages(queue)[1] == 4


def test_a_message_whose_arrival_is_not_noted_yet_has_no_age(vhost: VirtualHost) -> None:
    queue = declare(vhost, durable=False)
    queue.publish([message("a")], 1)
    assert oldest_ready_age(queue) is None
