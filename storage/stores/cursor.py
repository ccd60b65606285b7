"""The head of a store: taking messages, dropping them, and settling what was taken."""

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
from leveret.storage.stores.leaving import Leaving, lives_on
from leveret.storage.stores.ram_messages import RamMessages
from leveret.storage.stores.settlement import SettledRun, settled_runs
from leveret.storage.stores.state import StoreState
from leveret.storage.stores.unwritten import Unwritten

_LOG: Final = logging.getLogger("leveret.storage")
_ALL_BYTES: Final = 1 << 62
#: Records that one call that drops messages visits at most.
_DROP_STEPS: Final = 1024
#: What a segment costs that is dropped as a whole.
_SEGMENT_STEPS: Final = 16


class StoreCursor:
    """Which messages of a store are ready, where they are, and how they leave. SegmentStore is the whole of it.

    Args:
        place: Where the files are.
        events: Told what becomes of messages.
        durable: Whether the queue is.
        manifest: The store's.
        state: What recovery found.
        persists_transient: Transient messages outlive the process too, as in quorum queues.

    Attributes:
        ready_count: Ready messages.
        ready_bytes: Their body bytes.
        next_seq: Number of the next message.
        taken_count: Messages taken and neither settled nor requeued.
        taken_bytes: Their body bytes.
        leaving: Settled messages that live on elsewhere and are not to be forgotten on disk yet.
        lost_count: Ready messages that could not be read any more.
        persistent_count: Ready and taken messages that outlive the process.
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
        #: The first message that has never been taken. From there to _live_until none is dead.
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
        """Number of its queue, and its priority: what its events name."""
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
        """Take messages from the head as long as they have expired."""
        entries: list[Entry] = []
        while len(entries) < count:
            head = self.peek()
            if head is None or not 0 < head.expires_at <= now:
                break
            entries += self._take_run(count - len(entries), _ALL_BYTES, now)[0]
        return mark_returned(entries) if self._persists_transient else entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Forget messages at the head for good without reading them; not more than one turn has time for.

        Args:
            count: At most this many, 1 or more.
            body_bytes: No further one once the dropped bodies have reached this many bytes.
            kind: Why.
        Returns:
            How many they were, and the sum of their body lengths.
        """
        return self._drop(count, body_bytes, kind, 0)

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Forget messages at the head for good as long as they have expired; see drop().

        Args:
            now: Microseconds since 1970.
            count: At most this many, 1 or more.
        """
        return self._drop(count, _ALL_BYTES, EventKind.EXPIRED, now)

    def peek(self) -> Message | None:
        """The message at the head, without taking it."""
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
        """Forget taken messages for good.

        Those that are on disk and live on elsewhere are `leaving` until forget_left().

        Args:
            entries: In any order, best in that of their numbers.
            kind: Why, for the event log.
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
        """Forget messages on disk that have left: their copies are safe.

        Args:
            runs: How many of the oldest runs of them; a store that was closed has none left.
        """
        leaving = self.leaving
        for _ in range(min(runs, len(leaving))):
            run, kind, flags = leaving.pop()
            self._bury(run, kind, flags, ())
            self._note_dirty()

    # --- inside -------------------------------------------------------------------------------------------------------

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
        """Drop messages whose numbers follow each other.

        Returns:
            How many, their bytes, and what that has cost: the number of records that were looked at, about.
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
        """Note that messages at the head are not ready any more."""
        if self._requeued:
            self._requeued.drop_below(end)
        else:
            self._cursor = end
        self.ready_count -= count
        # Where messages were lost, the bytes of the others are known about only, until none is left.
        self.ready_bytes = max(0, self.ready_bytes - body_bytes) if self.ready_count else 0

    def _take_run(self, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Take messages whose numbers follow each other, and count their bytes.

        There are none if those at the head turn out to be lost.
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
        """The ready messages at the head, as (first, end) of a range; there must be one."""
        if self._requeued:
            return self._requeued.first()
        if self._cursor == self.ram.first_seq:
            # None of those in the window is dead.
            return self._cursor, self.next_seq
        if self._cursor >= self._live_until:
            self._cursor, self._live_until = next(self.log.dead.live_runs(self._cursor, self.next_seq))
        return self._cursor, self._live_until

    def _read(self, seq: int, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Read from the head, which is not in the window, and count the bytes; none if the message is lost."""
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
        """Give up the messages at the head that cannot be read.

        Args:
            first: The first of them.
            end: The end of the ready range it is in.
        """
        if not self._requeued:
            end = min(end, self.ram.first_seq)
        end = self.log.next_seq(first, self.ram.next_kept(first, end), bool(self._requeued))
        count = end - first
        if not count:
            # It is there, but the way to it was damaged; now the reader stands before it.
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
        """A run of taken messages is not in the queue any more."""
        self.taken_bytes -= run.body_bytes
        if run.durable:
            self.persistent_count -= run.end - run.first
            self.persistent_bytes = max(0, self.persistent_bytes - run.body_bytes)

    def _bury(self, run: SettledRun, kind: EventKind, flags: int, entries: Sequence[Entry]) -> None:
        """Mark a run dead and note why."""
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
        """Nothing lives any more. Bytes are shared out by number where messages were lost, so that some may be left."""
        self.taken_bytes = self.persistent_count = self.persistent_bytes = 0

    def _count_persistent(self) -> None:
        """Count again what outlives the process, after more has gone than was looked at."""
        unwritten = self._unwritten.arrivals(self.log.dead)
        self.persistent_count = max(0, self.log.persistent_count - self.leaving.count) + len(unwritten)
        everything = self.ready_count + self.taken_count
        # Bytes are not known message by message; they are shared out by number where there are others too.
        self.persistent_bytes = (self.ready_bytes + self.taken_bytes) * self.persistent_count // max(1, everything)

    def _add_event(self, seq: int, length: int, kind: EventKind, wait_ms: int, body_bytes: int, flags: int = 0) -> None:
        self._events.add(self._place.qid, self._place.priority, seq, length, kind, wait_ms, flags, body_bytes)

    def _longest_wait(self) -> int:
        """Milliseconds that the oldest message has waited, about."""
        oldest = self.log.oldest or self.ram.oldest_arrival()
        return (self._place.clock() - oldest) // 1000 if oldest else 0

    def _note_dirty(self) -> None:
        """There is something to flush or to sync."""
        raise NotImplementedError
