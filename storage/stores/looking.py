"""Looks at messages of a store by their numbers, without taking them or changing anything."""

from __future__ import annotations

from typing import Final, NamedTuple

from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message
from leveret.storage.stores.ages import arrival
from leveret.storage.stores.memory_store import MemoryStore
from leveret.storage.stores.priority_store import PriorityStore
from leveret.storage.stores.returns_store import Returned, ReturnsStore
from leveret.storage.stores.segment_store import SegmentStore

_ALL: Final = 1 << 62
#: Attempts that a damaged message counts for.
_DAMAGE_COST: Final = 64


class Seen(NamedTuple):
    """A message that was looked at.

    Attributes:
        seq: Its number in its level.
        message: The message.
        is_ready: Whether it is ready; otherwise it is taken.
        redelivered: Whether it may have been delivered before; true for all that are taken.
        arrived: Its arrival in microseconds since 1970; 0 if it is unknown.
    """

    seq: int
    message: Message
    is_ready: bool
    redelivered: bool
    arrived: int


class Look(NamedTuple):
    """The result of look().

    Attributes:
        seen: Messages in order of their numbers.
        end: All messages with numbers from the given one to this one, excluded, have been looked at.
        is_over: Whether there are no messages with higher numbers now.
        is_complete: Whether `seen` has them all. If not, those who hold taken messages know the missing ones.
        failure: Why the system could not read some of them, which may be readable later; None if it could.
    """

    seen: list[Seen]
    end: int
    is_over: bool
    is_complete: bool
    failure: OSError | None = None


def levels(store: MessageStore) -> list[tuple[int, MessageStore]]:
    """Return the levels of a store, each with numbers of its own, in an order in which messages move only forwards.

    They are priorities, highest first. Messages returned to a quorum queue are in a level after all others, because
    they come from there, although they are delivered first.
    """
    if isinstance(store, ReturnsStore):
        return sorted(store.levels.items())
    if isinstance(store, PriorityStore):
        return sorted(store.levels.items(), reverse=True)
    return [(0, store)]


def place_of(store: MessageStore, entry: Entry) -> tuple[int, int]:
    """Return the level of a message of a store, and its number there."""
    return store.place_of(entry) if isinstance(store, PriorityStore) else (0, entry[0])


def look(store: MessageStore, seq: int, count: int, body_bytes: int) -> Look:
    """Look at messages of one level.

    Args:
        store: The level; see levels().
        seq: Number of the first message.
        count: Maximum number of messages, and of attempts to read some.
        body_bytes: Stop when the bodies have reached this many bytes.
    """
    if isinstance(store, Returned):
        return look(store.store, seq, count, body_bytes)
    if isinstance(store, MemoryStore):
        return _look_in_memory(store, seq, count, body_bytes)
    assert isinstance(store, SegmentStore)
    return _SegmentLook(store, count, body_bytes).from_number(seq)


def _look_in_memory(store: MemoryStore, seq: int, count: int, body_bytes: int) -> Look:
    seen: list[Seen] = []
    for entry in store.entries_from(seq, count):
        if body_bytes <= 0:
            break
        seen.append(Seen(entry[0], entry[1], True, entry[2], arrival(store, entry)))
        body_bytes -= len(entry[1].body)
    is_over = not seen or seen[-1].seq + 1 == store.next_number
    end = max(seq, store.next_number) if is_over else seen[-1].seq + 1
    return Look(seen, end, is_over, not store.taken_count)


class _SegmentLook:
    """One look() at a store on disk.

    Args:
        store: The store.
        count: See look().
        body_bytes: See look().
    """

    def __init__(self, store: SegmentStore, count: int, body_bytes: int) -> None:
        self._store = store
        self._left = count
        self._bytes_left = body_bytes
        self._leaving = store.leaving.numbers()
        self._seen: list[Seen] = []
        self._is_complete = True
        self._failure: OSError | None = None

    def from_number(self, seq: int) -> Look:
        """Look at the messages from a number on."""
        store = self._store
        for first, end in store.log.dead.live_runs(seq, store.next_seq):
            at = first
            while at < end:
                if self._left <= 0 or self._bytes_left <= 0:
                    return Look(self._seen, at, False, self._is_complete, self._failure)
                at = self._step(at, end)
        return Look(self._seen, max(seq, store.next_seq), True, self._is_complete, self._failure)

    def _step(self, at: int, end: int) -> int:
        """Look at some live messages; return the number that follows them."""
        store, ram = self._store, self._store.ram
        self._left -= 1
        beyond = self._leaving.end_at(at)
        if beyond > at:
            return beyond
        if at >= ram.first_seq:
            return self._see_window(at, min(end, at + self._left + 1))
        kept = ram.kept_run(at, 1, _ALL, 0, False)[0]
        if kept:
            self._see(kept)
            return at + 1
        ready, until = store.cursor.ready_until(at, min(end, ram.first_seq))
        until = min(until, ram.next_kept_after(at, until))
        count = min(self._left + 1, until - at)
        entries = store.log.read_run(at, count, self._bytes_left, 0, False, True, is_counted=False)
        if entries:
            self._left -= len(entries) - 1
            self._see(entries)
            return entries[-1][0] + 1
        # A damaged message if it is ready; otherwise it may have been taken before it was written.
        self._is_complete = self._is_complete and ready
        if ready:
            self._failure = store.log.failure or self._failure
            # The reader may have searched for a long time.
            self._left -= _DAMAGE_COST
        return at + 1

    def _see_window(self, at: int, end: int) -> int:
        ram = self._store.ram
        entries: list[Entry] = []
        size = 0
        while at < end and size < self._bytes_left:
            message = ram.window[at - ram.first_seq]
            entries.append((at, message, False))
            size += len(message.body)
            at += 1
        self._left -= len(entries) - 1
        self._see(entries)
        return at

    def _see(self, entries: list[Entry]) -> None:
        store = self._store
        for entry in entries:
            seq, message, _ = entry
            is_ready = store.cursor.is_ready(seq)
            redelivered = not is_ready or store.cursor.may_be_redelivered(seq)
            if message.envelope.delivery_count is not None:
                redelivered = True
            self._seen.append(Seen(seq, message, is_ready, redelivered, arrival(store, entry)))
            self._bytes_left -= len(message.body)
