"""A message store: one level of a queue, in memory and, where it needs them, in files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from leveret.storage.clock import AscendingClock
from leveret.storage.event_format import NEVER_STORED, REDELIVERED_ONCE, EventDetails, EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import DURABLE, SPILL
from leveret.storage.interface import Absence, Entry, Level, Look, Seen, mark_returned
from leveret.storage.message import Message, StoredMessage
from leveret.storage.segments.dead_set import DeadSet
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import Segment, StorePlace
from leveret.storage.seq_ranges import runs_of
from leveret.storage.stores.cursor import Cursor, StoreLook, arrival_of, first_taken
from leveret.storage.stores.ram_messages import Paging, RamMessages
from leveret.storage.stores.settlement import Leaving, SettledRun, lives_on, settled_runs

_LOG: Final = logging.getLogger("leveret.storage")
_ALL_BYTES: Final = 1 << 62
#: Maximum number of records that one call visits to drop messages.
_DROP_STEPS: Final = 1024
#: Number of visited records that a completely dropped segment counts for.
_SEGMENT_STEPS: Final = 16
#: Calls of bring_back(), about one a second, until messages that the system could not read are read again.
_CHECKS_ASIDE: Final = 5


@dataclass(slots=True)
class StoreState:
    """Recovered state of a store; the defaults are those of a new store.

    Attributes:
        segments: Sealed segments of the durable stream, in order.
        dead: All numbers below next_seq without a live message.
        next_seq: Sequence number of the next message.
        redelivered_below: Messages with lower numbers may have been delivered before.
        count: Number of live messages, all of them ready.
        body_bytes: Sum of their body lengths.
        told: Count and body bytes from a clean checkpoint; None if unknown.
        lacks_files: Whether a segment of the manifest has no file.
    """

    segments: list[Segment] = field(default_factory=list)
    dead: DeadSet = field(default_factory=DeadSet)
    next_seq: int = 1
    redelivered_below: int = 0
    count: int = 0
    body_bytes: int = 0
    told: tuple[int, int] | None = None
    lacks_files: bool = False


class SegmentStore:
    """Messages in memory and in segment files; those on disk have no object in memory. Implements Level.

    A new store is in memory until it gets files: at once if the queue is durable, otherwise when it becomes lazy or is
    paged out. Without files it writes no events either.

    flush() writes appended messages that have not been settled before. Persistent messages of a durable queue go to the
    durable stream, all others to the spill stream, which is deleted at the next start.

    In the default mode, the newest messages stay in memory until they are taken or paged out, and transient ones are
    written only when paged out. A lazy store keeps no ready message in memory after it has been written.

    Args:
        clock: That of the data directory.
        durable: Whether the queue is durable.
        state: State from recovery; None for a new store.
        persists_transient: Transient messages survive a restart too, as in quorum queues.

    Attributes:
        has_files: Whether it has files. Only then there are `place`, `log` and `paging`.
        place: Paths and shared services.
        log: Its messages on disk.
        paging: Writes messages to disk, and pages them out and in.
        ram: Its messages in memory: the window of the newest ones, and single older ones.
        dead: All numbers below the next one without a live message; without files it is empty.
        cursor: Which messages are ready.
        leaving: Moved messages that are not settled on disk yet.
        next_seq: Sequence number of the next message.
        ready_count: Number of ready messages.
        ready_bytes: Their body bytes.
        taken_count: Number of taken messages.
        taken_bytes: Their body bytes; without those of messages that were taken before it got files, which it does not
            count.
        persistent_count: Number of ready and taken messages that survive a restart.
        persistent_bytes: Their body bytes.
        lost_count: Number of ready messages that were damaged.
        aside_count: Number of messages that are not ready for now, because the system cannot read them.
        aside_bytes: Their body bytes, about.
        noted: Whether there are events of messages that were never in the store.
    """

    __slots__ = (
        "_add_event", "_checks_left", "_clock", "_dirty", "_durable", "_events", "_oldest_ready", "_oldest_taken",
        "_on_dirty", "_persists_transient", "_used", "aside_bytes", "aside_count", "cursor", "dead", "has_files",
        "leaving", "log", "lost_count", "next_seq", "noted", "paging", "persistent_bytes", "persistent_count", "place",
        "ram", "ready_bytes", "ready_count", "taken_bytes", "taken_count",
    )  # fmt: skip

    def __init__(
        self,
        clock: AscendingClock,
        durable: bool = False,
        state: StoreState | None = None,
        persists_transient: bool = False,
    ) -> None:
        state = state or StoreState()
        self._clock = clock
        self._durable = durable
        self._persists_transient = durable and persists_transient
        self._on_dirty: Callable[[SegmentStore], None] = _ignore
        self.has_files = False
        self.dead = state.dead
        self.ram = RamMessages(state.next_seq)
        self.cursor = Cursor(self.ram, self.dead, state.redelivered_below)
        self.leaving = Leaving()
        self.next_seq = state.next_seq
        self.ready_count, self.ready_bytes = state.count, state.body_bytes
        self.taken_count = self.taken_bytes = 0
        self.persistent_count, self.persistent_bytes = state.count, state.body_bytes
        self.lost_count = self.aside_count = self.aside_bytes = self._checks_left = 0
        self._dirty = self.noted = False
        #: Number and arrival of these messages when last asked.
        self._oldest_ready = self._oldest_taken = 0, 0
        #: Whether messages were read since the last idle().
        self._used = False

    def add_files(
        self,
        place: StorePlace,
        events: EventLog,
        on_dirty: Callable[[SegmentStore], None],
        manifest: Manifest | None = None,
        segments: Sequence[Segment] = (),
    ) -> None:
        """Let the store use files from now on.

        Args:
            place: Where they are.
            events: Gets the events of its messages.
            on_dirty: Called with the store when there is data to flush or sync, once per flush.
            manifest: Manifest of the store; None for a new one.
            segments: Recovered sealed segments of the durable stream, in order.
        """
        self.place = place
        self._events = events
        self._add_event = partial(events.add, place.qid, place.priority)
        self._on_dirty, self._dirty = on_dirty, False
        manifest = manifest or Manifest(place.files, place.directory)
        self.log = MessageLog(place, self._durable, manifest, segments, self.dead, self._persists_transient)
        self.paging = Paging(self.ram, self.log)
        self.has_files = True
        self.taken_bytes = 0
        if self.cursor.position > self.dead.floor:
            # What has been taken is not told from what is gone. Whoever has it returns it by its number.
            for first, end in self.cursor.requeued.gaps(self.dead.floor, self.cursor.position):
                self.dead.add(first, end - first)

    # --- MessageStore -------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages at the tail."""
        arrived = self._clock.now()
        seq, count = self.next_seq, len(messages)
        self.ram.append(seq, messages, arrived, body_bytes, longest)
        self.next_seq = seq + count
        self.ready_count += count
        self.ready_bytes += body_bytes
        if not self.has_files:
            return
        paging = self.paging
        if self._durable and (self._persists_transient or messages[0].envelope.persistent):
            paging.append(seq, messages, arrived, body_bytes)
            self.persistent_count += count
            self.persistent_bytes += body_bytes
        else:
            paging.may_spill = True
            if not paging.lazy:
                return
            paging.appended_bytes += body_bytes
        self._note_dirty()

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take messages from the head."""
        ram, cursor = self.ram, self.cursor
        if (
            ram.window
            and cursor.position == ram.first_seq
            and not cursor.requeued
            and body_bytes > 0
            and not self._persists_transient
        ):
            # As usual: all ready messages are in the window.
            self._used = True
            entries, taken_bytes = ram.take(count, body_bytes)
            cursor.position = ram.first_seq
            self._count_taken(entries, taken_bytes)
            return entries, taken_bytes
        entries = []
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

    def drop(
        self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN, expired_at: int = 0
    ) -> tuple[int, int]:
        """Remove messages from the head permanently without reading them; a limited number per call.

        Args:
            count: Maximum number of messages, at least 1.
            body_bytes: Stop when the bodies dropped have reached this many bytes.
            expired_at: Only messages that expire by this time; 0 for all.
        Returns:
            The number of messages dropped and the sum of their body lengths.
        """
        dropped, left, steps = 0, body_bytes, _DROP_STEPS
        while self.ready_count and dropped < count and left > 0 and steps > 0:
            head = self.peek() if expired_at else None
            if head is not None and not 0 < head.expires_at <= expired_at:
                break
            run, run_bytes, cost = self._drop_run(count - dropped, steps, left, kind, expired_at)
            dropped, left, steps = dropped + run, left - run_bytes, steps - cost
        return dropped, body_bytes - left

    def peek(self) -> Message | None:
        """Return the message at the head without taking it."""
        while self.ready_count:
            seq, end = self.cursor.head(self.next_seq)
            if seq == self.ram.first_seq and not self.cursor.requeued:
                return self.ram.window[0]
            entries, _ = self._read_head(seq, end, 1, _ALL_BYTES, 0)
            if entries:
                return entries[0][1]
            self._lose_head(seq, end)
        return None

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions, marked as redelivered."""
        for first, end in runs_of(sorted([entry[0] for entry in entries])):
            self.cursor.requeued.add(first, end)
            if self.has_files:
                self._add_event(first, end - first, EventKind.REQUEUE, 0, 0, 0)
        self._note_dirty()
        body_bytes = sum([len(entry[1].body) for entry in entries])
        # Messages read from disk are read again: a closed consumer may have had a million of them.
        back = [entry for entry in entries if not isinstance(entry[1], StoredMessage)] if self.has_files else entries
        for seq, message, _ in back:
            if not self._is_read_again(seq, message):
                self.ram.keep(seq, message)
        self.ready_count += len(entries)
        self.ready_bytes += body_bytes
        self.taken_count -= len(entries)
        self.taken_bytes = max(0, self.taken_bytes - body_bytes)

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Remove taken messages permanently.

        Moved messages on disk are `leaving` until settle_left().

        Args:
            entries: Entries in any order; fastest in order of sequence number.
            kind: The reason, for the event log.
            flags: DEAD_LETTERED, or 0.
        """
        if not entries:
            return
        if not self.has_files:
            self.taken_count -= len(entries)
            if not self.taken_count and not self.ready_count:
                self.ram.forget_arrivals()
            return
        leave = lives_on(kind, flags)
        unwritten = self.paging.first_unwritten(self.next_seq)
        now = self._clock.now()
        runs = settled_runs(entries, now, self.ram, self._durable, self._persists_transient, unwritten)
        self.taken_count -= len(entries)
        for run in runs:
            self._count_out(run)
            if leave and run.durable and run.stored:
                self.leaving.add(run, kind, flags)
            else:
                self._bury(run, kind, flags, entries, now)
        if not self.taken_count and not self.ram:
            self.ram.forget_arrivals()
        self._note_dirty()

    def note(
        self, kind: EventKind, count: int, body_bytes: int, flags: int = 0, details: EventDetails | None = None
    ) -> None:
        """Log an event about messages that are not in the store."""
        if not self.has_files:
            return
        self.noted = True
        if details is None:
            self._add_event(0, count, kind, 0, flags, body_bytes)
        else:
            place = self.place
            self._events.add_described(place.qid, place.priority, count, kind, flags, body_bytes, details)
        self._note_dirty()

    def purge(self) -> int:
        """Remove all ready messages, and those that cannot be read; return their number."""
        self._end_aside()
        purged = self.ready_count
        requeued, position = [*self.cursor.requeued], self.cursor.position
        self._note_purged(self.cursor.ready_ranges(self.next_seq))
        self._forget_ready([*requeued, (position, self.next_seq)])
        return purged

    def close(self) -> None:
        """Discard all contents: the queue has been deleted."""
        self._end_aside()
        count, body_bytes = self.ready_count + self.taken_count, self.ready_bytes + self.taken_bytes
        if self.has_files:
            if count:
                self._note_deleted(count, body_bytes)
            self.log.release()
            self.paging.forget_unwritten()
            self.leaving.clear()
        self._forget_ready([(self.dead.floor, self.next_seq)])
        self.taken_count = self.taken_bytes = self.persistent_count = self.persistent_bytes = 0

    # --- looking and picking ------------------------------------------------------------------------------------------

    def ordered_levels(self) -> list[tuple[int, Level]]:
        """Return the store itself."""
        return [(0, self)]

    def place_of(self, entry: Entry) -> tuple[int, int]:
        """Return level 0 and the number of a message."""
        return 0, entry[0]

    def look(self, seq: int, count: int, body_bytes: int) -> Look:
        """Look at messages, also at taken ones that are on disk."""
        log = self.log if self.has_files else None
        looking = StoreLook(self.ram, log, self.dead, self.cursor, self.leaving.numbers(), count, body_bytes)
        return looking.run(seq, self.next_seq, self.has_files or not self.taken_count)

    def is_ready(self, seq: int) -> bool:
        """Return whether a message is ready."""
        return seq < self.next_seq and seq not in self.dead and self.cursor.is_ready(seq)

    def absences(self, numbers: Sequence[int]) -> list[Absence]:
        """Return why messages are not ready, none of which is."""
        leaving, dead = self.leaving.numbers(), self.dead
        return [
            "unknown" if seq >= self.next_seq else "gone" if seq in dead or seq in leaving else "unacked"
            for seq in numbers
        ]

    def pick(self, level: int, seen: Sequence[Seen]) -> list[Entry]:
        """Take ready messages, wherever they stand."""
        entries: list[Entry] = [(each.seq, each.message, each.redelivered) for each in seen]
        cursor, ram, end = self.cursor, self.ram, entries[-1][0] + 1
        if end > cursor.position:
            window_start = ram.first_seq
            cursor.pass_over(end)
            picked = {entry[0] for entry in entries}
            for seq, message in enumerate(ram.leave_window(end), window_start):
                if seq not in picked and not self._is_read_again(seq, message):
                    ram.keep(seq, message)
        cursor.take_out([entry[0] for entry in entries])
        ram.drop_kept(entries)
        self._count_taken(entries, sum([len(entry[1].body) for entry in entries]))
        return entries

    def oldest_ready(self) -> int:
        """Return when the message at the head arrived: what is read from disk for that is remembered."""
        if not self.ready_count:
            return 0
        seq, _ = self.cursor.head(self.next_seq)
        if self._oldest_ready[0] != seq:
            self._oldest_ready = seq, self._arrival_of(seq)
        return self._oldest_ready[1]

    def oldest_taken(self) -> int:
        """Return when the oldest taken message arrived; see oldest_ready()."""
        is_known = self.taken_count and self.has_files
        seq = first_taken(self.dead, self.cursor, self.leaving.numbers()) if is_known else 0
        if not seq:
            return 0
        if self._oldest_taken[0] != seq:
            self._oldest_taken = seq, self._arrival_of(seq)
        return self._oldest_taken[1]

    def arrival(self, entry: Entry) -> int:
        """Return when a message of the store arrived."""
        message = entry[1]
        return message.arrived_at if isinstance(message, StoredMessage) else self.ram.arrival(entry[0])[0]

    def _arrival_of(self, seq: int) -> int:
        return arrival_of(self.ram, self.log, seq) if self.has_files else self.ram.arrival(seq)[0]

    # --- end of a turn and periodic work ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write messages appended since the last call, usually with one write call.

        Raises:
            OSError: Not all messages were written. The rest can still be taken; the next flush retries.
        """
        # While it fails, the engine retries by itself, so on_dirty need not be called.
        self._dirty = True
        self.paging.flush(keeps_arrivals=self.taken_count > 0)
        self._dirty = False
        if self.paging.is_due:
            self._note_dirty()

    def settle_left(self, runs: int) -> None:
        """Settle moved messages on disk after their copies have been synced.

        Args:
            runs: Number of oldest runs; a closed store has none.
        """
        leaving = self.leaving
        for _ in range(min(runs, len(leaving))):
            run, kind, flags = leaving.pop()
            self._bury(run, kind, flags, ())
            self._note_dirty()

    def idle(self) -> bool:
        """Release files and buffers if nothing was read since the last call; return whether nothing is kept."""
        log = self.log
        idle, self._used = not self._used, False
        if idle:
            log.release()
        # Dropping the active segment is worthwhile if it is long, or if the store is idle.
        if not self.ready_count and not self.taken_count and (idle or log.size > self.place.segment_bytes >> 4):
            log.drops_active = True
        if log.drops_active and log.size:
            self._note_dirty()
        return idle and not self.aside_count

    def set_lazy(self, lazy: bool) -> None:
        """Change the mode.

        When a store becomes lazy, the next flushes write its messages in parts. When it is no longer lazy, messages
        stay on disk; see preload().
        """
        if lazy and not self.paging.lazy:
            self.paging.drop_stored()
            self._note_dirty()
        self.paging.lazy = lazy

    def page_out(self, body_bytes: int) -> None:
        """Let the next flushes page out this many bytes of bodies, oldest first."""
        if self.paging.begin(body_bytes):
            self._note_dirty()

    # --- internal -----------------------------------------------------------------------------------------------------

    def _take_run(self, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Take messages with consecutive numbers; return them and their bytes.

        Empty if the messages at the head are lost.
        """
        self._used = True
        ram, cursor = self.ram, self.cursor
        seq, end = cursor.head(self.next_seq)
        if seq == ram.first_seq and not cursor.requeued:
            entries, taken_bytes = ram.take_expired(expired_at, count) if expired_at else ram.take(count, body_bytes)
        else:
            entries, taken_bytes = self._read_head(seq, end, count, body_bytes, expired_at)
            ram.drop_kept(entries)
        if not entries:
            self._lose_head(seq, end)
            return entries, 0
        cursor.leave(entries[-1][0] + 1)
        self._count_taken(entries, taken_bytes)
        return entries, taken_bytes

    def _read_head(self, seq: int, end: int, count: int, body_bytes: int, expired_at: int) -> tuple[list[Entry], int]:
        """Return messages at the head, which is not in the window, and their bytes; none if the first one is lost."""
        redelivered, end = self.cursor.same_until(seq, end)
        count = min(count, end - seq)
        entries, read = self.ram.kept_run(seq, count, body_bytes, expired_at, redelivered)
        if not entries and self.has_files:
            again = bool(self.cursor.requeued)
            entries = self.log.read_run(seq, count, body_bytes, expired_at, redelivered, again)
            read = sum([len(entry[1].body) for entry in entries])
        return entries, read

    def _is_read_again(self, seq: int, message: Message) -> bool:
        """Return whether a message before the window need not be in memory: a lazy store reads it from disk again."""
        return self.has_files and self.paging.lazy and self.paging.is_stored(seq, message)

    def _count_taken(self, entries: Sequence[Entry], body_bytes: int) -> None:
        self.ready_count -= len(entries)
        # After losses ready_bytes is an estimate until no message is left.
        self.ready_bytes = max(0, self.ready_bytes - body_bytes) if self.ready_count else 0
        self.taken_count += len(entries)
        self.taken_bytes += body_bytes

    def _drop_run(
        self, count: int, steps: int, body_bytes: int, kind: EventKind, expired_at: int
    ) -> tuple[int, int, int]:
        """Drop messages with consecutive numbers.

        Returns:
            Their number, their bytes, and the approximate number of records visited.
        """
        cursor = self.cursor
        seq, end = cursor.head(self.next_seq)
        end = cursor.disk_end(seq, end)
        if seq == end:
            # It is in memory.
            entries, taken_bytes = self._take_run(min(count, steps), body_bytes, expired_at)
            self.settle(entries, kind)
            return len(entries), taken_bytes, 1 + len(entries)
        self._used = True
        redelivered, end = cursor.same_until(seq, end)
        most, again = min(count, end - seq), bool(cursor.requeued)
        found = self.log.measure_run(seq, most, steps, body_bytes, expired_at, again)
        if found is None:
            self._lose_head(seq, end)
            return 0, 0, 1
        cursor.leave(seq + found.length)
        self.ready_count -= found.length
        self.ready_bytes = max(0, self.ready_bytes - found.body_bytes) if self.ready_count else 0
        now = self._clock.now()
        wait, least = now - found.arrived, now - found.last_arrived
        durable = found.stream is DURABLE
        # Of most of them nothing was read: they count as having come evenly between the first and the last.
        waits = (wait + least) * found.length // 2
        run = SettledRun(seq, seq + found.length, durable, True, redelivered, wait, found.body_bytes, least, waits)
        self.taken_bytes += found.body_bytes
        self._count_out(run)
        self._bury(run, kind, 0, ())
        self._note_dirty()
        return found.length, found.body_bytes, min(_SEGMENT_STEPS, found.length) if found.whole else found.length

    def discard(self, first: int, end: int, kind: EventKind, body_bytes: int, wait: int = 0) -> None:
        """Remove ready messages that are on disk without reading them.

        Args:
            first: Number of the first one.
            end: Number after the last one; all between are ready.
            body_bytes: Sum of their body lengths, about.
            wait: How long the oldest has waited, in microseconds.
        """
        count = end - first
        self.ready_count -= count
        body_bytes = min(self.ready_bytes, body_bytes) if self.ready_count else self.ready_bytes
        self.ready_bytes -= body_bytes
        self._add_event(first, count, kind, wait // 1000, 0, body_bytes)
        self._bury_unread([(first, end)])

    def _forget_ready(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Remove all ready messages."""
        self.cursor.clear(self.next_seq)
        self._bury_ready(ranges)

    def _bury_ready(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Mark all ready messages dead, whose numbers are in these ranges, and remove them from memory."""
        self.ram.clear(self.next_seq)
        self.ready_count = self.ready_bytes = 0
        if self.has_files:
            self.paging.has_gaps = True
            self._bury_unread(ranges)
            self.log.drops_active = True

    def _count_out(self, run: SettledRun) -> None:
        """Subtract a settled run, whose messages are no longer counted as taken, from the other counts."""
        self.taken_bytes = max(0, self.taken_bytes - run.body_bytes)
        if run.durable:
            self.persistent_count -= run.end - run.first
            self.persistent_bytes = max(0, self.persistent_bytes - run.body_bytes)
        if not (self.ready_count or self.taken_count or self.aside_count):
            # Estimates after losses may have left a remainder.
            self.taken_bytes = self.persistent_count = self.persistent_bytes = 0

    def _bury(self, run: SettledRun, kind: EventKind, flags: int, entries: Sequence[Entry], now: int = 0) -> None:
        """Mark a run dead and log the reason."""
        first, count, body_bytes = run.first, run.end - run.first, run.body_bytes
        if run.redelivered:
            flags |= REDELIVERED_ONCE
        if run.stored:
            self.log.bury(first, run.end, DURABLE if run.durable else SPILL, body_bytes, entries)
        else:
            paging = self.paging
            if not run.durable or not paging.keeps_dead:
                flags |= NEVER_STORED
            paging.has_gaps = True
            self.dead.add(first, count)
        self._events.add(
            self.place.qid,
            self.place.priority,
            first,
            count,
            kind,
            run.wait // 1000,
            flags,
            body_bytes,
            now,
            run.least_wait // 1000,
            run.waits,
        )

    def _bury_unread(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Mark messages dead that have not been read, and count the persistent messages again."""
        self.log.bury_all(ranges)
        unwritten = self.paging.unwritten()
        self.persistent_count = max(0, self.log.persistent_count - self.leaving.count) + len(unwritten)
        everything = self.ready_count + self.taken_count + self.aside_count
        if not everything:
            self.taken_bytes = self.persistent_count = 0
        # Single lengths are unknown, so bytes are distributed in proportion to the counts.
        body_bytes = self.ready_bytes + self.taken_bytes + self.aside_bytes
        self.persistent_bytes = body_bytes * self.persistent_count // max(1, everything)
        self._note_dirty()

    def _note_dirty(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._on_dirty(self)

    def purge_numbers(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Remove all ready messages of a store whose messages leave by number; return how many there were.

        Args:
            ranges: Their numbers, as ascending ranges (first, end).
        """
        purged = self.ready_count
        self._note_purged(ranges)
        self._bury_ready(ranges)
        return purged

    def _note_purged(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Log that all ready messages are removed; their numbers are in these ranges."""
        if not self.has_files:
            return
        wait, left, body_bytes = self._longest_wait(), self.ready_count, self.ready_bytes
        for first, end in ranges:
            # The bytes of each range are unknown, so they are distributed in proportion to the counts.
            part = body_bytes * (end - first) // max(1, left)
            self._add_event(first, end - first, EventKind.PURGED, wait, self._flags_of(first, end), part)
            left, body_bytes = left - (end - first), body_bytes - part

    def _note_deleted(self, count: int, body_bytes: int) -> None:
        """Log that all messages go with their queue.

        There may be others between them, so the newest one has an event of its own: readers know from it whether they
        have read all.
        """
        first = self.dead.floor
        last = max(self.dead.last_live(self.next_seq), first + count - 1)
        wait, flags, part = self._longest_wait(), self._flags_of(first, last + 1), body_bytes // count
        if count > 1:
            self._add_event(first, count - 1, EventKind.QUEUE_DELETED, wait, flags, body_bytes - part)
        self._add_event(last, 1, EventKind.QUEUE_DELETED, wait, flags, part)

    def _flags_of(self, first: int, end: int) -> int:
        """Return the flag of messages that were removed unread if none of them was written."""
        segments = [segment for chain in self.log.chains for segment in chain.overlapping(first, end)]
        return 0 if any(segment.last_seq >= first for segment in segments) else NEVER_STORED

    def persist_transient(self) -> None:
        """Let transient messages of a durable queue survive a restart from now on."""
        self._persists_transient = self.log.persists_transient = True

    def lose(self, first: int, end: int) -> None:
        """Record ready messages that cannot be read as lost.

        Args:
            first: Number of the first one.
            end: Number after the last one.
        """
        count = end - first
        self.lost_count += count
        where = self.place.directory
        _LOG.error("%s: %d messages from number %d on cannot be read; they are lost", where, count, first)
        self.discard(first, end, EventKind.LOST, count * self.log.mean_body(first))

    def _lose_head(self, first: int, end: int) -> None:
        """Record damaged messages at the head as lost; set aside what the system cannot read for now."""
        end = self.log.next_seq(first, self.cursor.disk_end(first, end), bool(self.cursor.requeued))
        # Otherwise the message is readable, but a record before it was damaged; the reader is now positioned at it.
        if end > first:
            if self.log.failure is not None:
                self._set_aside(first, end, self.log.failure)
            else:
                self.lose(first, end)
                self.cursor.leave(end)

    def log_unreadable(self, seq: int, error: OSError) -> None:
        """Log that messages of a store from a number on cannot be read for now."""
        text = "%s: messages from number %d on cannot be read for now, and wait: %s"
        _LOG.error(text, self.place.directory, seq, error.strerror or error)

    def _set_aside(self, first: int, end: int, error: OSError) -> None:
        """Take messages at the head that the system cannot read out of the ready ones for some seconds."""
        count = end - first
        if not self.aside_count:
            self._checks_left = _CHECKS_ASIDE
            self.log_unreadable(first, error)
        self.cursor.set_aside(first, end)
        self.ready_count -= count
        body_bytes = count * self.log.mean_body(first)
        body_bytes = min(self.ready_bytes, body_bytes) if self.ready_count else self.ready_bytes
        self.ready_bytes -= body_bytes
        self.aside_count += count
        self.aside_bytes += body_bytes
        self._note_dirty()

    def bring_back(self) -> bool:
        """Make messages that could not be read ready again after some seconds; return whether there are any now.

        Called about once a second.
        """
        if not self.aside_count:
            return False
        self._checks_left -= 1
        if self._checks_left > 0:
            return False
        self._end_aside()
        return True

    def _end_aside(self) -> None:
        """Make messages ready that could not be read."""
        if self.aside_count:
            self.cursor.bring_back()
            self.ready_count += self.aside_count
            self.ready_bytes += self.aside_bytes
            self.aside_count = self.aside_bytes = 0

    def _longest_wait(self) -> int:
        """Return the approximate wait of the oldest message of a store in milliseconds."""
        oldest = self.log.oldest or self.ram.oldest_arrival()
        return (self._clock.now() - oldest) // 1000 if oldest else 0


def _ignore(store: SegmentStore) -> None:
    """Do nothing: a store without files is never written."""
