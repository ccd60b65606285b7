"""A store that keeps its messages on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Final

from storage.commit_group import CommitGroup
from storage.dead_set import DeadSet
from storage.event_log import EventLog
from storage.format import NEVER_STORED, REDELIVERED_ONCE, EventKind, Stream
from storage.interface import Entry, mark_returned
from storage.manifest import Manifest
from storage.message import Message
from storage.message_log import MessageLog
from storage.paging import page_out, preload
from storage.ram_messages import RamMessages
from storage.segment import Segment, StorePlace
from storage.seq_ranges import SeqRanges
from storage.settlement import SettledRun, settled_runs
from storage.stored_message import StoredMessage
from storage.unwritten import Unwritten

_ALL_BYTES: Final = 1 << 62
#: So many records are looked at in one call that drops messages.
_DROP_STEPS: Final = 1024
#: What a segment costs that is dropped as a whole.
_SEGMENT_STEPS: Final = 16
#: So many bytes are paged out at once, so that a turn stays short; more only where more comes in.
_PAGE_OUT_BYTES: Final = 1 << 20


@dataclass(slots=True)
class StoreState:
    """What recovery knows of a store; as it is made, that of a new one.

    Attributes:
        segments: Sealed segments of the durable stream, in order.
        dead: All numbers below next_seq that have no living message.
        next_seq: Number of the next message.
        redelivered_below: Messages with lower numbers may have been delivered before.
        count: Living messages, all of them ready.
        body_bytes: Sum of their body lengths.
        told: What count and body_bytes are if nothing has been done since it was said; None if that is not known.
    """

    segments: list[Segment] = field(default_factory=list)
    dead: DeadSet = field(default_factory=DeadSet)
    next_seq: int = 1
    redelivered_below: int = 0
    count: int = 0
    body_bytes: int = 0
    told: tuple[int, int] | None = None


class SegmentStore:
    """Ready messages in segment files, and no object in memory for any of them. It implements MessageStore.

    What has been appended is written by flush(), but for what was settled before. Persistent messages of a durable
    queue go to the durable stream, all others to the spill stream, which does not outlive the process.

    There are two modes. A lazy store keeps no ready message in memory once it is written. Else the newest messages
    stay in memory until they are taken or paged out, and transient ones are written only then.

    Args:
        place: Where the files are.
        events: Told what becomes of messages.
        durable: Whether the queue is.
        on_dirty: Called with the store when it has something to flush or to sync, once until it is flushed.
        manifest: The store's.
        state: What recovery found.
        keeps_all: Transient messages outlive the process too, as in quorum queues.

    Attributes:
        next_seq: Number of the next message.
        taken_count: Messages taken and neither settled nor requeued.
        taken_bytes: Their body bytes.
        lost_count: Ready messages that could not be read any more.
        persistent_count: Ready and taken messages that outlive the process.
        persistent_bytes: Their body bytes.
        lazy: Whether it is lazy; see set_lazy().
        log: Its messages on disk.
        ram: Its messages in memory.
    """

    __slots__ = (
        "_appended_bytes",
        "_cursor",
        "_dirty",
        "_drop_active",
        "_durable",
        "_events",
        "_keeps_all",
        "_live_until",
        "_may_spill",
        "_on_dirty",
        "_paging",
        "_place",
        "_redelivered_below",
        "_requeued",
        "_unwritten",
        "_used",
        "lazy",
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
        on_dirty: Callable[[SegmentStore], None],
        manifest: Manifest | None = None,
        state: StoreState | None = None,
        keeps_all: bool = False,
    ) -> None:
        state = state or StoreState()
        self._place = place
        self._events = events
        self._on_dirty = on_dirty
        self._durable = durable
        self._keeps_all = durable and keeps_all
        self._dirty = False
        self._used = False
        self.lazy = True
        #: Nothing lives in the segment that is written to, and nothing is about to.
        self._drop_active = False
        self.log = MessageLog(
            place, durable, manifest or Manifest(place.files, place.directory), state.segments, state.dead, keeps_all
        )
        #: The first message that has never been taken. From there to _live_until none is dead.
        self._cursor = self._live_until = state.dead.floor
        self._redelivered_below = state.redelivered_below
        self.ram = RamMessages(state.next_seq)
        self._unwritten = Unwritten()
        #: There may be messages in the window that go to the spill stream if they are paged out.
        self._may_spill = False
        #: Bytes that are to be paged out; all there is in the lazy mode.
        self._paging = 0
        self._appended_bytes = 0
        self._requeued = SeqRanges()
        self.next_seq = state.next_seq
        self.ready_count, self.ready_bytes = state.count, state.body_bytes
        self.taken_count = self.taken_bytes = 0
        self.lost_count = 0
        self.persistent_count, self.persistent_bytes = state.count, state.body_bytes

    # --- MessageStore -------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Put messages at the tail."""
        arrived = self._place.clock()
        seq, count = self.next_seq, len(messages)
        self.ram.append(seq, messages, arrived, body_bytes)
        self.next_seq = seq + count
        self.ready_count += count
        self.ready_bytes += body_bytes
        if self._durable and (self._keeps_all or messages[0].envelope.persistent):
            self._unwritten.append(seq, messages, arrived)
            self.persistent_count += count
            self.persistent_bytes += body_bytes
        else:
            self._may_spill = True
            if not self.lazy:
                return
        self._appended_bytes += body_bytes
        self._note_dirty()

    def take(self, count: int, body_bytes: int) -> list[Entry]:
        """Take messages from the head."""
        entries: list[Entry] = []
        while self.ready_count and len(entries) < count and body_bytes > 0:
            run, run_bytes = self._take_run(count - len(entries), body_bytes, 0)
            body_bytes -= run_bytes
            entries = entries + run if entries else run
        return mark_returned(entries) if self._keeps_all else entries

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head as long as they have expired."""
        entries: list[Entry] = []
        while len(entries) < count:
            head = self.peek()
            if head is None or not 0 < head.expires_at <= now:
                break
            entries += self._take_run(count - len(entries), _ALL_BYTES, now)[0]
        return mark_returned(entries) if self._keeps_all else entries

    def drop(self, count: int, body_bytes: int, kind: EventKind = EventKind.MAXLEN) -> tuple[int, int]:
        """Forget messages at the head for good without reading them; not more than one turn has time for.

        Args:
            count: At most so many, 1 or more.
            body_bytes: No further one once the dropped bodies have reached so many bytes.
            kind: Why.
        Returns:
            How many they were, and the sum of their body lengths.
        """
        return self._drop(count, body_bytes, kind, 0)

    def drop_expired(self, now: int, count: int) -> tuple[int, int]:
        """Forget messages at the head for good as long as they have expired; see drop().

        Args:
            now: Microseconds since 1970.
            count: At most so many, 1 or more.
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

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put taken messages back where they were; they count as delivered before."""
        for first, end in _runs(sorted(entry[0] for entry in entries)):
            self._requeued.add(first, end)
            self._add_event(first, end - first, EventKind.REQUEUE, 0, 0)
        self._note_dirty()
        body_bytes = 0
        for seq, message, _ in entries:
            body_bytes += len(message.body)
            if not self._is_stored(seq, message) or not (self.lazy or isinstance(message, StoredMessage)):
                self.ram.keep(seq, message)
        self.ready_count += len(entries)
        self.ready_bytes += body_bytes
        self.taken_count -= len(entries)
        self.taken_bytes -= body_bytes

    def settle(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK, flags: int = 0) -> None:
        """Forget taken messages for good.

        Args:
            entries: In any order, best in that of their numbers.
            kind: Why, for the event log.
            flags: DEAD_LETTERED, or 0.
        """
        if not entries:
            return
        unwritten = self._unwritten.first_seq(self.next_seq)
        runs = settled_runs(entries, self._place.clock(), self.ram, self._durable, self._keeps_all, unwritten)
        for run in runs:
            self._bury(run, kind, flags, entries)
        self.taken_count -= len(entries)
        if not self.taken_count and not self.ram.window:
            self.ram.forget_arrivals()
        self._note_dirty()

    def note(self, kind: EventKind, count: int, body_bytes: int) -> None:
        """Note what became of messages that never were in the store."""
        self._add_event(0, count, kind, 0, body_bytes)
        self._note_dirty()

    def adopt(self, messages: Sequence[Message], requeued: Sequence[Entry], taken_count: int) -> None:
        """Take the place of another store of a queue that does not outlive the process, before anything else.

        Args:
            messages: Those that were never taken.
            requeued: Those that were and have returned; their numbers are below this store's first one.
            taken_count: How many were taken and have not returned.
        """
        for size, run in groupby(messages, key=_body_length):
            batch = list(run)
            self.append(batch, size * len(batch))
        self.taken_count = taken_count + len(requeued)
        self.requeue(requeued)

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""
        purged, body_bytes = self.ready_count, self.ready_bytes
        wait, left = self._longest_wait(), purged
        returned, head = [*self._requeued], self._cursor
        for first, end in chain(returned, self.log.dead.live_runs(head, self.next_seq)):
            # What the bytes of each range are is not known; they are shared out by number.
            part = body_bytes * (end - first) // max(1, left)
            self._add_event(first, end - first, EventKind.PURGED, wait, part)
            left, body_bytes = left - (end - first), body_bytes - part
        self._forget_ready([*returned, (head, self.next_seq)])
        self._note_dirty()
        return purged

    def close(self) -> None:
        """Forget everything: the queue is gone."""
        count, body_bytes = self.ready_count + self.taken_count, self.ready_bytes + self.taken_bytes
        if count:
            self._add_event(self.log.dead.floor, count, EventKind.QUEUE_DELETED, self._longest_wait(), body_bytes)
        self.log.release()
        self._unwritten.clear()
        self._forget_ready([(self.log.dead.floor, self.next_seq)])
        self.taken_count = self.taken_bytes = self.persistent_count = self.persistent_bytes = 0
        self._note_dirty()

    # --- the end of a turn, and longer spans --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what has been appended since the last time, in one write as a rule.

        Raises:
            OSError: Not all was written. What was not is kept and can be taken; the next flush tries again.
        """
        self._dirty = False
        appended, self._appended_bytes = self._appended_bytes, 0
        try:
            if self._unwritten:
                self._write()
            if self.ram.window and (self.lazy or self._paging):
                self._page_out(max(_PAGE_OUT_BYTES, 2 * appended))
        except OSError:
            self._paging = 0
            self._note_dirty()
            raise
        if self.ram.window and (self.lazy or self._paging):
            self._note_dirty()

    def tidy(self) -> bool:
        """Give up the segments without a living message.

        To be called once the events of what was settled have been written, and the messages that took their places.

        Returns:
            False if there was no room to note it, so that it is to be called again.
        """
        done = self.log.drop_dead(keep_active=not self._drop_active)
        self._drop_active = self._drop_active and not done
        return done

    def collect(self, group: CommitGroup) -> None:
        """Have what was written synced by a commit group, and files moved away that are no longer needed."""
        self.log.collect(group)

    def idle(self) -> bool:
        """Give back files and memory if nothing was read since the last call; tell whether nothing is kept."""
        if not self._used:
            self.log.release()
        if not self.ready_count and not self.taken_count:
            self._drop_active = True
        idle, self._used = not self._used, False
        if self._drop_active and self.log.size:
            self._note_dirty()
        return idle

    def shut(self) -> None:
        """Close all files; messages stay. What has been appended must have been flushed."""
        self.log.close()

    @property
    def redelivered_below(self) -> int:
        """Messages with lower numbers may have been delivered before."""
        return max(self._cursor, self._redelivered_below)

    def set_lazy(self, lazy: bool) -> None:
        """Change the mode.

        What a store that becomes lazy has in memory is written by the next flushes, in parts. One that ceases to be
        leaves on disk what is there; see preload().
        """
        if lazy and not self.lazy:
            self.lazy = True
            self._drop_kept()
            self._note_dirty()
        self.lazy = lazy

    def page_out(self, body_bytes: int) -> None:
        """Have so many bytes of bodies leave memory with the next flushes, the oldest first."""
        self._drop_kept()
        self._paging = min(body_bytes, self.ram.window_bytes)
        if self._paging:
            self._note_dirty()

    def preload(self, seq: int, count: int, below: int) -> tuple[int, int]:
        """Bring some messages at the head from disk to memory, ahead of their turn.

        Args:
            seq: Where to go on; 0 to begin.
            count: How many messages to look at, at most.
            below: Only messages shorter than this, in bytes, and in bytes with their properties.
        Returns:
            Where to go on, and how many were looked at; none if there is nothing more.
        """
        seq = max(seq, self._cursor)
        return (seq, 0) if self.lazy or seq >= self.ram.first_seq else preload(self.ram, self.log, seq, count, below)

    @property
    def priority(self) -> int:
        """The priority of its messages, 0..255; 0 in a queue without priorities."""
        return self._place.priority

    # --- inside -------------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the durable stream."""
        batch = self._unwritten.arrivals(self.log.dead)
        failure = self.log.append(batch) if batch else None
        self._unwritten.clear()
        if failure is not None:
            self._unwritten.replace([arrival for arrival in batch if not self.log.was_written(arrival)])
            raise failure

    def _page_out(self, body_bytes: int) -> None:
        """Let messages leave memory: all of them in the lazy mode, else as many as page_out() asked for."""
        ram = self.ram
        if not self.lazy:
            body_bytes = min(self._paging, body_bytes)
        before = ram.window_bytes
        page_out(ram, self.log, body_bytes, self._may_spill)
        self._paging = max(0, self._paging - (before - ram.window_bytes))
        if not ram.window:
            self._may_spill = False
            self._paging = 0

    def _drop_kept(self) -> None:
        self.ram.drop_stored(self._is_stored)

    def _is_stored(self, seq: int, message: Message) -> bool:
        """Whether a message can be read from disk."""
        if isinstance(message, StoredMessage):
            return True
        durable = self._durable and (self._keeps_all or message.envelope.persistent)
        return durable and seq < self._unwritten.first_seq(self.next_seq)

    def _forget_ready(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have all ready messages gone.

        Args:
            ranges: Their numbers.
        """
        self.ram.clear(self.next_seq)
        self._unwritten.has_gaps = True
        self.log.bury_all(ranges)
        self._requeued.clear()
        self._cursor = self._live_until = self.next_seq
        self.ready_count = self.ready_bytes = 0
        self._count_persistent()
        self._drop_active = True

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
        self._bury(run, kind, 0, ())
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
        self._add_event(first, count, EventKind.LOST, 0, body_bytes)
        self.log.bury_all([(first, end)])
        self._count_persistent()
        if self._requeued:
            self._requeued.drop_below(end)
        else:
            self._cursor = end
        self._note_dirty()

    def _bury(self, run: SettledRun, kind: EventKind, flags: int, entries: Sequence[Entry]) -> None:
        """Mark a run dead and note why."""
        first, count, body_bytes = run.first, run.end - run.first, run.body_bytes
        if run.redelivered:
            flags |= REDELIVERED_ONCE
        if run.durable:
            self.persistent_count -= count
            self.persistent_bytes -= body_bytes
        if run.stored:
            self.log.bury(first, run.end, Stream.DURABLE if run.durable else Stream.SPILL, body_bytes, entries)
        else:
            flags |= NEVER_STORED
            self._unwritten.has_gaps = True
            self.log.dead.add(first, count)
        self.taken_bytes -= body_bytes
        self._add_event(first, count, kind, run.wait // 1000, body_bytes, flags)

    def _count_persistent(self) -> None:
        """Count anew what outlives the process, after more has gone than was looked at."""
        unwritten = self._unwritten.arrivals(self.log.dead)
        self.persistent_count = self.log.persistent_count + len(unwritten)
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
        if not self._dirty:
            self._dirty = True
            self._on_dirty(self)


def _body_length(message: Message) -> int:
    return len(message.body)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as (first, end) of runs; ends are not inside."""
    first = end = 0
    for seq in numbers:
        if seq == end:
            end = seq + 1
        else:
            if end:
                yield first, end
            first, end = seq, seq + 1
    if end:
        yield first, end
