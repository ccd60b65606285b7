"""Transient messages that return to a store before they were written can still leave memory."""

from __future__ import annotations

import random

import pytest

from leveret.storage.format import Stream
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message
from leveret.storage.segments.segment import SUFFIXES
from leveret.storage.stores.segment_store import SegmentStore
from tests.support.segment_stores import commit, files_of, new_returning_store, new_store, open_engine
from tests.support.simulated_files import SimulatedFiles

ALL = 1 << 40
KIB = 1 << 10
TRANSIENT = Envelope(b"\x00\x01q", bytes(14))
PERSISTENT = Envelope(b"\x00\x01q", bytes(14), True)


def fill(store: SegmentStore, count: int, size: int = 10, envelope: Envelope = TRANSIENT) -> list[Entry]:
    """Publish messages, and take them in the same turn."""
    messages = [Message(envelope, b"%d" % number + bytes(size)) for number in range(count)]
    store.append(messages, sum(len(message.body) for message in messages), size + 9)
    return store.take(count, ALL)[0]


def numbers(entries: list[Entry]) -> list[int]:
    return [int(message.body.rstrip(b"\0")) for _, message, _ in entries]


def spill_files(store: SegmentStore) -> int:
    directory = store.place.directory
    return sum(name.endswith(SUFFIXES[Stream.SPILL]) for name in files_of(store).list_directory(directory))


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_lazy_store_keeps_few_bytes_of_what_returned(one_by_one: bool) -> None:
    store = new_store()
    taken = fill(store, 300, 50 * KIB)
    most = 0
    for batch in [[entry] for entry in reversed(taken)] if one_by_one else [taken]:
        store.requeue(batch)
        while store._dirty:
            commit(store)
        most = max(most, store.ram.held_bytes)
    assert most <= 1 << 20
    assert (store.ready_count, store.ready_bytes) == (300, sum(len(entry[1].body) for entry in taken))
    again = store.take(300, ALL)[0]
    assert numbers(again) == [*range(300)]
    assert all(entry[2] for entry in again)


def test_a_lazy_store_keeps_few_empty_messages_that_returned() -> None:
    store = new_store()
    store.append([Message(TRANSIENT, b"")] * 20_000, 0, 0)
    store.requeue(store.take(20_000, ALL)[0])
    while store._dirty:
        commit(store)
    assert len(store.ram) <= 4096
    assert len(store.take(20_000, ALL)[0]) == 20_000


def test_many_small_messages_leave_memory_in_parts() -> None:
    store = new_store()
    store.set_lazy(False)
    store.append([Message(TRANSIENT, b"x")] * 50_000, 50_000)
    commit(store)
    store.set_lazy(True)
    flushes, before = 0, len(store.ram)
    while store._dirty:
        commit(store)
        flushes += 1
        assert 0 <= before - len(store.ram) <= 10_000, "a flush takes too long"
        before = len(store.ram)
    assert (flushes, before) == (7, 0)
    assert len(store.take(50_000, ALL)[0]) == 50_000


def test_many_small_messages_that_arrive_at_once_leave_memory_at_once() -> None:
    store = new_store()
    store.append([Message(TRANSIENT, b"x")] * 50_000, 50_000)
    commit(store)
    assert len(store.ram) == 0


def test_a_persistent_message_that_returned_before_it_was_written_does_not_stay_in_memory() -> None:
    store = new_store()
    store.requeue(fill(store, 100, 50 * KIB, PERSISTENT))
    while store._dirty:
        commit(store)
    assert store.ram.held_bytes <= 1 << 20
    assert len(store.log.chains) == 1, "it is in the durable stream"
    assert numbers(store.take(100, ALL)[0]) == [*range(100)]


def test_the_default_mode_pages_out_what_returned_when_memory_is_short() -> None:
    store = new_store()
    store.set_lazy(False)
    store.requeue(fill(store, 100, KIB))
    store.page_out(50 * KIB)
    commit(store)
    assert 45 * KIB < store.ram.held_bytes < 55 * KIB
    assert numbers(store.take(100, ALL)[0]) == [*range(100)]


def test_what_the_disk_does_not_take_stays_in_memory() -> None:
    store = new_returning_store()
    taken = fill(store, 100, KIB)
    files_of(store).room = 20 * KIB
    with pytest.raises(OSError, match="no space"):
        store.requeue(taken)
    files_of(store).room = None
    store.page_out(ALL)
    commit(store)
    assert store.ram.held_bytes == 0
    assert numbers(store.take(100, ALL)[0]) == [*range(100)]


@pytest.mark.parametrize("seed", range(20))
def test_in_whatever_order_they_return_all_is_counted_and_given_back(seed: int) -> None:
    rng = random.Random(seed)
    store = new_returning_store()
    taken = fill(store, 200)
    rng.shuffle(taken)
    while taken:
        count = rng.randrange(1, 40)
        store.requeue(taken[:count])
        del taken[:count]
    assert store.ram.held_bytes == 0
    taken = store.take(200, ALL)[0]
    assert numbers(taken) == [*range(200)]
    while taken:
        first = rng.randrange(len(taken))
        some = taken[first : first + rng.randrange(1, 60)]
        del taken[first : first + len(some)]
        store.settle(some)
        commit(store)
        assert store.log.spilled[0] == len(taken)
        for chain in store.log.chains:
            for segment in chain.segments:
                assert segment.live >= 0
                assert segment.live_bytes >= 0
    assert len(store.log.chains) <= 2, "further chains go with their last message"
    store.idle()
    commit(store)
    assert spill_files(store) == 0


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_dropped_and_purged_across_chains(seed: int) -> None:
    rng = random.Random(seed)
    store = new_returning_store()
    taken = fill(store, 100)
    rng.shuffle(taken)
    for entry in taken:
        store.requeue([entry])
    dropped = 0
    while dropped < 60:
        dropped += store.drop(rng.randrange(1, 10), ALL)[0]
    assert store.ready_count == 100 - dropped == store.log.spilled[0]
    head = store.peek()
    assert head is not None
    assert head.body.rstrip(b"\0") == b"%d" % dropped
    assert store.purge() == 100 - dropped
    commit(store)
    assert spill_files(store) == 0


def test_the_engine_goes_on_until_little_is_left() -> None:
    engine = open_engine(SimulatedFiles())
    store = engine.store(engine.create_queue(False, {"name": "q"}))
    taken = fill(store, 300, 50 * KIB)
    engine.flush()
    store.requeue(taken)
    flushes = 0
    while engine._dirty:
        assert not engine.flush()
        engine.commit()
        flushes += 1
    assert store.ram.held_bytes <= 1 << 20
    # None of them writes more than a turn has time for.
    assert flushes > 5
