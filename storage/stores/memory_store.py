"""A message store in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, Level, Look, Seen
from leveret.storage.message import Message, StoredMessage

#: Maximum number of messages dropped by one call.
_DROP_MAX: Final = 4096

#: Maximum number of notes; beyond that older ones become coarser.
_NOTES_MAX: Final = 512


class TailTimes:
    """Notes of the number that the next message gets, each with the time at which it was the next one.

    A message has arrived after the last note whose number is not above its own, and before the following note.

    Attributes:
        numbers: The noted numbers, ascending.
        times: When they were noted, in microseconds since 1970.
    """

    __slots__ = ("numbers", "times")

    def __init__(self) -> None:
        self.numbers = array("Q")
        self.times = array("q")

    def note(self, next_seq: int, now: int, last: int, is_empty: bool) -> None:
        """Add a note.

        Args:
            next_seq: The number of the next message.
            now: Microseconds since 1970.
            last: When a note was added before, or would have been: what is here without a note is not older.
            is_empty: Whether no message is left, so that earlier notes are useless.
        """
        if is_empty:
            del self.numbers[:], self.times[:]
        elif not self.numbers:
            self.numbers.append(0)
            self.times.append(last)
        if self.numbers and self.numbers[-1] == next_seq:
            # Nothing has arrived in between.
            self.times[-1] = now
            return
        self.numbers.append(next_seq)
        self.times.append(now)
        if len(self.numbers) > _NOTES_MAX:
            # Remove every second note of the older half, so that long waits are less exact.
            del self.numbers[1 : _NOTES_MAX // 2 : 2], self.times[1 : _NOTES_MAX // 2 : 2]

    def arrival(self, seq: int) -> int:
        """Return the time after which a message has arrived, in microseconds since 1970; 0 if it is unknown."""
        at = bisect_right(self.numbers, seq)
        return self.times[at - 1] if at else 0


def _newest_first(entry: Entry) -> int:
    return -entry[0]


class MemoryStore:
    """A deque of ready messages. Implements Level.

    Messages in the deque have no explicit sequence number: it is that of the head plus their position. Only requeued
    messages have one; they are older than all messages in the deque.

    Attributes:
        taken_count: Number of taken messages.
        times: When messages have arrived, about.
    """

    __slots__ = ("_fresh", "_largest", "_head_seq", "_requeued", "ready_bytes", "ready_count", "taken_count", "times")

    def __init__(self) -> None:
        self.ready_count = 0
        self.ready_bytes = 0
        self.taken_count = 0
        self._fresh: deque[Message] = deque()
        #: Length of the longest body ever appended.
        self._largest = 0
        #: Sequence number of the head of the deque.
        self._head_seq = 1
        #: Oldest last, so that taking the oldest is a pop.
        self._requeued: list[Entry] = []
        self.times = TailTimes()

    @property
    def next_seq(self) -> int:
        """The number of the next message."""
        return self._head_seq + len(self._fresh)

    def ordered_levels(self) -> list[tuple[int, Level]]:
        """Return the store itself."""
        return [(0, self)]

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return level 0 and the number of a message."""
        return 0, entry[0]

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at ready messages without taking them."""
        seen: list[Seen] = []
        for entry in self._entries_from(seq, count):
            if body_bytes <= 0:
                break
            seen.append(Seen(entry[0], entry[1], True, entry[2], self.arrival(entry)))
            body_bytes -= len(entry[1].body)
        is_over = not seen or seen[-1].seq + 1 == self.next_seq
        end = max(seq, self.next_seq) if is_over else seen[-1].seq + 1
        return Look(seen, end, is_over, not self.taken_count)

    def is_ready(self, seq: int) -> bool:
        """Return whether a message is ready."""
        return [entry[0] for entry in self._entries_from(seq, 1)] == [seq]

    def _entries_from(self, seq: int, count: int) -> list[Entry]:
        """Return at most `count` ready messages from a number on, in order."""
        requeued = self._requeued
        # The oldest is the last one.
        high = bisect_right(requeued, -seq, key=_newest_first)
        entries = requeued[max(0, high - count) : high][::-1]
        first = max(seq, self._head_seq)
        end = min(self.next_seq, first + count - len(entries))
        return entries + [(number, self._fresh[number - self._head_seq], False) for number in range(first, end)]

    def oldest_ready(self) -> int:
        """Return when the message at the head arrived, about."""
        head = self._requeued[-1][0] if self._requeued else self._head_seq
        return self.times.arrival(head) if self.ready_count else 0

    def oldest_taken(self) -> int:
        """Return 0: those who hold taken messages know which ones are."""
        return 0

    def arrival(self, entry: Entry) -> int:
        """Return when a message arrived, about."""
        message = entry[1]
        return message.arrived_at if isinstance(message, StoredMessage) else self.times.arrival(entry[0])

    def note_time(self, now: int, last: int) -> None:
        """Note the time for the messages that arrive from now on."""
        self.times.note(self.next_seq, now, last, not self.ready_count and not self.taken_count)

    def pick(self, level: int, seen: Sequence[Seen]) -> list[Entry]:
        """Take certain ready messages; the others keep their order."""
        entries: list[Entry] = [(each.seq, each.message, each.redelivered) for each in seen]
        last = entries[-1][0]
        requeued, fresh = self._requeued, self._fresh
        if last >= self._head_seq:
            # Those in front of it get explicit numbers. They are the newest of those that have one.
            passed: list[Entry] = [(seq, fresh.popleft(), False) for seq in range(self._head_seq, last + 1)]
            passed.reverse()
            requeued[:0] = passed
            self._head_seq = last + 1
        low = bisect_left(requeued, -last, key=_newest_first)
        high = bisect_right(requeued, -entries[0][0], key=_newest_first)
        picked = {entry[0] for entry in entries}
        requeued[low:high] = [entry for entry in requeued[low:high] if entry[0] not in picked]
        self.ready_count -= len(entries)
        self.ready_bytes -= sum([len(entry[1].body) for entry in entries])
        self.taken_count += len(entries)
        return entries

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages at the tail."""
        self._fresh.extend(messages)
        largest = len(messages[0].body) if longest is None else longest
        if largest > self._largest:
            self._largest = largest
        self.ready_count += len(messages)
        self.ready_bytes += body_bytes

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        entries: list[Entry] = []
        taken_bytes = 0
        requeued = self._requeued
        while requeued and len(entries) < count and taken_bytes < body_bytes:
            entry = requeued.pop()
            entries.append(entry)
            taken_bytes += len(entry[1].body)
        if count > len(entries):
            taken_bytes += self._take_fresh(entries, count - len(entries), body_bytes - taken_bytes)
        self.ready_count -= len(entries)
        self.ready_bytes -= taken_bytes
        self.taken_count += len(entries)
        return entries, taken_bytes

    def _take_fresh(self, entries: list[Entry], count: int, body_bytes: int) -> int:
        """Take from the head of the deque; return the body bytes taken."""
        fresh = self._fresh
        count = min(count, len(fresh))
        seq = self._head_seq
        if count == 1 and body_bytes > 0:
            message = fresh.popleft()
            entries.append((seq, message, False))
            self._head_seq = seq + 1
            return len(message.body)
        if count * self._largest <= body_bytes:
            # The byte limit cannot be reached.
            pop = fresh.popleft
            taken = [(number, pop(), False) for number in range(seq, seq + count)]
            self._head_seq = seq + count
            entries += taken
            return sum([len(entry[1].body) for entry in taken])
        taken_bytes = 0
        while count and taken_bytes < body_bytes:
            message = fresh.popleft()
            entries.append((seq, message, False))
            seq += 1
            count -= 1
            taken_bytes += len(message.body)
        self._head_seq = seq
        return taken_bytes

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take expired messages from the head."""
        entries: list[Entry] = []
        requeued, fresh = self._requeued, self._fresh
        while requeued and len(entries) < count and 0 < requeued[-1][1].expires_at <= now:
            entries.append(requeued.pop())
        seq = self._head_seq
        while not requeued and fresh and len(entries) < count and 0 < fresh[0].expires_at <= now:
            entries.append((seq, fresh.popleft(), False))
            seq += 1
        self._head_seq = seq
        self.ready_count -= len(entries)
        self.taken_count += len(entries)
        self.ready_bytes -= sum([len(entry[1].body) for entry in entries])
        return entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Remove messages from the head permanently."""
        entries, dropped_bytes = self.take(min(count, _DROP_MAX), body_bytes)
        self.settle(entries, kind)
        return len(entries), dropped_bytes

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Remove expired messages from the head permanently."""
        bytes_before = self.ready_bytes
        entries = self.take_expired(now, min(count, _DROP_MAX))
        self.settle(entries, EventKind.EXPIRED)
        return len(entries), bytes_before - self.ready_bytes

    def peek(self) -> Message | None:
        """Return the message at the head without taking it."""
        if self._requeued:
            return self._requeued[-1][1]
        return self._fresh[0] if self._fresh else None

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions, marked as redelivered."""
        requeued = self._requeued
        back: list[Entry] = [(seq, message, True) for seq, message, _ in entries]
        if len(back) == 1:
            insort(requeued, back[0], key=_newest_first)
        else:
            back.sort(key=_newest_first)
            is_oldest = not requeued or back[0][0] < requeued[-1][0]
            requeued += back
            if not is_oldest:
                # Both halves are sorted, and sort() merges them in linear time.
                requeued.sort(key=_newest_first)
        self.ready_count += len(back)
        self.taken_count -= len(back)
        self.ready_bytes += sum(len(message.body) for _, message, _ in back)

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently."""
        self.taken_count -= len(entries)

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Do nothing: there is no event log."""

    def hand_over(self) -> tuple[int, Sequence[Message], Sequence[Entry]]:
        """Return the contents for a store that replaces this one.

        Returns:
            The number of the first message never taken, the messages from there on, and the requeued ones.
        """
        return self._head_seq, self._fresh, self._requeued

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        purged = self.ready_count
        self._head_seq += len(self._fresh)
        self._fresh.clear()
        self._requeued.clear()
        self.ready_count = self.ready_bytes = 0
        return purged

    def close(self) -> None:
        """Discard all contents."""
        self.purge()
