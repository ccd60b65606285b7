"""A store that keeps its messages on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from storage.commit_group import CommitGroup
from storage.dead_set import DeadSet
from storage.event_log import EventLog
from storage.format import NEVER_STORED, REDELIVERED_ONCE, EventKind, Stream
from storage.interface import Entry
from storage.manifest import Manifest
from storage.message import Message
from storage.message_log import MessageLog
from storage.ram_messages import RamMessages
from storage.segment import Segment, StorePlace
from storage.seq_ranges import SeqRanges

_ALL_BYTES: Final = 1 << 62
#: A run of settled messages is cut where waits differ by more than this, in microseconds, and by more than a tenth.
_WAIT_STEP: Final = 100_000


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
    """

    segments: list[Segment] = field(default_factory=list)
    dead: DeadSet = field(default_factory=DeadSet)
    next_seq: int = 1
    redelivered_below: int = 0
    count: int = 0
    body_bytes: int = 0


class SegmentStore:
    """Ready messages in segment files, and no object in memory for any of them. It implements MessageStore.

    What has been appended waits in memory until flush(): what is settled before is never written. Persistent
    messages of a durable queue go to the durable stream, all others to the spill stream, which does not outlive
    the process. That is the lazy mode; with keep_in_memory(), memory holds the head of the queue besides.

    Args:
        place: Where the files are.
        events: Told what becomes of messages.
        durable: Whether the queue is.
        on_dirty: Called with the store when it has something to flush or to sync, once until it is flushed.
        manifest: The store's.
        state: What recovery found.

    Attributes:
        next_seq: Number of the next message.
        taken_count: Messages taken and neither settled nor requeued.
        taken_bytes: Their body bytes.
        lost_count: Ready messages that could not be read any more.
        persistent_count: Ready and taken messages that outlive the process.
        log: Its messages on disk.
        ram: Its messages in memory: their number is its length, the bytes of their bodies its `held_bytes`.
    """

    __slots__ = (
        "_cursor",
        "_dirty",
        "_drop_active",
        "_events",
        "_live_until",
        "_on_dirty",
        "_place",
        "_redelivered_below",
        "_requeued",
        "_used",
        "log",
        "lost_count",
        "next_seq",
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
    ) -> None:
        state = state or StoreState()
        self._place = place
        self._events = events
        self._on_dirty = on_dirty
        self._dirty = False
        self._used = False
        #: Nothing lives in the segment that is written to, and nothing is about to.
        self._drop_active = False
        self.log = MessageLog(
            place, durable, manifest or Manifest(place.files, place.directory), state.segments, state.dead
        )
        #: The first message that has never been taken. From there to _live_until none is dead.
        self._cursor = self._live_until = state.dead.floor
        self._redelivered_below = state.redelivered_below
        self.ram = RamMessages(state.next_seq)
        self._requeued = SeqRanges()
        self.next_seq = state.next_seq
        self.ready_count, self.ready_bytes = state.count, state.body_bytes
        self.taken_count = self.taken_bytes = 0
        self.lost_count = 0
        self.persistent_count = state.count

    # --- MessageStore -------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Put messages at the tail."""
        self.next_seq = self.ram.append(self.next_seq, messages, self._place.clock(), body_bytes)
        if self.log.stream_of(messages[0].envelope.persistent) is Stream.DURABLE:
            self.persistent_count += len(messages)
        self.ready_count += len(messages)
        self.ready_bytes += body_bytes
        self._note_dirty()

    def take(self, count: int, body_bytes: int) -> list[Entry]:
        """Take messages from the head."""
        entries: list[Entry] = []
        while self.ready_count and len(entries) < count and body_bytes > 0:
            run = self._take_run(count - len(entries), body_bytes, 0)
            body_bytes -= sum(len(message.body) for _, message, _ in run)
            entries += run
        return entries

    def take_expired(self, now: int, count: int) -> list[Entry]:
        """Take messages from the head as long as they have expired."""
        entries: list[Entry] = []
        while len(entries) < count:
            head = self.peek()
            if head is None or not 0 < head.expires_at <= now:
                break
            entries += self._take_run(count - len(entries), _ALL_BYTES, now)
        return entries

    def peek(self) -> Message | None:
        """The message at the head, without taking it."""
        while self.ready_count:
            seq, end = self._head()
            entries = self._read(seq, 1, _ALL_BYTES, 0)
            if entries:
                return entries[0][1]
            self._lose(seq, end)
        return None

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put taken messages back where they were; they count as delivered before."""
        for first, end in _runs(sorted(entry[0] for entry in entries)):
            self._requeued.add(first, end)
        body_bytes = sum(len(message.body) for _, message, _ in entries)
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
        now = self._place.clock()
        was_waiting, stream_of = self.ram.settle, self.log.stream_of
        # The run that is being put together: messages that follow each other and are alike.
        first = end = body_bytes = run_bytes = shortest = longest = 0
        like = Stream.DURABLE, False, False
        for seq, message, redelivered in entries:
            this = stream_of(message.envelope.persistent), was_waiting(seq), redelivered
            # A message that some other store has wrapped does not say when it came.
            wait = now - getattr(message, "arrived_at", now)
            if seq == end and this == like and (wait == longest or _are_close(wait, shortest, longest)):
                end = seq + 1
                if wait != longest:
                    shortest, longest = min(shortest, wait), max(longest, wait)
                run_bytes += len(message.body)
            else:
                if end:
                    self._bury(first, end, like, kind, flags, longest, run_bytes)
                    body_bytes += run_bytes
                first, end, like, shortest, longest, run_bytes = seq, seq + 1, this, wait, wait, len(message.body)
        if end:
            self._bury(first, end, like, kind, flags, longest, run_bytes)
        self.taken_count -= len(entries)
        self.taken_bytes -= body_bytes + run_bytes
        self._note_dirty()

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""
        purged, body_bytes = self.ready_count, self.ready_bytes
        ranges = [*self._requeued, *self.log.dead.live_runs(self._cursor, self.next_seq)]
        left = purged
        for first, end in ranges:
            # What the bytes of each range are is not known; they are shared out by number.
            part = body_bytes * (end - first) // max(1, left)
            self._add_event(first, end - first, EventKind.PURGED, self._longest_wait(), part)
            left, body_bytes = left - (end - first), body_bytes - part
        self.ram.forget(lambda seq: seq >= self._cursor or seq in self._requeued)
        self.log.bury_all(ranges)
        self._count_persistent()
        self._requeued.clear()
        self._cursor = self._live_until = self.next_seq
        self.ready_count = self.ready_bytes = 0
        self._drop_active = True
        self._note_dirty()
        return purged

    def close(self) -> None:
        """Forget everything: the queue is gone."""
        count, body_bytes = self.ready_count + self.taken_count, self.ready_bytes + self.taken_bytes
        if count:
            self._add_event(self.log.dead.floor, count, EventKind.QUEUE_DELETED, self._longest_wait(), body_bytes)
        self.ram.forget(lambda seq: True)
        self._requeued.clear()
        self.log.release()
        self.log.bury_all([(self.log.dead.floor, self.next_seq)])
        self._drop_active = True
        self._cursor = self._live_until = self.next_seq
        self.ready_count = self.ready_bytes = self.taken_count = self.taken_bytes = self.persistent_count = 0
        self._note_dirty()

    # --- the end of a turn, and longer spans --------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what has been appended since the last time, in one write as a rule.

        Raises:
            OSError: Not all was written. What was not is kept and can be taken; the next flush tries again.
        """
        self._dirty = False
        batch = self.ram.to_write(self.log.stream_of)
        if not batch:
            return
        failure = self.log.append(batch)
        if failure is not None:
            batch = [arrival for arrival in batch if self.log.was_written(arrival)]
        self.ram.written(batch, self._cursor, self.next_seq)
        if failure is not None:
            self._note_dirty()
            raise failure

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

    def keep_in_memory(self, body_bytes: int) -> None:
        """Set how many bytes of bodies may be kept in memory; 0 for the lazy mode, as it is at first.

        Lowering it pages out with the next flush. Raising it keeps what comes from now on, once what is on disk
        only has been taken.
        """
        self.ram.limit = body_bytes
        if self.ram.held_bytes > body_bytes:
            self.ram.drop_cache()
            self._note_dirty()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _take_run(self, count: int, body_bytes: int, expired_at: int) -> list[Entry]:
        """Take messages whose numbers follow each other; none if those at the head turn out to be lost."""
        self._used = True
        seq, end = self._head()
        entries = self._read(seq, min(count, end - seq), body_bytes, expired_at)
        if not entries:
            self._lose(seq, end)
            return entries
        behind = entries[-1][0] + 1
        if self._requeued:
            self._requeued.drop_below(behind)
        else:
            self._cursor = behind
        self.ram.taken(entries)
        taken_bytes = sum(len(message.body) for _, message, _ in entries)
        self.ready_count -= len(entries)
        # Where messages were lost, the bytes of the others are known about only, until none is left.
        self.ready_bytes = max(0, self.ready_bytes - taken_bytes) if self.ready_count else 0
        self.taken_count += len(entries)
        self.taken_bytes += taken_bytes
        return entries

    def _head(self) -> tuple[int, int]:
        """The ready messages at the head, as (first, end) of a range; there must be one."""
        if self._requeued:
            return self._requeued.first()
        if self._cursor >= self._live_until:
            self._cursor, self._live_until = next(self.log.dead.live_runs(self._cursor, self.next_seq))
        return self._cursor, self._live_until

    def _read(self, seq: int, count: int, body_bytes: int, expired_at: int) -> list[Entry]:
        """Read from the head; none if the message is lost."""
        again = bool(self._requeued)
        redelivered = again or seq < self._redelivered_below
        if not again and redelivered:
            count = min(count, self._redelivered_below - seq)
        entries = self.ram.read_run(seq, count, body_bytes, expired_at, redelivered)
        return entries or self.log.read_run(seq, count, body_bytes, expired_at, redelivered, again)

    def _lose(self, first: int, end: int) -> None:
        """Give up the messages at the head that cannot be read.

        Args:
            first: The first of them.
            end: The end of the ready range it is in.
        """
        end = self.log.next_seq(first, self.ram.next_seq(first, end), bool(self._requeued))
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

    def _bury(
        self,
        first: int,
        end: int,
        like: tuple[Stream, bool, bool],
        kind: EventKind,
        flags: int,
        wait: int,
        body_bytes: int,
    ) -> None:
        """Mark a run dead and note why."""
        stream, was_waiting, redelivered = like
        if redelivered:
            flags |= REDELIVERED_ONCE
        if stream is Stream.DURABLE:
            self.persistent_count -= end - first
        if was_waiting:
            flags |= NEVER_STORED
            self.log.dead.add(first, end - first)
        else:
            self.log.bury(first, end, stream)
        self._add_event(first, end - first, kind, wait // 1000, body_bytes, flags)

    def _count_persistent(self) -> None:
        self.persistent_count = self.log.persistent_count + self.ram.count(Stream.DURABLE, self.log.stream_of)

    def _add_event(self, seq: int, length: int, kind: EventKind, wait_ms: int, body_bytes: int, flags: int = 0) -> None:
        self._events.add(self._place.qid, self._place.priority, seq, length, kind, wait_ms, flags, body_bytes)

    def _longest_wait(self) -> int:
        """Milliseconds that the oldest message has waited, about."""
        oldest = self.log.oldest or self.ram.oldest()
        return (self._place.clock() - oldest) // 1000 if oldest else 0

    def _note_dirty(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._on_dirty(self)


def _are_close(wait: int, shortest: int, longest: int) -> bool:
    """Whether a message may share a record of the event log with others that waited about as long."""
    return max(longest, wait) - min(shortest, wait) <= max(_WAIT_STEP, longest // 10)


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
