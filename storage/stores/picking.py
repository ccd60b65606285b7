"""Takes certain ready messages of a store, wherever they stand. The others keep their order and redelivered flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from leveret.storage.interface import Entry, MessageStore
from leveret.storage.stores.looking import Seen
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.returns_store import Returned
from leveret.storage.stores.segment_store import SegmentStore

#: Why a message is not ready: it is taken, or not there any more, or its number was never used.
Absence: TypeAlias = Literal["unacked", "gone", "unknown"]


def pick(store: MessageStore, seen: Sequence[Seen]) -> list[Entry]:
    """Take messages that look() has just shown, and nothing has happened to the store since.

    Args:
        store: One level of a queue's store; see looking.levels().
        seen: Ready messages, in order of their numbers; at least one.
    Returns:
        Their entries, as the store of the queue takes them back.
    """
    if isinstance(store, Returned):
        return store.tagged(pick(store.store, seen))
    entries: list[Entry] = [(each.seq, each.message, each.redelivered) for each in seen]
    if isinstance(store, MemoryStore):
        store.pick(entries)
    else:
        assert isinstance(store, SegmentStore)
        _pick_on_disk(store, entries)
    return entries


def is_ready(store: MessageStore, seq: int) -> bool:
    """Return whether a message of one level that was ready still is."""
    if isinstance(store, Returned):
        return is_ready(store.store, seq)
    if isinstance(store, MemoryStore):
        return [entry[0] for entry in store.entries_from(seq, 1)] == [seq]
    assert isinstance(store, SegmentStore)
    return seq < store.next_seq and seq not in store.log.dead and store.cursor.is_ready(seq)


def absence(store: MessageStore, numbers: Sequence[int]) -> list[Absence]:
    """Return why messages of one level on disk are not ready.

    Args:
        store: The level.
        numbers: Their numbers; none of them is ready.
    """
    if isinstance(store, Returned):
        return absence(store.store, numbers)
    assert isinstance(store, SegmentStore)
    leaving = store.leaving.numbers()
    found: list[Absence] = []
    for seq in numbers:
        if seq >= store.next_seq:
            found.append("unknown")
        elif seq in store.log.dead or seq in leaving:
            found.append("gone")
        else:
            found.append("unacked")
    return found


def next_number(store: MessageStore) -> int:
    """Return the number of the next message of one level: all messages that are there have lower ones."""
    if isinstance(store, Returned):
        return next_number(store.store)
    if isinstance(store, MemoryStore):
        return store.next_number
    assert isinstance(store, SegmentStore)
    return store.next_seq


def _pick_on_disk(store: SegmentStore, entries: Sequence[Entry]) -> None:
    cursor, ram = store.cursor, store.ram
    end = entries[-1][0] + 1
    if end > cursor.position:
        window_start = ram.first_seq
        cursor.pass_over(end)
        picked = {entry[0] for entry in entries}
        for seq, message in enumerate(ram.leave_window(end), window_start):
            # On disk already, a lazy store reads it again.
            if seq not in picked and not (store.paging.lazy and store.paging.is_stored(seq, message)):
                ram.keep(seq, message)
    cursor.take_out([entry[0] for entry in entries])
    ram.drop_kept(entries)
    body_bytes = sum([len(entry[1].body) for entry in entries])
    store.ready_count -= len(entries)
    store.ready_bytes = max(0, store.ready_bytes - body_bytes) if store.ready_count else 0
    store.taken_count += len(entries)
    store.taken_bytes += body_bytes
