"""The arrival of the oldest messages of a store."""

from __future__ import annotations

from typing import Final

import pytest

from leveret.storage.event_format import EventKind
from leveret.storage.interface import MessageStore
from leveret.storage.message import Envelope, Message, StoredMessage
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.messages import ENVELOPE
from tests.support.segment_stores import Clock, open_engine
from tests.support.simulated_files import SimulatedFiles

SECOND: Final = 1_000_000
START: Final = 1_700_000_000 * SECOND
ALL: Final = 1 << 20


def of(persistent: bool = True, priority: int = 0) -> Message:
    return Message(Envelope(ENVELOPE.route, ENVELOPE.header, persistent, priority), b"x")


class Place:
    """An engine whose clock stands still unless the test sets it."""

    def __init__(self) -> None:
        self.clock = Clock(START, step=0)
        self.files = SimulatedFiles()
        self.engine = open_engine(self.files, self.clock)

    def store(self, lazy: bool) -> SegmentStore:
        store = self.engine.store(self.engine.create_queue(True, {"name": "q"}))
        store.set_lazy(lazy)
        return store

    def append(self, store: MessageStore, second: int, persistent: bool = True) -> None:
        self.clock.time = START + second * SECOND
        store.append([of(persistent)], 1)

    def flush(self) -> None:
        self.engine.flush()


def seconds(time: int) -> float:
    return round((time - START) / SECOND, 1) if time else 0


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_ready_and_taken(lazy: bool, persistent: bool) -> None:
    place = Place()
    store = place.store(lazy)
    assert (store.oldest_ready(), store.oldest_taken()) == (0, 0)
    for second in range(0, 50, 10):
        place.append(store, second, persistent)
        place.flush()
    assert (seconds(store.oldest_ready()), store.oldest_taken()) == (0, 0)
    entries = store.take(3, ALL)[0]
    assert (seconds(store.oldest_ready()), seconds(store.oldest_taken())) == (30, 0)
    store.settle(entries[:1])
    assert seconds(store.oldest_taken()) == 10
    store.requeue(entries[1:2])
    assert (seconds(store.oldest_ready()), seconds(store.oldest_taken())) == (10, 20)
    store.settle(entries[2:])
    assert (seconds(store.oldest_ready()), store.oldest_taken()) == (10, 0)
    store.purge()
    assert (store.oldest_ready(), store.oldest_taken()) == (0, 0)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("returned", [0, 1, 4])
def test_a_message_that_is_returned_alone_keeps_its_arrival(lazy: bool, persistent: bool, returned: int) -> None:
    place = Place()
    store = place.store(lazy)
    for second in range(0, 50, 10):
        place.append(store, second, persistent)
    entries = store.take(5, ALL)[0]
    store.requeue([entries.pop(returned)])
    store.settle(entries)
    assert seconds(store.oldest_ready()) == returned * 10
    (entry,) = store.take(1, ALL)[0]
    assert seconds(store.arrival(entry)) == returned * 10


def test_a_lazy_backlog_is_read_once_for_each_head() -> None:
    place = Place()
    store = place.store(lazy=True)
    for second in range(20):
        place.append(store, second)
        place.flush()
    store.settle(store.take(3, ALL)[0])
    before = store.log.disk_reads
    assert seconds(store.oldest_ready()) == 3
    store.log.release()
    assert seconds(store.oldest_ready()) == 3
    assert store.log.disk_reads == before


def test_what_is_leaving_is_not_taken() -> None:
    place = Place()
    store = place.store(lazy=False)
    for second in range(3):
        place.append(store, second)
    place.flush()
    entries = store.take(2, ALL)[0]
    store.settle(entries[:1], flags=0, kind=EventKind.MOVED)
    assert seconds(store.oldest_taken()) == 1


def test_priorities_have_the_oldest_of_all() -> None:
    place = Place()
    store = PriorityStore(9, lambda level: place.store(lazy=False))
    for second, priority in ((3, 1), (4, 9), (5, 1)):
        place.clock.time = START + second * SECOND
        store.append([of(priority=priority)], 1)
    assert seconds(store.oldest_ready()) == 3
    store.take(1, ALL)
    assert (seconds(store.oldest_ready()), seconds(store.oldest_taken())) == (3, 4)


def test_returned_messages_have_the_time_of_their_return() -> None:
    place = Place()
    store = ReturnsStore(lambda level: place.store(lazy=False))
    place.append(store, 1)
    entry = store.take(1, ALL)[0][0]
    place.clock.time = START + 7 * SECOND
    store.append_returned([entry[1]], 1)
    store.settle([entry])
    assert seconds(store.oldest_ready()) == 7
    taken = store.take(1, ALL)[0][0]
    assert taken[0] > 1 << 60
    assert seconds(store.arrival(taken)) == 7
    assert seconds(store.oldest_taken()) == 7


@pytest.mark.parametrize("has_files", [False, True])
def test_a_store_that_was_in_memory_keeps_its_arrivals(has_files: bool) -> None:
    place = Place()
    store = place.engine.new_store()
    for second in range(3):
        place.append(store, second, persistent=False)
    first, second_one = store.take(2, ALL)[0]
    assert store.oldest_taken() == 0, "those who hold them know"
    if has_files:
        place.engine.add_files(place.engine.create_queue(False, {"name": "q"}), 0, store)
        store.page_out(ALL)
        place.flush()
    assert [seconds(store.arrival(entry)) for entry in (first, second_one)] == [0, 1]
    assert seconds(store.oldest_ready()) == 2
    store.requeue([second_one])
    assert seconds(store.oldest_ready()) == 1
    assert [entry[0] for entry in store.take(ALL, ALL)[0]] == [2, 3]


def test_messages_that_are_paged_out_keep_their_arrivals() -> None:
    place = Place()
    store = place.store(lazy=False)
    for second in range(3):
        place.append(store, second, persistent=False)
        # Two of one arrival.
        store.append([of(persistent=False)], 1)
    store.page_out(ALL)
    place.flush()
    assert len(store.ram) == 0
    arrivals = [
        seconds(message.arrived_at) for _, message, _ in store.take(6, ALL)[0] if isinstance(message, StoredMessage)
    ]
    assert arrivals == [0, 0, 1, 1, 2, 2]
    # What has just been read from the disk keeps its buffers for a while.
    assert not store.idle()
    assert store.idle()
