"""The arrival of the oldest messages of a store."""

from __future__ import annotations

from typing import Final

import pytest

from leveret.storage.event_format import EventKind
from leveret.storage.interface import MessageStore
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.memory_store import MemoryStore, TailTimes
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import ReturnsStore
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.messages import ENVELOPE, message
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


def test_a_store_in_memory_knows_what_was_noted() -> None:
    store = MemoryStore()
    for second in range(3):
        store.note_time(START + 10 * second * SECOND, START)
        store.append([message("x")], 1)
    assert seconds(store.oldest_ready()) == 0
    entries = store.take(2, ALL)[0]
    assert (seconds(store.oldest_ready()), store.oldest_taken()) == (20, 0)
    assert [seconds(store.arrival(entry)) for entry in entries] == [0, 10]
    entries += store.take(1, ALL)[0]
    # None is ready, but those that are taken may return.
    store.note_time(START + 40 * SECOND, START)
    store.requeue(entries[1:])
    assert seconds(store.oldest_ready()) == 10


@pytest.mark.parametrize("kind", ["priorities", "returned"])
def test_each_level_in_memory_knows_what_was_noted(kind: str) -> None:
    store = ReturnsStore(lambda level: MemoryStore())
    if kind == "priorities":
        store = PriorityStore(9, lambda level: MemoryStore())  # type: ignore[assignment]
        store.append([of(priority=9)], 1)
    else:
        store.append_returned([message("x")], 1)
    store.note_time(START + 20 * SECOND, START + 10 * SECOND)
    assert seconds(store.oldest_ready()) == 10


def test_what_arrived_before_the_first_note_is_at_most_an_interval_older() -> None:
    times = TailTimes()
    assert times.arrival(1) == 0
    times.note(3, 20 * SECOND, 12 * SECOND, False)
    assert [times.arrival(seq) for seq in (1, 2, 3)] == [12 * SECOND, 12 * SECOND, 20 * SECOND]


def test_an_idle_tail_is_noted_again() -> None:
    times = TailTimes()
    times.note(1, 10, 5, True)
    times.note(5, 20, 15, False)
    times.note(5, 30, 20, False)
    assert [times.arrival(seq) for seq in (0, 1, 4, 5, 9)] == [0, 10, 10, 30, 30]
    times.note(9, 40, 30, True)
    assert (times.arrival(5), times.arrival(9)) == (0, 40)


def test_notes_of_a_long_backlog_become_coarser() -> None:
    times = TailTimes()
    for number in range(10_000):
        times.note(number, number * SECOND, (number - 1) * SECOND, False)
    assert len(times.numbers) <= 512
    assert times.arrival(0) == 0
    for number in (10, 5_000, 9_900, 9_999):
        assert 0 <= number * SECOND - times.arrival(number) <= (10_000 - number) * SECOND
    assert times.arrival(9_999) == 9_999 * SECOND
