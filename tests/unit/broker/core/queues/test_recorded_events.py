"""What the event log says of messages that leave queues: readers and recovery rely on the reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from leveret.broker.core.messages import AnsweredPublisher, Origin
from leveret.storage.event_format import DEAD_LETTERED, LAST_REMOVAL, EventKind
from leveret.storage.event_log import EventPosition
from leveret.storage.message import Message
from tests.support.fake_consumer import FakeConsumer
from tests.support.queue_content import envelope, publish
from tests.support.queues import declare
from tests.support.simulated_files import SimulatedFiles
from tests.support.stored_queue import Start


def removals(start: Start) -> Counter[tuple[EventKind, bool]]:
    """Return how many messages the event log says to have left why, and whether as dead letters."""
    found: Counter[tuple[EventKind, bool]] = Counter()
    for event in start.engine.events_since(EventPosition(0, 0)):
        if event.kind <= LAST_REMOVAL:
            found[EventKind(event.kind), bool(event.flags & DEAD_LETTERED)] += event.length
    return found


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.mark.parametrize("exchange", [{}, {"dead_letter_exchange": "nowhere"}])
@pytest.mark.parametrize(
    ("kind", "given"), [(EventKind.MAXLEN, {"max_length": 1}), (EventKind.EXPIRED, {"message_ttl": 500})]
)
def test_dropped_messages(
    files: SimulatedFiles, kind: EventKind, given: dict[str, Any], exchange: dict[str, Any]
) -> None:
    start = Start(files, **given, **exchange)
    publish(start.queue, *"abc", persistent=True)
    start.loop.run()
    start.loop.advance(1)
    start.stop()
    dropped = 2 if kind is EventKind.MAXLEN else 3
    assert removals(start)[kind, bool(exchange)] == dropped
    assert removals(start)[kind, not exchange] == 0


def test_dead_letters_of_a_queue_that_is_deleted_at_once(files: SimulatedFiles) -> None:
    start = Start(files, dead_letter_exchange="nowhere")
    publish(start.queue, *"abc", persistent=True)
    start.loop.run()
    start.queue.reject([start.got()])
    start.vhost.delete_queue(start.queue)
    start.stop()
    assert removals(start) == {(EventKind.REJECT, True): 1, (EventKind.QUEUE_DELETED, False): 2}


def test_dead_letters_that_have_to_arrive(files: SimulatedFiles) -> None:
    start = Start(
        files,
        queue_type="quorum",
        overflow="reject-publish",
        dead_letter_strategy="at-least-once",
        dead_letter_exchange="",
        dead_letter_routing_key="letters",
    )
    declare(start.vhost, "letters")
    publish(start.queue, *"ab", persistent=True)
    start.queue.reject([start.got(), start.got()])
    start.stop()
    assert removals(start) == {(EventKind.REJECT, True): 2}


def test_a_queue_that_is_deleted_before_all_its_dead_letters_are_published(files: SimulatedFiles) -> None:
    start = Start(files, dead_letter_exchange="nowhere")
    publish(start.queue, *["m"] * 9000, persistent=True)
    start.loop.run()
    start.queue.reject([start.got() for _ in range(9000)])
    left = sum(store.taken_count for store in start.queue.backing.stores())
    assert left > 0
    start.vhost.delete_queue(start.queue)
    start.loop.advance(1)
    start.stop()
    assert removals(start) == {(EventKind.REJECT, True): 9000 - left, (EventKind.QUEUE_DELETED, False): left}


def test_messages_that_have_expired_behind_one_that_is_delivered(files: SimulatedFiles) -> None:
    start = Start(files)
    publish(start.queue, "a", persistent=True)
    publish(start.queue, "b", persistent=True, expiration=500)
    start.loop.run()
    start.loop.advance(1)
    consumer = FakeConsumer(start.queue, no_ack=True)
    start.queue.add_consumer(consumer)
    start.loop.run()
    assert consumer.received == ["a"]
    start.stop()
    assert removals(start) == {(EventKind.AUTO_ACK, False): 1, (EventKind.EXPIRED, False): 1}


def test_messages_that_waited_for_their_retry(files: SimulatedFiles) -> None:
    start = Start(files, delayed_retry_type="all", delayed_retry_min=1000)
    publish(start.queue, *"ab", persistent=True)
    start.returned(2)
    start.loop.run()
    start.loop.advance(2)
    assert start.drain() == [("a", True, 1), ("b", True, 1)]
    start.stop()
    # Once when they went to wait, and once when they came back.
    assert removals(start) == {(EventKind.RETURNED, False): 4, (EventKind.AUTO_ACK, False): 2}


def test_messages_that_are_purged_when_they_are_due(files: SimulatedFiles) -> None:
    start = Start(files, delayed_retry_type="all", delayed_retry_min=1000)
    publish(start.queue, *"ab", persistent=True)
    start.returned(2)
    start.loop.run()
    start.queue.purge()
    start.loop.advance(2)
    start.stop()
    assert removals(start)[EventKind.PURGED, False] == 2


class CountedPublisher:
    """A publisher that counts how often it is asked who it is, or whether it is told."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def origin(self) -> Origin:
        self.asked += 1
        return Origin("connection", 1, "guest")

    @property
    def is_told(self) -> bool:
        self.asked += 1
        return False


def test_publishers_are_asked_only_about_messages_that_are_refused(files: SimulatedFiles) -> None:
    start = Start(files, max_length=3, overflow="reject-publish")
    publisher, messages = CountedPublisher(), [Message(envelope(key="q"), b"x")]
    for taken in (1, 1, 1):
        assert start.queue.publish(messages, 1, publisher) == taken
    start.loop.run()
    assert publisher.asked == 0
    assert start.queue.publish(messages, 1, publisher) == 0
    start.loop.run()
    assert publisher.asked == 2
    start.queue.publish(messages, 1, AnsweredPublisher(Origin("", 0, "job")))
    start.stop()
    counters = start.queue.counters
    assert (counters.refused, counters.refused_told, counters.loss_row()[0]) == (2, 1, 1)
