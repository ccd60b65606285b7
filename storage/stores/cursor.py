"""The head of a store: which messages are ready, and in which order they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from leveret.storage.segments.dead_set import DeadSet
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
