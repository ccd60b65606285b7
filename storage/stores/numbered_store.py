"""A store that gives out messages by number, in any order: for messages that do not leave in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from leveret.storage.disk.files import UnreadableFileError
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, Look
from leveret.storage.message import Message
from leveret.storage.stores.segment_store import SegmentStore

_EXPIRES_ANY: Final = 0
_ALL_BYTES: Final = 1 << 62
#: Bytes of bodies that one scan() reads, about.
_SCAN_BYTES: Final = 1 << 20


class NumberedStore:
    """The messages of a store by number. Each is *ready* from append() until take(), and *taken* until settle().

    Args:
        store: Nothing else takes messages from it. If it has files it is lazy, so that after a flush no message is in
            memory; then its cursor stays where it is.
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
        """Append messages; on disk they can be read after the next flush.

        Args:
            messages: Messages of one size.
            body_bytes: Sum of their body lengths.
        Returns:
            Number of the first one; the others have the following numbers.
        """
        first = self._store.next_seq
        self._store.append(messages, body_bytes)
        return first

    def is_written(self, seq: int) -> bool:
        """Return whether an appended message can be read, because it is not waiting for the end of the turn."""
        store = self._store
        return not store.has_files or seq < store.ram.first_seq or not store.ram.window

    def take(self, numbers: Sequence[int], body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages. Consecutive numbers are read together.

        Args:
            numbers: Numbers of ready messages that are written, in any order.
            body_bytes: Stop when the bodies taken have reached this many bytes.
        Returns:
            The messages in the order of the numbers, without damaged ones, which are lost; and how many of the numbers
            are dealt with, from the first. None if the system cannot read the first one for now.
        """
        store = self._store
        if not store.has_files:
            return self._take_from_memory(numbers, body_bytes)
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

    def _take_from_memory(self, numbers: Sequence[int], body_bytes: int) -> tuple[list[Entry], int]:
        entries: list[Entry] = []
        for seq in numbers:
            if body_bytes <= 0:
                break
            entries += self._store.pick(0, self._store.look(seq, 1, 1).seen)
            body_bytes -= len(entries[-1][1].body)
        return entries, len(entries)

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
        if not store.has_files:
            store.requeue(entries)
            return
        store.ready_count += len(entries)
        store.ready_bytes += body_bytes
        store.taken_count -= len(entries)
        store.taken_bytes -= body_bytes
        self._taken.difference_update([entry[0] for entry in entries])

    def read(self, seq: int) -> Message | None:
        """Return a ready message that is written, without taking it; None if it cannot be read."""
        if not self._store.has_files:
            return next((each.message for each in self._store.look(seq, 1, 1).seen if each.seq == seq), None)
        # The other reader, so that the one of take() continues where it was.
        found = self._read(seq, 1, _ALL_BYTES, again=True)
        return found[0][1] if found else None

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages in the order of their numbers; see Level.look()."""
        found = self._store.look(seq, count, body_bytes)
        seen = [each for each in found.seen if each.seq not in self._taken]
        return found._replace(seen=seen)

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently."""
        self._taken.difference_update([entry[0] for entry in entries])
        self._store.settle(sorted(entries, key=_number), kind)

    def purge(self) -> int:
        """Remove all ready messages; return their number. Taken ones, and those whose copies are not synced, stay."""
        store = self._store
        if not store.has_files:
            return store.purge()
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
        """Read ready messages that were recovered at the start, in the order of their numbers.

        Args:
            seq: Where to continue; 0 to begin.
            end: Number after the last one.
            count: Maximum number of messages.
        Returns:
            Messages, without damaged ones, which are lost; and where to continue, `end` after the last. No messages and
            the same number again if the system cannot read them for now.
        """
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
    numbered, end, seq = NumberedStore(store), store.next_seq, 0
    while seq < end:
        before = seq
        entries, seq = numbered.scan(seq, end, count)
        if seq == before:
            where, error = store.place.directory, store.log.failure
            raise UnreadableFileError(f"{where} cannot be read: {error}; repair the disk and start again")
        yield entries


def _number(entry: Entry) -> int:
    return entry[0]
