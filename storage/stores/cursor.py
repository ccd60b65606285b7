"""The head of a store: which messages are ready, in which order they are read; looks at messages by their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from leveret.storage.interface import Entry, Look, Seen
from leveret.storage.message import StoredMessage
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.seq_ranges import SeqRanges, runs_of
from leveret.storage.stores.ram_messages import RamMessages


class Cursor:
    """The ready messages of a store: those that were requeued, then all from a position on that are not dead.

    Args:
        ram: Its messages in memory.
        dead: All numbers below the next one without a live message.
        redelivered_below: Messages with lower numbers may have been delivered before a restart.

    Attributes:
        position: The first message never taken.
        requeued: Numbers of the other ready messages, which are lower: they were requeued, or passed over.
        untouched: Those of them that were passed over, because others were taken out behind them.
        aside: Numbers of messages that are not ready for now, because the system cannot read them, and of those of them
            that have never been delivered; None if there are none.
    """

    __slots__ = ("_dead", "_live_until", "_ram", "_redelivered_below", "aside", "position", "requeued", "untouched")

    def __init__(self, ram: RamMessages, dead: DeadSet, redelivered_below: int) -> None:
        self._ram = ram
        self._dead = dead
        #: None from the position to here is dead.
        self.position = self._live_until = dead.floor
        self._redelivered_below = redelivered_below
        self.requeued = SeqRanges()
        self.untouched = SeqRanges()
        self.aside: tuple[SeqRanges, SeqRanges] | None = None

    @property
    def redelivered_below(self) -> int:
        """Messages with lower numbers may have been delivered before."""
        return max(self.position, self._redelivered_below)

    def head(self, next_seq: int) -> tuple[int, int]:
        """Return the range of ready messages at the head as (first, end). There must be one.

        Args:
            next_seq: Sequence number of the store's next message.
        """
        if self.requeued:
            return self.requeued.first()
        if self.position == self._ram.first_seq:
            # No message in the window is dead.
            return self.position, next_seq
        if self.position >= self._live_until:
            self.position, self._live_until = next(self._dead.live_runs(self.position, next_seq))
        return self.position, self._live_until

    def leave(self, end: int) -> None:
        """Remove the messages with numbers below `end` from the range at the head."""
        if self.requeued:
            self.requeued.drop_below(end)
            if self.untouched:
                self.untouched.drop_below(end)
        else:
            self.position = end

    def set_aside(self, first: int, end: int) -> None:
        """Remove the messages at the head, from its first one up to a number, until bring_back()."""
        aside, untouched = self.aside = self.aside or (SeqRanges(), SeqRanges())
        aside.add(first, end)
        if self.requeued:
            for low, high in self.untouched.between(first, end):
                untouched.add(max(first, low), min(end, high))
        else:
            untouched.add(first, end)
        self.leave(end)

    def bring_back(self) -> None:
        """Make the messages that were set aside ready again, in their places."""
        if self.aside is not None:
            for first, end in self.aside[0]:
                self.requeued.add(first, end)
            for first, end in self.aside[1]:
                self.untouched.add(first, end)
            self.aside = None

    def ready_ranges(self, next_seq: int) -> Iterator[tuple[int, int]]:
        """Return the ranges of all ready messages as (first, end)."""
        return chain(self.requeued, self._dead.live_runs(self.position, next_seq))

    def is_ready(self, seq: int) -> bool:
        """Return whether a live message is ready."""
        return seq >= self.position or seq in self.requeued

    def ready_until(self, seq: int, end: int) -> tuple[bool, int]:
        """Return whether a live message is ready, and the end of the numbers after it of which the same holds.

        Args:
            seq: Its number.
            end: The end of the numbers to consider.
        """
        if seq >= self.position:
            return True, end
        beyond = self.requeued.end_at(seq)
        if beyond > seq:
            return True, min(end, beyond)
        return False, min(end, self.position, self.requeued.start_after(seq, end))

    def may_be_redelivered(self, seq: int) -> bool:
        """Return whether a ready message may have been delivered before."""
        return seq < self._redelivered_below or (seq < self.position and seq not in self.untouched)

    def pass_over(self, end: int) -> None:
        """Move the position to a number; the live messages in front of it stay ready.

        Args:
            end: The new position, above the old one.
        """
        ranges = [*self._dead.live_runs(self.position, end)]
        self.requeued.add_above(ranges)
        self.untouched.add_above(ranges)
        self.position = end

    def take_out(self, numbers: Sequence[int]) -> None:
        """Remove ready messages in front of the position, by their ascending numbers."""
        for first, end in runs_of(numbers):
            self.requeued.remove(first, end)
            if self.untouched:
                self.untouched.remove(first, end)

    def clear(self, next_seq: int) -> None:
        """Move to the end: no message is ready."""
        self.requeued.clear()
        self.untouched.clear()
        self.position = self._live_until = next_seq

    def disk_end(self, seq: int, end: int) -> int:
        """Return the end of the messages from the head on that are on disk only; `seq` if there are none.

        Args:
            seq: Number of the first message.
            end: End of the range at the head.
        """
        return self._ram.next_kept(seq, end if self.requeued else min(end, self._ram.first_seq))

    def same_until(self, seq: int, end: int) -> tuple[bool, int]:
        """Return whether messages before the window may have been delivered before, and up to which number."""
        if self.requeued:
            if not self.untouched:
                return True, end
            beyond = self.untouched.end_at(seq)
            if beyond == seq:
                return True, self.untouched.start_after(seq, end)
            end = min(end, beyond)
            if seq < self._redelivered_below:
                return True, min(end, self._redelivered_below)
            return False, end
        end = min(end, self._ram.first_seq)
        if seq < self._redelivered_below:
            return True, min(end, self._redelivered_below)
        return False, end


_ALL: Final = 1 << 62
#: Times that differ by less are not read from disk, in microseconds.
_CLOSE_ENOUGH: Final = 1_000_000
#: Ranges of numbers that are looked at for the oldest taken message; after that the answer is too old rather than late.
_RANGES_MAX: Final = 1000
#: Attempts that a damaged message counts for.
_DAMAGE_COST: Final = 64


class StoreLook:
    """One look at a store.

    Args:
        ram: Its messages in memory.
        log: Its messages on disk; None if it has no files.
        dead: Numbers of its messages that are gone.
        cursor: Which of them are ready.
        leaving: Numbers of moved messages, which are gone for users of the store.
        count: Maximum number of messages, and of attempts to read some.
        body_bytes: Stop when the bodies have reached this many bytes.
    """

    def __init__(
        self,
        ram: RamMessages,
        log: MessageLog | None,
        dead: DeadSet,
        cursor: Cursor,
        leaving: SeqRanges,
        count: int,
        body_bytes: int,
    ) -> None:
        self._ram = ram
        self._log = log
        self._dead = dead
        self._cursor = cursor
        self._leaving = leaving
        self._left = count
        self._bytes_left = body_bytes
        self._seen: list[Seen] = []
        self._is_complete = True
        self._failure: OSError | None = None

    def run(self, seq: int, next_seq: int, is_complete: bool) -> Look:
        """Look at the messages from a number on.

        Args:
            next_seq: Number of the next message.
            is_complete: Whether a message that is neither in memory nor on disk is gone.
        """
        self._is_complete = is_complete
        for first, end in self._dead.live_runs(seq, next_seq):
            at = first
            while at < end:
                if self._left <= 0 or self._bytes_left <= 0:
                    return Look(self._seen, at, False, self._is_complete, self._failure)
                at = self._step(at, end)
        return Look(self._seen, max(seq, next_seq), True, self._is_complete, self._failure)

    def _step(self, at: int, end: int) -> int:
        """Look at some live messages; return the number that follows them."""
        ram, log, cursor = self._ram, self._log, self._cursor
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
        ready, until = cursor.ready_until(at, min(end, ram.first_seq))
        until = min(until, ram.next_kept_after(at, until))
        count = min(self._left + 1, until - at)
        if log is None:
            # They are gone, or whoever has taken them has them.
            return until
        entries = log.read_run(at, count, self._bytes_left, 0, False, True, is_counted=False)
        if entries:
            self._left -= len(entries) - 1
            self._see(entries)
            return entries[-1][0] + 1
        # A damaged message if it is ready; otherwise it may have been taken before it was written.
        self._is_complete = self._is_complete and ready
        if ready:
            self._failure = log.failure or self._failure
            # The reader may have searched for a long time.
            self._left -= _DAMAGE_COST
        return at + 1

    def _see_window(self, at: int, end: int) -> int:
        ram = self._ram
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
        cursor = self._cursor
        for seq, message, _ in entries:
            is_ready = cursor.is_ready(seq)
            redelivered = not is_ready or cursor.may_be_redelivered(seq)
            if message.envelope.delivery_count is not None:
                redelivered = True
            arrived = message.arrived_at if isinstance(message, StoredMessage) else self._ram.arrival(seq)[0]
            self._seen.append(Seen(seq, message, is_ready, redelivered, arrived))
            self._bytes_left -= len(message.body)


def arrival_of(ram: RamMessages, log: MessageLog, seq: int) -> int:
    """Return when a live message arrived; from its record if it is not known well enough."""
    known = ram.arrival(seq)[0]
    if known and ram.is_exact(seq, _CLOSE_ENOUGH):
        return known
    found = [segment for segment in [chain.find(seq) for chain in log.chains] if segment is not None]
    if len(found) == 1:
        segment = found[0]
        if seq == segment.first_seq or segment.max_arrived - segment.min_arrived < _CLOSE_ENOUGH:
            return segment.min_arrived
    measured = log.measure_run(seq, 1, 1, _ALL, 0, True) if found else None
    return known if measured is None else measured.arrived


def first_taken(dead: DeadSet, cursor: Cursor, leaving: SeqRanges) -> int:
    """Return the number of the oldest taken message; 0 if there is none."""
    requeued = cursor.requeued
    looked = 0
    for first, end in dead.live_runs(dead.floor, cursor.position):
        at = first
        while at < end:
            looked += 1
            beyond = max(requeued.end_at(at), leaving.end_at(at))
            if beyond == at or looked > _RANGES_MAX:
                return at
            at = beyond
    return 0
