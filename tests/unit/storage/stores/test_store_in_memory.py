"""What a store without files costs, and how it gets files; the rest is in the contract of all stores."""

from __future__ import annotations

import sys

from leveret.storage.stores.segment_store import SegmentStore
from tests.support.messages import bodies, message, size_of
from tests.support.segment_stores import memory_store, open_engine
from tests.support.simulated_files import SimulatedFiles

ALL = 1 << 20


def test_a_message_that_waits_costs_no_object_of_its_own() -> None:
    store = memory_store()
    messages = [message("x")] * 10_000
    before = sys.getallocatedblocks()
    store.append(messages, size_of(messages))
    # A deque allocates a block for 64 messages.
    assert sys.getallocatedblocks() - before < 10_000 / 32


def test_the_caller_may_use_its_list_again() -> None:
    store = memory_store()
    messages = [message("a")]
    store.append(messages, 1)
    messages.clear()
    assert len(store.take(5, 5)[0]) == 1


def filled(store: SegmentStore) -> SegmentStore:
    """Append a to f; a is gone, b requeued, c taken, e taken out of the middle."""
    for text in "abcdef":
        store.append([message(text)], 1)
    a, b, _ = store.take(3, ALL)[0]
    store.settle([a])
    store.requeue([b])
    store.pick(0, [each for each in store.look(0, ALL, ALL).seen if each.message.body == b"e"])
    return store


def test_files_change_nothing_that_is_seen() -> None:
    engine = open_engine(SimulatedFiles())
    memory, store = filled(engine.new_store()), filled(engine.new_store())
    engine.add_files(engine.create_queue(False, {"name": "q"}), 0, store)
    assert store.dead.count_live(1, store.next_seq) == 3, "what is gone is not looked for in files"
    store.page_out(ALL)
    while store.paging.is_due:
        engine.flush()
    assert len(store.ram) == 0
    for each in (memory, store):
        seen = each.look(0, ALL, ALL).seen
        assert [(entry.message.body, entry.redelivered) for entry in seen] == [
            (b"b", True),
            (b"d", False),
            (b"f", False),
        ]
        assert (each.ready_count, each.ready_bytes, each.taken_count, each.next_seq) == (3, 3, 2, 7)
        assert bodies(each.take(ALL, ALL)[0]) == ["b", "d", "f"]
    engine.close()


def test_what_was_taken_returns_to_its_place() -> None:
    engine = open_engine(SimulatedFiles())
    store = engine.new_store()
    for text in "abc":
        store.append([message(text)], 1)
    taken = store.take(2, ALL)[0]
    engine.add_files(engine.create_queue(False, {"name": "q"}), 0, store)
    store.set_lazy(True)
    engine.flush()
    store.requeue(taken)
    engine.flush()
    assert bodies(store.take(ALL, ALL)[0]) == ["a", "b", "c"]
    assert (store.ready_count, store.taken_count) == (0, 3)
