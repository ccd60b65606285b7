"""A message store in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import Final

from leveret.storage.event_details import EventDetails
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.tail_times import TailTimes

#: Maximum number of messages dropped by one call.
_DROP_MAX: Final = 4096


def _newest_first(entry: Entry) -> int:
    return -entry[0]


class MemoryStore:
    """A deque of ready messages. Implements MessageStore.

    Messages in the deque have no explicit sequence number: it is that of the head plus their position. Only requeued
    messages have one; they are older than all messages in the deque.

    Attributes:
        taken_count: Number of taken messages.
        times: When messages have arrived, about.
    """

    __slots__ = ("_fresh", "_largest", "_next_seq", "_requeued", "ready_bytes", "ready_count", "taken_count", "times")

    def __init__(self) -> None:
        self.ready_count = 0
        self.ready_bytes = 0
        self.taken_count = 0
        self._fresh: deque[Message] = deque()
        #: Length of the longest body ever appended.
        self._largest = 0
        #: Sequence number of the head of the deque.
        self._next_seq = 1
        #: Oldest last, so that taking the oldest is a pop.
        self._requeued: list[Entry] = []
        self.times = TailTimes()

    @property
    def head_number(self) -> int:
        """The number of the message at the head, or of the next message if none is ready."""
        return self._requeued[-1][0] if self._requeued else self._next_seq

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return self._next_seq + len(self._fresh)

    def entries_from(self, seq: int, count: int) -> list[Entry]:
        """Return ready messages in order, without taking them.

        Args:
            seq: Lowest number.
            count: Maximum number of messages.
        """
        requeued = self._requeued
        # The oldest is the last one.
        high = bisect_right(requeued, -seq, key=_newest_first)
        entries = requeued[max(0, high - count) : high][::-1]
        first = max(seq, self._next_seq)
        end = min(self.next_number, first + count - len(entries))
        return entries + [(number, self._fresh[number - self._next_seq], False) for number in range(first, end)]

    def pick(self, entries: Sequence[Entry]) -> None:
        """Take certain ready messages; the others keep their order.

        Args:
            entries: Results of entries_from(), in order, at least one; nothing has happened since.
        """
        last = entries[-1][0]
        requeued, fresh = self._requeued, self._fresh
        if last >= self._next_seq:
            # Those in front of it get explicit numbers. They are the newest of those that have one.
            passed: list[Entry] = [(seq, fresh.popleft(), False) for seq in range(self._next_seq, last + 1)]
            passed.reverse()
            requeued[:0] = passed
            self._next_seq = last + 1
        low = bisect_left(requeued, -last, key=_newest_first)
        high = bisect_right(requeued, -entries[0][0], key=_newest_first)
        picked = {entry[0] for entry in entries}
        requeued[low:high] = [entry for entry in requeued[low:high] if entry[0] not in picked]
        self.ready_count -= len(entries)
        self.ready_bytes -= sum([len(entry[1].body) for entry in entries])
        self.taken_count += len(entries)

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
        seq = self._next_seq
        if count == 1 and body_bytes > 0:
            message = fresh.popleft()
            entries.append((seq, message, False))
            self._next_seq = seq + 1
            return len(message.body)
        if count * self._largest <= body_bytes:
            # The byte limit cannot be reached.
            pop = fresh.popleft
            taken = [(number, pop(), False) for number in range(seq, seq + count)]
            self._next_seq = seq + count
            entries += taken
            return sum([len(entry[1].body) for entry in taken])
        taken_bytes = 0
        while count and taken_bytes < body_bytes:
            message = fresh.popleft()
            entries.append((seq, message, False))
            seq += 1
            count -= 1
            taken_bytes += len(message.body)
        self._next_seq = seq
        return taken_bytes

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take expired messages from the head."""
        entries: list[Entry] = []
        requeued, fresh = self._requeued, self._fresh
        while requeued and len(entries) < count and 0 < requeued[-1][1].expires_at <= now:
            entries.append(requeued.pop())
        seq = self._next_seq
        while not requeued and fresh and len(entries) < count and 0 < fresh[0].expires_at <= now:
            entries.append((seq, fresh.popleft(), False))
            seq += 1
        self._next_seq = seq
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
        return self._next_seq, self._fresh, self._requeued

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        purged = self.ready_count
        self._next_seq += len(self._fresh)
        self._fresh.clear()
        self._requeued.clear()
        self.ready_count = self.ready_bytes = 0
        return purged

    def close(self) -> None:
        """Discard all contents."""
        self.purge()
