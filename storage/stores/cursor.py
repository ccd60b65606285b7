"""The head of a store: takes, drops and settles messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from leveret.storage.event_format import NEVER_STORED, REDELIVERED_ONCE, EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import Stream
from leveret.storage.interface import Entry, mark_returned
from leveret.storage.message import Message
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import StorePlace
from leveret.storage.seq_ranges import SeqRanges
from leveret.storage.stores.ram_messages import RamMessages
from leveret.storage.stores.settlement import Leaving, SettledRun, lives_on, settled_runs
from leveret.storage.stores.state import StoreState
from leveret.storage.stores.unwritten import Unwritten

_LOG: Final = logging.getLogger("leveret.storage")
_ALL_BYTES: Final = 1 << 62
#: Maximum number of records that one call visits to drop messages.
_DROP_STEPS: Final = 1024
#: Number of visited records that a completely dropped segment counts for.
_SEGMENT_STEPS: Final = 16


class StoreCursor:
    """The read side of a SegmentStore: which messages are ready, where they are, and how they are settled.

    Args:
        place: Paths and shared services of the store.
        events: The event log.
        durable: Whether the queue is durable.
        manifest: Manifest of the store; None for a new one.
        state: State from recovery.
        persists_transient: Transient messages survive a restart too, as in quorum queues.

    Attributes:
        ready_count: Number of ready messages.
        ready_bytes: Their body bytes.
        next_seq: Sequence number of the next message.
        taken_count: Number of taken messages.
        taken_bytes: Their body bytes.
        leaving: Moved messages that are not settled on disk yet.
        lost_count: Number of ready messages that could not be read.
        persistent_count: Number of ready and taken messages that survive a restart.
        persistent_bytes: Their body bytes.
        log: Its messages on disk.
        ram: Its messages in memory.
    """

    __slots__ = (
        "_cursor",
        "_durable",
        "_events",
        "_persists_transient",
        "_live_until",
        "_place",
        "_redelivered_below",
        "_requeued",
        "_unwritten",
        "_used",
        "leaving",
        "log",
        "lost_count",
        "next_seq",
        "persistent_bytes",
        "persistent_count",
        "ram",
        "ready_bytes",
        "ready_count",
        "taken_bytes",
        "taken_count",
    )

    def __init__(
        self,
        place: StorePlace,
        events: EventLog,
        durable: bool,
        manifest: Manifest | None,
        state: StoreState,
        persists_transient: bool,
    ) -> None:
        self._place = place
        self._events = events
        self._durable = durable
        self._persists_transient = durable and persists_transient
        self._used = False
        self.log = MessageLog(
            place,
            durable,
            manifest or Manifest(place.files, place.directory),
            state.segments,
            state.dead,
            persists_transient,
        )
        #: The first message never taken. None from there to _live_until is dead.
        self._cursor = self._live_until = state.dead.floor
        self._redelivered_below = state.redelivered_below
        self.ram = RamMessages(state.next_seq)
        self._unwritten = Unwritten()
        self._requeued = SeqRanges()
        self.next_seq = state.next_seq
        self.ready_count, self.ready_bytes = state.count, state.body_bytes
        self.taken_count = self.taken_bytes = 0
        self.leaving = Leaving()
        self.lost_count = 0
        self.persistent_count, self.persistent_bytes = state.count, state.body_bytes

    @property
    def key(self) -> tuple[int, int]:
        """Queue number and priority, which identify the store in events."""
        return self._place.qid, self._place.priority

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        entries: list[Entry] = []
        left = body_bytes
        while self.ready_count and len(entries) < count and left > 0:
            run, run_bytes = self._take_run(count - len(entries), left, 0)
            left -= run_bytes
            entries = entries + run if entries else run
        return mark_returned(entries) if self._persists_transient else entries, body_bytes - left

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take expired messages from the head."""
        entries: list[Entry] = []
        while len(entries) < count:
            head = self.peek()
            if head is None or not 0 < head.expires_at <= now:
                break
            entries += self._take_run(count - len(entries), _ALL_BYTES, now)[0]
        return mark_returned(entries) if self._persists_transient else entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Remove messages from the head permanently without reading them; a limited number per call.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies dropped have reached this many bytes.
            kind: The reason.
        Returns:
            The number of messages dropped and the sum of their body lengths.
        """
        return self._drop(count, body_bytes, kind, 0)

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Remove expired messages from the head permanently; see drop().

        Args:
            now: Microseconds since 1970.
            count: Maximum number of messages, at least 1.
        """
        return self._drop(count, _ALL_BYTES, EventKind.EXPIRED, now)

    def peek(self) -> Message | None:
        """Return the message at the head without taking it."""
        while self.ready_count:
            seq, end = self._head()
            if seq == self.ram.first_seq and not self._requeued:
                return self.ram.window[0]
            entries, _ = self._read(seq, 1, _ALL_BYTES, 0)
            if entries:
                return entries[0][1]
            self._lose(seq, end)
        return None

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently.

        Moved messages on disk are `leaving` until forget_left().

        Args:
            entries: Entries in any order; fastest in order of sequence number.
            kind: The reason, for the event log.
            flags: DEAD_LETTERED, or 0.
        """
        if not entries:
            return
        leave = lives_on(kind, flags)
        unwritten = self._unwritten.first_seq(self.next_seq)
        runs = settled_runs(entries, self._place.clock(), self.ram, self._durable, self._persists_transient, unwritten)
        for run in runs:
            self._count_out(run)
            if leave and run.durable and run.stored:
                self.leaving.add(run, kind, flags)
            else:
                self._bury(run, kind, flags, entries)
        self.taken_count -= len(entries)
        if not self.taken_count:
            if not self.ready_count:
                self._note_empty()
            if not self.ram.window:
                self.ram.forget_arrivals()
        self._note_dirty()

    def forget_left(self, runs: int) -> None:
        """Settle moved messages on disk after their copies have been synced.

        Args:
            runs: Number of oldest runs; a closed store has none.
        """
        leaving = self.leaving
        for _ in range(min(runs, len(leaving))):
            run, kind, flags = leaving.pop()
            self._bury(run, kind, flags, ())
            self._note_dirty()

    # --- internal -----------------------------------------------------------------------------------------------------

    def _drop(self, count: int, body_bytes: int, kind: EventKind, expired_at: int) -> tuple[int, int]:
        dropped, left, steps = 0, body_bytes, _DROP_STEPS
        while self.ready_count and dropped < count and left > 0 and steps > 0:
            head = self.peek() if expired_at else None
            if head is not None and not 0 < head.expires_at <= expired_at:
                break
            run, run_bytes, cost = self._drop_run(count - dropped, steps, left, kind, expired_at)
            dropped, left, steps = dropped + run, left - run_bytes, steps - cost
        return dropped, body_bytes - left

    def _drop_run(
        self, count: int, steps: int, body_bytes: int, kind: EventKind, expired_at: int
    ) -> tuple[int, int, int]:
        """Drop messages with consecutive numbers.

        Returns:
            Their number, their bytes, and the approximate number of records visited.
        """
        seq, end = self._head()
        again = bool(self._requeued)
        if not again:
            end = min(end, self.ram.first_seq)
        end = self.ram.next_kept(seq, end)
        if seq == end:
            # It is in memory.
            entries, taken_bytes = self._take_run(min(count, steps), body_bytes, expired_at)
            self.settle(entries, kind)
            return len(entries), taken_bytes, 1 + len(entries)
        redelivered = again or seq < self._redelivered_below
        if redelivered and not again:
            end = min(end, self._redelivered_below)
        self._used = True
        found = self.log.measure_run(seq, min(count, end - seq), steps, body_bytes, expired_at, again)
        if found is None:
            self._lose(seq, end)
            return 0, 0, 1
        self._leave(seq + found.length, found.length, found.body_bytes)
        wait = self._place.clock() - found.arrived
        durable = found.stream is Stream.DURABLE
        run = SettledRun(seq, seq + found.length, durable, True, redelivered, wait, found.body_bytes)
        self.taken_bytes += found.body_bytes
        self._count_out(run)
        self._bury(run, kind, 0, ())
        if not self.ready_count and not self.taken_count:
            self._note_empty()
        self._note_dirty()
        return found.length, found.body_bytes, min(_SEGMENT_STEPS, found.length) if found.whole else found.length

    def _leave(self, end: int, count: int, body_bytes: int) -> None:
        """Count messages at the head as no longer ready."""
        if self._requeued:
            self._requeued.drop_below(end)
        else:
            self._cursor = end
        self.ready_count -= count
        # After losses ready_bytes is an estimate until no message is left.
        self.ready_bytes = max(0, self.ready_bytes - body_bytes) if self.ready_count else 0

    def _take_run(self, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Take messages with consecutive numbers; return them and their bytes.

        Empty if the messages at the head are lost.
        """
        self._used = True
        ram = self.ram
        seq, end = self._head()
        if seq == ram.first_seq and not self._requeued:
            entries, taken_bytes = ram.take_expired(expired_at, count) if expired_at else ram.take(count, body_bytes)
        else:
            entries, taken_bytes = self._read(seq, min(count, end - seq), body_bytes, expired_at)
            ram.drop_kept(entries)
        if not entries:
            self._lose(seq, end)
            return entries, 0
        self._leave(entries[-1][0] + 1, len(entries), taken_bytes)
        self.taken_count += len(entries)
        self.taken_bytes += taken_bytes
        return entries, taken_bytes

    def _head(self) -> tuple[int, int]:
        """Return the range of ready messages at the head as (first, end). There must be one."""
        if self._requeued:
            return self._requeued.first()
        if self._cursor == self.ram.first_seq:
            # No message in the window is dead.
            return self._cursor, self.next_seq
        if self._cursor >= self._live_until:
            self._cursor, self._live_until = next(self.log.dead.live_runs(self._cursor, self.next_seq))
        return self._cursor, self._live_until

    def _read(self, seq: int, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Read messages from the head, which is not in the window; return them and their bytes. Empty if lost."""
        again = bool(self._requeued)
        redelivered = again or seq < self._redelivered_below
        if not again:
            end = self._redelivered_below if redelivered else self.next_seq
            count = min(count, min(end, self.ram.first_seq) - seq)
        entries, read = self.ram.kept_run(seq, count, body_bytes, expired_at, redelivered)
        if not entries:
            entries = self.log.read_run(seq, count, body_bytes, expired_at, redelivered, again)
            read = sum([len(entry[1].body) for entry in entries])
        return entries, read

    def _lose(self, first: int, end: int) -> None:
        """Record unreadable messages at the head as lost.

        Args:
            first: Number of the first one.
            end: End of its ready range.
        """
        if not self._requeued:
            end = min(end, self.ram.first_seq)
        end = self.log.next_seq(first, self.ram.next_kept(first, end), bool(self._requeued))
        count = end - first
        if not count:
            # The message is readable, but a record before it was damaged; the reader is now positioned at it.
            return
        self.ready_count -= count
        body_bytes = min(self.ready_bytes, count * self.log.mean_body(first)) if self.ready_count else self.ready_bytes
        self.ready_bytes -= body_bytes
        self.lost_count += count
        where = self._place.directory
        _LOG.error("%s: %d messages from number %d on cannot be read; they are lost", where, count, first)
        self._add_event(first, count, EventKind.LOST, 0, body_bytes)
        self.log.bury_all([(first, end)])
        self._count_persistent()
        if not self.ready_count and not self.taken_count:
            self._note_empty()
        if self._requeued:
            self._requeued.drop_below(end)
        else:
            self._cursor = end
        self._note_dirty()

    def _count_out(self, run: SettledRun) -> None:
        """Subtract a settled run from the counts of taken messages."""
        self.taken_bytes -= run.body_bytes
        if run.durable:
            self.persistent_count -= run.end - run.first
            self.persistent_bytes = max(0, self.persistent_bytes - run.body_bytes)

    def _bury(self, run: SettledRun, kind: EventKind, flags: int, entries: Sequence[Entry]) -> None:
        """Mark a run dead and log the reason."""
        first, count, body_bytes = run.first, run.end - run.first, run.body_bytes
        if run.redelivered:
            flags |= REDELIVERED_ONCE
        if run.stored:
            self.log.bury(first, run.end, Stream.DURABLE if run.durable else Stream.SPILL, body_bytes, entries)
        else:
            flags |= NEVER_STORED
            self._unwritten.has_gaps = True
            self.log.dead.add(first, count)
        self._add_event(first, count, kind, run.wait // 1000, body_bytes, flags)

    def _note_empty(self) -> None:
        """Reset the byte counts of an empty store. Estimates after losses may have left a remainder."""
        self.taken_bytes = self.persistent_count = self.persistent_bytes = 0

    def _count_persistent(self) -> None:
        """Recount persistent messages after messages were removed without being read."""
        unwritten = self._unwritten.arrivals(self.log.dead)
        self.persistent_count = max(0, self.log.persistent_count - self.leaving.count) + len(unwritten)
        everything = self.ready_count + self.taken_count
        # Single lengths are unknown, so bytes are distributed in proportion to the counts.
        self.persistent_bytes = (self.ready_bytes + self.taken_bytes) * self.persistent_count // max(1, everything)

    def _add_event(self, seq: int, length: int, kind: EventKind, wait_ms: int, body_bytes: int, flags: int = 0) -> None:
        self._events.add(self._place.qid, self._place.priority, seq, length, kind, wait_ms, flags, body_bytes)

    def _longest_wait(self) -> int:
        """Return the approximate wait of the oldest message in milliseconds."""
        oldest = self.log.oldest or self.ram.oldest_arrival()
        return (self._place.clock() - oldest) // 1000 if oldest else 0

    def _note_dirty(self) -> None:
        """Register the store for a flush or sync."""
        raise NotImplementedError
