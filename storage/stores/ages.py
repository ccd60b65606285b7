"""When the oldest messages of a store have arrived, without reading their bodies.

A store on disk has the times of the messages that it has been given since its start, those of its segments, and those
in the headers of records; it remembers what it has read of its head. A store in memory has TailTimes.
"""

from __future__ import annotations

from typing import Final

from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import StoredMessage
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import Returned
from leveret.storage.stores.segment_store import SegmentStore

#: Times that differ by less are not read from disk, in microseconds.
_CLOSE_ENOUGH: Final = 1_000_000
_ALL_BYTES: Final = 1 << 62
#: Ranges of numbers that are looked at for the oldest taken message; after that the answer is too old rather than late.
_RANGES_MAX: Final = 1000


def oldest_ready(store: MessageStore) -> int:
    """Return when the oldest ready message arrived, in microseconds since 1970; 0 if none is ready, or unknown.

    For a store in memory it is about as exact as note_time() is called often.
    """
    if isinstance(store, PriorityStore):
        return _lowest([oldest_ready(level) for level in store.levels.values()])
    if isinstance(store, Returned):
        return oldest_ready(store.store)
    if not store.ready_count:
        return 0
    if isinstance(store, MemoryStore):
        return store.times.arrival(store.head_number)
    assert isinstance(store, SegmentStore)
    seq, _ = store.cursor.head(store.next_seq)
    if store.oldest_ready[0] != seq:
        store.oldest_ready = seq, _arrival(store, seq)
    return store.oldest_ready[1]


def oldest_taken(store: MessageStore) -> int:
    """Return when the oldest taken message arrived, in microseconds since 1970.

    Returns:
        0 if none is taken, or if the store does not know which ones are; then those who hold them know. See arrival().
    """
    if isinstance(store, PriorityStore):
        return _lowest([oldest_taken(level) for level in store.levels.values()])
    if isinstance(store, Returned):
        return oldest_taken(store.store)
    if isinstance(store, MemoryStore):
        return 0
    assert isinstance(store, SegmentStore)
    seq = _first_taken(store) if store.taken_count else 0
    if not seq:
        return 0
    if store.oldest_taken[0] != seq:
        store.oldest_taken = seq, _arrival(store, seq)
    return store.oldest_taken[1]


def arrival(store: MessageStore, entry: Entry) -> int:
    """Return when a message of a store arrived, in microseconds since 1970; 0 if it is unknown."""
    message = entry[1]
    if isinstance(message, StoredMessage):
        return message.arrived_at
    if isinstance(store, PriorityStore):
        level, number = store.place_of(entry)
        return arrival(store.levels[level], (number, message, entry[2]))
    if isinstance(store, Returned):
        return arrival(store.store, entry)
    if isinstance(store, MemoryStore):
        return store.times.arrival(entry[0])
    assert isinstance(store, SegmentStore)
    return store.ram.arrival(entry[0])[0]


def note_time(store: MessageStore, now: int, last: int) -> None:
    """Note the time for the messages that arrive from now on, if they are kept in memory; to be called periodically.

    Args:
        store: The store.
        now: Microseconds since 1970.
        last: When it was called the last time.
    """
    if isinstance(store, MemoryStore):
        store.times.note(store.next_number, now, last, not store.ready_count and not store.taken_count)
    elif isinstance(store, PriorityStore):
        for level in store.levels.values():
            note_time(level, now, last)
    elif isinstance(store, Returned):
        note_time(store.store, now, last)


def _lowest(times: list[int]) -> int:
    return min([time for time in times if time], default=0)


def _arrival(store: SegmentStore, seq: int) -> int:
    """Return when a live message arrived; from its record if it is not known well enough."""
    ram, log = store.ram, store.log
    known = ram.arrival(seq)[0]
    if known and ram.is_exact(seq, _CLOSE_ENOUGH):
        return known
    found = [segment for segment in [chain.find(seq) for chain in log.chains] if segment is not None]
    if len(found) == 1:
        segment = found[0]
        if seq == segment.first_seq or segment.max_arrived - segment.min_arrived < _CLOSE_ENOUGH:
            return segment.min_arrived
    measured = log.measure_run(seq, 1, 1, _ALL_BYTES, 0, True) if found else None
    return known if measured is None else measured.arrived


def _first_taken(store: SegmentStore) -> int:
    """Return the number of the oldest taken message; 0 if there is none."""
    requeued, leaving = store.cursor.requeued, store.leaving.numbers()
    looked = 0
    for first, end in store.log.dead.live_runs(store.log.dead.floor, store.cursor.position):
        at = first
        while at < end:
            looked += 1
            beyond = max(requeued.end_at(at), leaving.end_at(at))
            if beyond == at or looked > _RANGES_MAX:
                return at
            at = beyond
    return 0
