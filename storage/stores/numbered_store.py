"""Stores that give out messages by number, in any order: for messages that do not leave in the order of arrival."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Final, Protocol

from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.looking import Look, Seen, look
from leveret.storage.stores.segment_store import SegmentStore, lose, purge_numbers

_EXPIRES_ANY: Final = 0
_ALL_BYTES: Final = 1 << 62
#: Bytes of bodies that one scan() reads, about.
_SCAN_BYTES: Final = 1 << 20


class NumberedStore(Protocol):
    """Messages with numbers. Each is *ready* from append() until take(), and *taken* until settle()."""

    @property
    def ready_count(self) -> int:
        """Number of ready messages."""

    @property
    def ready_bytes(self) -> int:
        """Their body bytes."""

    @property
    def next_seq(self) -> int:
        """Number of the next message."""

    def append(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages.

        Args:
            messages: Messages of one size.
            body_bytes: Sum of their body lengths.
        Returns:
            Number of the first one; the others have the following numbers.
        """

    def is_written(self, seq: int) -> bool:
        """Return whether an appended message can be read, because it is not waiting for the end of the turn."""

    def take(self, numbers: Sequence[int], body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages.

        Args:
            numbers: Numbers of ready messages that are written, in any order.
            body_bytes: Stop when the bodies taken have reached this many bytes.
        Returns:
            The messages in the order of the numbers, without those that cannot be read, which are lost; and how many of
            the numbers are dealt with, from the first.
        """

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Make taken messages ready again."""

    def read(self, seq: int) -> Message | None:
        """Return a ready message that is written, without taking it; None if it cannot be read."""

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages in the order of their numbers; see looking.look().

        Args:
            seq: Number of the first message.
            count: Maximum number of messages, and of attempts to read some.
            body_bytes: Stop when the bodies have reached this many bytes.
        """

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently.

        Args:
            entries: The messages.
            kind: The reason.
        """

    def refuse(self, count: int, body_bytes: int) -> None:
        """Log messages that were not stored, because there were too many.

        Args:
            count: Number of messages.
            body_bytes: Sum of their body lengths.
        """

    def purge(self) -> int:
        """Remove all ready messages; return their number. Those that are taken stay."""

    def scan(self, seq: int, end: int, count: int) -> tuple[list[Entry], int]:
        """Read ready messages that were recovered at the start, in the order of their numbers.

        Args:
            seq: Where to continue; 0 to begin.
            end: Number after the last one.
            count: Maximum number of messages.
        Returns:
            Messages, without those that cannot be read, which are lost; and where to continue, `end` after the last.
        """


class NumberedMemory:
    """Messages in memory. Implements NumberedStore."""

    __slots__ = ("_ready", "next_seq", "ready_bytes")

    def __init__(self) -> None:
        self._ready: dict[int, Message] = {}
        self.next_seq = 1
        self.ready_bytes = 0

    @property
    def ready_count(self) -> int:
        """Number of ready messages."""
        return len(self._ready)

    def append(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages."""
        first = self.next_seq
        self._ready.update(enumerate(messages, first))
        self.next_seq = first + len(messages)
        self.ready_bytes += body_bytes
        return first

    def is_written(self, seq: int) -> bool:
        """Return True: all messages can be read at once."""
        return True

    def take(self, numbers: Sequence[int], body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages."""
        entries: list[Entry] = []
        taken_bytes = 0
        for seq in numbers:
            if taken_bytes >= body_bytes:
                break
            message = self._ready.pop(seq)
            entries.append((seq, message, False))
            taken_bytes += len(message.body)
        self.ready_bytes -= taken_bytes
        return entries, len(entries)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Make taken messages ready again."""
        self._ready.update((seq, message) for seq, message, _ in entries)
        self.ready_bytes += sum([len(message.body) for _, message, _ in entries])

    def read(self, seq: int) -> Message | None:
        """Return a ready message without taking it."""
        return self._ready.get(seq)

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages."""
        numbers = nsmallest(count, [number for number in self._ready if number >= seq])
        seen: list[Seen] = []
        for number in numbers:
            if body_bytes <= 0:
                break
            message = self._ready[number]
            seen.append(Seen(number, message, True, False, 0))
            body_bytes -= len(message.body)
        is_over = len(seen) == len(numbers) < count
        return Look(seen, self.next_seq if is_over else seen[-1].seq + 1, is_over, True)

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Do nothing: taken messages are gone already."""

    def refuse(self, count: int, body_bytes: int) -> None:
        """Do nothing: there is no log."""

    def purge(self) -> int:
        """Remove all ready messages."""
        purged = len(self._ready)
        self._ready.clear()
        self.ready_bytes = 0
        return purged

    def scan(self, seq: int, end: int, count: int) -> tuple[list[Entry], int]:
        """Return no messages: none is ever recovered."""
        return [], end


class NumberedSegments:
    """The messages of a segment store, by number. Implements NumberedStore.

    Nothing else takes messages of the store, so its cursor stays where it is. The store must be lazy: after a flush no
    message is in memory.

    Args:
        store: The store.
    """

    __slots__ = ("_store", "_taken")

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        #: Numbers of the taken messages.
        self._taken: set[int] = set()

    @property
    def ready_count(self) -> int:
        """Number of ready messages."""
        return self._store.ready_count

    @property
    def ready_bytes(self) -> int:
        """Their body bytes."""
        return self._store.ready_bytes

    @property
    def next_seq(self) -> int:
        """Number of the next message."""
        return self._store.next_seq

    def append(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages; they can be read after the next flush."""
        first = self._store.next_seq
        self._store.append(messages, body_bytes)
        return first

    def is_written(self, seq: int) -> bool:
        """Return whether a message has left memory."""
        return seq < self._store.ram.first_seq or not self._store.ram.window

    def take(self, numbers: Sequence[int], body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages. Consecutive numbers are read together."""
        store = self._store
        entries: list[Entry] = []
        taken_bytes = at = 0
        while at < len(numbers) and taken_bytes < body_bytes:
            run = self._read_run(numbers, at, body_bytes - taken_bytes)
            if not run:
                at += 1
                continue
            at += len(run)
            taken_bytes += sum([len(entry[1].body) for entry in run])
            entries += run
        store.ready_count -= len(entries)
        # After losses it is an estimate until no message is left.
        store.ready_bytes = max(0, store.ready_bytes - taken_bytes) if store.ready_count else 0
        store.taken_count += len(entries)
        store.taken_bytes += taken_bytes
        self._taken.update([entry[0] for entry in entries])
        return entries, at

    def _read_run(self, numbers: Sequence[int], at: int, body_bytes: int) -> list[Entry]:
        """Read messages from a place in the numbers on, as long as these are consecutive; none if the first is lost."""
        first, count = numbers[at], 1
        while at + count < len(numbers) and numbers[at + count] == first + count:
            count += 1
        return self._read(first, count, body_bytes, again=False) or self._find(first, first + 1, body_bytes, False)

    def _read(self, seq: int, count: int, body_bytes: int, again: bool) -> list[Entry]:
        return self._store.log.read_run(seq, count, body_bytes, _EXPIRES_ANY, False, again)

    def _find(self, seq: int, end: int, body_bytes: int, again: bool) -> list[Entry]:
        """Read messages where there is damage; those before the first one that can be read are lost.

        Args:
            seq: Number of the first one.
            end: Number after the last one; all between are ready.
            body_bytes: Stop when the bodies have reached this many bytes.
            again: Which reader is used.
        """
        while seq < end:
            readable = self._store.log.next_seq(seq, end, again)
            if readable > seq:
                lose(self._store, seq, readable)
            # The reader is now positioned at it.
            entries = self._read(readable, end - readable, body_bytes, again) if readable < end else []
            if entries or readable == end:
                return entries
            lose(self._store, readable, readable + 1)
            seq = readable + 1
        return []

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Make taken messages ready again."""
        store, body_bytes = self._store, sum([len(message.body) for _, message, _ in entries])
        store.ready_count += len(entries)
        store.ready_bytes += body_bytes
        store.taken_count -= len(entries)
        store.taken_bytes -= body_bytes
        self._taken.difference_update([entry[0] for entry in entries])

    def read(self, seq: int) -> Message | None:
        """Return a ready message without taking it."""
        # The other reader, so that the one of take() continues where it was.
        found = self._read(seq, 1, _ALL_BYTES, again=True)
        return found[0][1] if found else None

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages."""
        found = look(self._store, seq, count, body_bytes)
        seen = [each for each in found.seen if each.seq not in self._taken]
        return Look(seen, found.end, found.is_over, found.is_complete)

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently."""
        self._taken.difference_update([entry[0] for entry in entries])
        self._store.settle(sorted(entries, key=_number), kind)

    def refuse(self, count: int, body_bytes: int) -> None:
        """Log messages that were not stored."""
        self._store.note(EventKind.REFUSED, count, body_bytes)

    def purge(self) -> int:
        """Remove all ready messages. Those that are taken, or whose copies are not on disk yet, stay."""
        store = self._store
        ranges: list[tuple[int, int]] = []
        staying = store.leaving.numbers()
        for seq in self._taken:
            staying.add(seq, seq + 1)
        for first, end in store.log.dead.live_runs(store.log.dead.floor, store.next_seq):
            at = first
            while at < end:
                beyond = staying.end_at(at)
                if beyond == at:
                    beyond = staying.start_after(at, end)
                    ranges.append((at, beyond))
                at = beyond
        return purge_numbers(store, ranges)

    def scan(self, seq: int, end: int, count: int) -> tuple[list[Entry], int]:
        """Read recovered messages in the order of their numbers."""
        first, stop = next(self._store.log.dead.live_runs(seq, end), (end, end))
        if first == end:
            return [], end
        stop = min(stop, first + count)
        entries = self._read(first, stop - first, _SCAN_BYTES, again=True)
        entries = entries or self._find(first, stop, _SCAN_BYTES, again=True)
        return entries, entries[-1][0] + 1 if entries else stop


def _number(entry: Entry) -> int:
    return entry[0]
