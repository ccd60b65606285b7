"""Priorities as on quorum queues of RabbitMQ 4.3; what a store does besides is in the contract of all stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.storage.interface import Level
from leveret.storage.message import Envelope, Message
from leveret.storage.stores.priority_store import StrictPriorityStore
from tests.support import content
from tests.support.messages import bodies
from tests.support.segment_stores import memory_store, new_flushed_store

ALL = 1 << 20


@pytest.fixture(params=[memory_store, new_flushed_store])
def store(request: pytest.FixtureRequest) -> StrictPriorityStore:
    make: Callable[[], Level] = request.param
    return StrictPriorityStore(lambda level: make())


def ranked(text: str, priority: int | None) -> Message:
    given = {} if priority is None else {"priority": priority}
    header = content.header(len(text), content.properties(**given))
    return Message(Envelope(b"\0\0", header, priority=priority or 0), text.encode())


def append(store: StrictPriorityStore, *given: tuple[str, int | None]) -> None:
    for text, priority in given:
        store.append([ranked(text, priority)], len(text))


def test_higher_ones_come_first_and_none_is_four(store: StrictPriorityStore) -> None:
    append(store, ("zero", 0), ("none", None), ("four", 4), ("five", 5), ("three", 3), ("most", 31), ("more", 255))
    order = ["most", "more", "five", "none", "four", "three", "zero"]
    entries = store.take(ALL, ALL)[0]
    assert bodies(entries) == order
    store.requeue(entries)
    assert bodies(store.take(ALL, ALL)[0]) == order
    store.settle(entries)
    assert store.ready_count == 0


def test_a_batch_may_have_messages_of_priority_zero_and_without_one(store: StrictPriorityStore) -> None:
    batch = [ranked("a", 0), ranked("b", None), ranked("c", 0), ranked("d", None)]
    store.append(batch, 4, 1)
    assert (store.ready_count, store.ready_bytes) == (4, 4)
    entries = store.take(ALL, ALL)[0]
    assert bodies(entries) == ["b", "d", "a", "c"]
    store.settle(entries)


def test_what_has_returned_comes_first_in_the_order_of_its_return(store: StrictPriorityStore) -> None:
    append(store, ("high", 9), ("low", 1), ("other", None))
    for entry in reversed(store.take(3, ALL)[0]):
        store.append_returned([entry[1]], len(entry[1].body))
        store.settle([entry])
    append(store, ("highest", 31))
    entries = store.take(2, ALL)[0]
    assert bodies(entries) == ["low", "other"]
    assert [store.place_of(entry)[0] for entry in entries] == [store.first_returned] * 2
    store.requeue(entries[1:])
    store.settle(entries[:1])
    assert bodies(store.take(ALL, ALL)[0]) == ["other", "high", "highest"]
