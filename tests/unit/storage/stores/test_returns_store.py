"""What returned messages mean; what a store does besides is in the contract of all stores."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.event_log import EventPosition
from leveret.storage.interface import Entry, Level
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.priority_store import RETURNS_PRIORITY_MAX, ReturnsStore
from tests.support.messages import ENVELOPE, bodies, message
from tests.support.segment_stores import memory_store, new_flushed_store, open_engine
from tests.support.simulated_files import SimulatedFiles

ALL = 1 << 20


@pytest.fixture(params=[memory_store, new_flushed_store])
def store(request: pytest.FixtureRequest) -> ReturnsStore:
    make: Callable[[], Level] = request.param
    return ReturnsStore(lambda level: make())


def append(store: ReturnsStore, *texts: str) -> None:
    for text in texts:
        store.append([message(text)], len(text))


def give_back(store: ReturnsStore, entry: Entry) -> None:
    returned = Message(entry[1].envelope, entry[1].body)
    store.append_returned([returned], len(returned.body))
    store.settle([entry])


def test_returned_messages_come_first_in_the_order_of_their_return(store: ReturnsStore) -> None:
    append(store, "a", "b", "c")
    first, second = store.take(2, ALL)[0]
    give_back(store, second)
    give_back(store, first)
    append(store, "d")
    assert (store.ready_count, store.ready_bytes) == (4, 4)
    assert bodies(store.take(ALL, ALL)[0]) == ["b", "a", "c", "d"]


def test_each_goes_back_to_where_it_was(store: ReturnsStore) -> None:
    append(store, "a", "b", "c")
    give_back(store, store.take(1, ALL)[0][0])
    entries = store.take(3, ALL)[0]
    assert bodies(entries) == ["a", "b", "c"]
    store.requeue(entries[:2])
    assert bodies(store.take(ALL, ALL)[0]) == ["a", "b"]
    store.settle(entries)
    assert store.ready_count == 0


def test_returned_messages_are_dropped_first(store: ReturnsStore) -> None:
    append(store, "a", "b")
    give_back(store, store.take(1, ALL)[0][0])
    assert store.drop(1, ALL) == (1, 1)
    head = store.peek()
    assert head is not None
    assert head.body == b"b"
    assert store.purge() == 1


@pytest.mark.parametrize("drops", [False, True])
def test_returned_messages_expire_first(store: ReturnsStore, drops: bool) -> None:
    for text, expires_at in (("a", 10), ("b", 10), ("c", 30)):
        store.append([TimedMessage(ENVELOPE, text.encode(), expires_at)], 1)
    entry = store.take(1, ALL)[0][0]
    store.append_returned([TimedMessage(ENVELOPE, b"a", 10)], 1)
    store.settle([entry])
    assert store.take_expired(9, ALL) == []
    if drops:
        assert store.drop(1, ALL, EventKind.EXPIRED, 20) == (1, 1)
        assert store.drop(ALL, ALL, EventKind.EXPIRED, 20) == (1, 1)
    else:
        expired = store.take_expired(20, ALL)
        assert [(each[1].body, each[2]) for each in expired] == [(b"a", True), (b"b", False)]
        assert [store.place_of(each)[0] for each in expired] == [1, 0]
        store.settle(expired)
    assert bodies(store.take(ALL, ALL)[0]) == ["c"]


def test_what_becomes_of_them_is_logged() -> None:
    engine = open_engine(SimulatedFiles())
    queue = engine.create_queue(True, {"name": "q"})
    store = ReturnsStore(lambda level: engine.store(queue, level))
    append(store, "a", "bb", "ccc")
    for entry in store.take(2, ALL)[0]:
        give_back(store, entry)
    first, second, third = store.take(3, ALL)[0]
    store.settle([first], EventKind.REJECT, DEAD_LETTERED)
    store.settle([second, third], EventKind.ACK)
    store.note(EventKind.REFUSED, 2, 7, DEAD_LETTERED)
    engine.flush()
    engine.commit()
    found = [
        (event.kind, event.length, event.body_bytes, event.flags & DEAD_LETTERED)
        for event in engine.events_since(EventPosition(0, 0))
    ]
    assert sorted(found) == [
        (EventKind.ACK, 1, 2, 0),
        # The first two before their return, and the third one.
        (EventKind.ACK, 3, 6, 0),
        (EventKind.REJECT, 1, 1, DEAD_LETTERED),
        (EventKind.REFUSED, 2, 7, DEAD_LETTERED),
    ]


def test_long_histories() -> None:
    """Two queues in a row are what it does, whatever happens."""
    chance, store = random.Random(1), ReturnsStore(lambda level: memory_store())
    fresh: list[str] = []
    returned: list[str] = []
    held: list[Entry] = []
    for number in range(2000):
        step = chance.randrange(4)
        if step == 0:
            append(store, str(number))
            fresh.append(str(number))
        elif step == 1:
            taken = store.take(chance.randint(1, 3), ALL)[0]
            ready = returned + fresh
            assert bodies(taken) == ready[: len(taken)]
            del fresh[: max(0, len(taken) - len(returned))], returned[: len(taken)]
            held += taken
        elif held:
            entry = held.pop(chance.randrange(len(held)))
            if step == 2:
                give_back(store, entry)
                returned.append(entry[1].body.decode())
            else:
                store.settle([entry])
        assert store.ready_count == len(fresh) + len(returned)
        assert store.ready_bytes == sum(map(len, fresh + returned))


def of_priority(body: bytes, priority: int) -> Message:
    return Message(Envelope(b"\0\0", b"", priority=priority), body)


def test_priorities_against_a_list() -> None:
    chance, store = random.Random(1), ReturnsStore(lambda level: memory_store(), max_priority=RETURNS_PRIORITY_MAX)
    #: Place in the order (level, whether it never returned, number there), whether it was delivered, body.
    expected: list[tuple[tuple[int, bool, int], bool, bytes]] = []
    taken: list[tuple[Entry, tuple[int, bool, int]]] = []
    for number in range(3000):
        what = chance.randrange(5)
        if what < 2:
            priority, body = chance.choice((0, 1, 7, RETURNS_PRIORITY_MAX, 255)), b"%d" % number
            store.append([of_priority(body, priority)], len(body))
            expected.append(((-min(priority, RETURNS_PRIORITY_MAX), True, number), False, body))
        elif what < 4 and taken:
            entry, place = taken.pop(chance.randrange(len(taken)))
            if what == 2:
                store.append_returned([entry[1]], len(entry[1].body))
                store.settle([entry])
                place = place[0], False, number
            else:
                store.requeue([entry])
            expected.append((place, True, entry[1].body))
        else:
            entries, _ = store.take(3, ALL)
            expected.sort()
            assert [(entry[2], entry[1].body) for entry in entries] == [each[1:] for each in expected[:3]]
            taken += zip(entries, [each[0] for each in expected[:3]], strict=True)
            del expected[:3]
        assert store.ready_count == len(expected)
