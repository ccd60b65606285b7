"""Stores that give out messages by number, in any order: for messages that do not leave in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Final, Protocol

from leveret.storage.disk.files import UnreadableFileError
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, Look, Seen
from leveret.storage.message import Message
from leveret.storage.stores.segment_store import SegmentStore

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
            The messages in the order of the numbers, without damaged ones, which are lost; and how many of the numbers
            are dealt with, from the first. None if the system cannot read the first one for now.
        """

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Make taken messages ready again."""

    def read(self, seq: int) -> Message | None:
        """Return a ready message that is written, without taking it; None if it cannot be read."""

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages in the order of their numbers; see Level.look().

        Args:
            seq: Number of the first message.
            count: Maximum number of messages, and of attempts to read some.
            body_bytes: Stop when the bodies have reached this many bytes.
        """

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently."""

    def purge(self) -> int:
        """Remove all ready messages; return their number. Those that are taken stay."""

    def scan(self, seq: int, end: int, count: int) -> tuple[list[Entry], int]:
        """Read ready messages that were recovered at the start, in the order of their numbers.

        Args:
            seq: Where to continue; 0 to begin.
            end: Number after the last one.
            count: Maximum number of messages.
        Returns:
            Messages, without damaged ones, which are lost; and where to continue, `end` after the last. No messages and
            the same number again if the system cannot read them for now.
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
    """

    __slots__ = ("_has_failed", "_store", "_taken")

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        #: Whether the last read has failed, which has been logged.
        self._has_failed = False
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
                if store.log.failure is not None:
                    self._note_failure(numbers[at], store.log.failure)
                    break
                at += 1
                continue
            self._has_failed = False
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

    def _note_failure(self, seq: int, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._store.log_unreadable(seq, error)

    def _read_run(self, numbers: Sequence[int], at: int, body_bytes: int) -> list[Entry]:
        """Read messages from a place in the numbers on, as long as these are consecutive.

        Returns:
            None if the first one is lost or, with a `failure` of the log, cannot be read for now.
        """
        first, count = numbers[at], 1
        while at + count < len(numbers) and numbers[at + count] == first + count:
            count += 1
        return self._read(first, count, body_bytes, again=False) or self._find(first, first + 1, body_bytes, False)

    def _read(self, seq: int, count: int, body_bytes: int, again: bool) -> list[Entry]:
        return self._store.log.read_run(seq, count, body_bytes, _EXPIRES_ANY, False, again)

    def _find(self, seq: int, end: int, body_bytes: int, again: bool) -> list[Entry]:
        """Read messages where there is damage; those before the first one that can be read are lost.

        None is lost or returned, and the log has a `failure`, if the system cannot read them for now.
        """
        while seq < end:
            log = self._store.log
            readable = log.next_seq(seq, end, again)
            if readable > seq:
                if log.failure is not None:
                    return []
                self._store.lose(seq, readable)
            # The reader is now positioned at it.
            entries = self._read(readable, end - readable, body_bytes, again) if readable < end else []
            if entries or readable == end or log.failure is not None:
                return entries
            self._store.lose(readable, readable + 1)
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
        found = self._store.look(seq, count, body_bytes)
        seen = [each for each in found.seen if each.seq not in self._taken]
        return found._replace(seen=seen)

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently."""
        self._taken.difference_update([entry[0] for entry in entries])
        self._store.settle(sorted(entries, key=_number), kind)

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
        return store.purge_numbers(ranges)

    def scan(self, seq: int, end: int, count: int) -> tuple[list[Entry], int]:
        """Read recovered messages in the order of their numbers."""
        first, stop = next(self._store.log.dead.live_runs(seq, end), (end, end))
        if first == end:
            return [], end
        stop = min(stop, first + count)
        entries = self._read(first, stop - first, _SCAN_BYTES, again=True)
        entries = entries or self._find(first, stop, _SCAN_BYTES, again=True)
        if entries:
            self._has_failed = False
            return entries, entries[-1][0] + 1
        failure = self._store.log.failure
        if failure is None:
            return [], stop
        self._note_failure(first, failure)
        return [], first


def scan_all(store: SegmentStore, count: int) -> Iterator[list[Entry]]:
    """Read all messages of a store that were recovered at the start, in the order of their numbers.

    Args:
        store: The store; nothing may take messages from it meanwhile.
        count: Maximum number of messages at a time.
    Raises:
        UnreadableFileError: The system cannot read a file.
    """
    numbered, end, seq = NumberedSegments(store), store.next_seq, 0
    while seq < end:
        before = seq
        entries, seq = numbered.scan(seq, end, count)
        if seq == before:
            where, error = store.place.directory, store.log.failure
            raise UnreadableFileError(f"{where} cannot be read: {error}; repair the disk and start again")
        yield entries


def _number(entry: Entry) -> int:
    return entry[0]
