"""A message store on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Final

from leveret.storage.commit.group import CommitGroup
from leveret.storage.event_format import EventKind
from leveret.storage.event_log import EventLog
from leveret.storage.format import Stream
from leveret.storage.interface import Entry
from leveret.storage.message import Message, StoredMessage
from leveret.storage.segments.manifest import Manifest
from leveret.storage.segments.segment import StorePlace
from leveret.storage.seq_ranges import runs_of
from leveret.storage.stores.cursor import StoreCursor
from leveret.storage.stores.paging import page_out, page_out_kept, preload
from leveret.storage.stores.state import StoreState

__all__ = ["SegmentStore", "StoreState"]

#: Bytes paged out per flush, so that a turn stays short; more only if more bytes arrive.
_PAGE_OUT_BYTES: Final = 1 << 20


class SegmentStore(StoreCursor):
    """Ready messages in segment files, without an object in memory for each. Implements MessageStore.

    flush() writes appended messages that have not been settled before. Persistent messages of a durable queue go to the
    durable stream, all others to the spill stream, which is deleted at the next start.

    In the default mode, the newest messages stay in memory until they are taken or paged out, and transient ones are
    written only when paged out. A lazy store keeps no ready message in memory after it has been written.

    Args:
        place: Paths and shared services of the store.
        events: The event log.
        durable: Whether the queue is durable.
        on_dirty: Called with the store when there is data to flush or sync, once per flush.
        manifest: Manifest of the store; None for a new one.
        state: State from recovery; None for a new store.
        persists_transient: Transient messages survive a restart too, as in quorum queues.

    Attributes:
        lazy: Whether it is lazy; see set_lazy().
        noted: Whether there are events of messages that were never in the store.
    """

    __slots__ = ("_appended_bytes", "_dirty", "_drop_active", "_may_spill", "_on_dirty", "_paging", "lazy", "noted")

    def __init__(
        self,
        place: StorePlace,
        events: EventLog,
        durable: bool,
        on_dirty: Callable[[SegmentStore], None],
        manifest: Manifest | None = None,
        state: StoreState | None = None,
        persists_transient: bool = False,
    ) -> None:
        super().__init__(place, events, durable, manifest, state or StoreState(), persists_transient)
        self._on_dirty = on_dirty
        self._dirty = self.noted = False
        self.lazy = True
        #: The active segment has no live messages and may be dropped.
        self._drop_active = False
        #: The window may contain messages that page_out() writes to the spill stream.
        self._may_spill = False
        #: Bytes to page out; everything in the lazy mode.
        self._paging = 0
        self._appended_bytes = 0

    # --- MessageStore -------------------------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message], body_bytes: int, longest: int | None = None) -> None:
        """Append messages at the tail."""
        arrived = self._place.clock()
        seq, count = self.next_seq, len(messages)
        self.ram.append(seq, messages, arrived, body_bytes, longest)
        self.next_seq = seq + count
        self.ready_count += count
        self.ready_bytes += body_bytes
        if self._durable and (self._persists_transient or messages[0].envelope.persistent):
            self._unwritten.append(seq, messages, arrived)
            self.persistent_count += count
            self.persistent_bytes += body_bytes
        else:
            self._may_spill = True
            if not self.lazy:
                return
        self._appended_bytes += body_bytes
        self._note_dirty()

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return taken messages to their positions, marked as redelivered."""
        for first, end in runs_of(sorted([entry[0] for entry in entries])):
            self._requeued.add(first, end)
            self._add_event(first, end - first, EventKind.REQUEUE, 0, 0)
        self._note_dirty()
        body_bytes = sum([len(entry[1].body) for entry in entries])
        # Messages read from disk are read again: a closed consumer may have had a million of them.
        for seq, message, _ in [entry for entry in entries if not isinstance(entry[1], StoredMessage)]:
            if not self.lazy or not self._is_stored(seq, message):
                self.ram.keep(seq, message)
        self.ready_count += len(entries)
        self.ready_bytes += body_bytes
        self.taken_count -= len(entries)
        self.taken_bytes -= body_bytes

    def note(self, kind: EventKind, count: int, body_bytes: int, flags: int = 0) -> None:
        """Log an event about messages that are not in the store."""
        self.noted = True
        self._add_event(0, count, kind, 0, body_bytes, flags)
        self._note_dirty()

    def adopt(self, messages: Sequence[Message], requeued: Sequence[Entry], taken_count: int) -> None:
        """Take over the contents of another store of a non-durable queue. Must be the first call.

        Args:
            messages: Messages never taken.
            requeued: Requeued messages; their numbers are below this store's first one.
            taken_count: Number of taken messages.
        """
        for size, run in groupby(messages, key=_body_length):
            batch = list(run)
            self.append(batch, size * len(batch))
        self.taken_count = taken_count + len(requeued)
        self.requeue(requeued)

    def purge(self) -> int:
        """Remove all ready messages; return their number."""
        purged, body_bytes = self.ready_count, self.ready_bytes
        wait, left = self._longest_wait(), purged
        returned, head = [*self._requeued], self._cursor
        for first, end in chain(returned, self.log.dead.live_runs(head, self.next_seq)):
            # The bytes of each range are unknown, so they are distributed in proportion to the counts.
            part = body_bytes * (end - first) // max(1, left)
            self._add_event(first, end - first, EventKind.PURGED, wait, part)
            left, body_bytes = left - (end - first), body_bytes - part
        self._forget_ready([*returned, (head, self.next_seq)])
        self._note_dirty()
        return purged

    def close(self) -> None:
        """Discard all contents: the queue has been deleted."""
        count, body_bytes = self.ready_count + self.taken_count, self.ready_bytes + self.taken_bytes
        if count:
            self._add_event(self.log.dead.floor, count, EventKind.QUEUE_DELETED, self._longest_wait(), body_bytes)
        self.log.release()
        self._unwritten.clear()
        self.leaving.clear()
        self._forget_ready([(self.log.dead.floor, self.next_seq)])
        self.taken_count = self.taken_bytes = self.persistent_count = self.persistent_bytes = 0
        self._note_dirty()

    # --- end of a turn and periodic work ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write messages appended since the last call, usually with one write call.

        Raises:
            OSError: Not all messages were written. The rest can still be taken; the next flush retries.
        """
        self._dirty = False
        appended, self._appended_bytes = self._appended_bytes, 0
        try:
            if self._unwritten:
                self._write()
            if self._has_to_page:
                self._page_out(max(_PAGE_OUT_BYTES, 2 * appended))
        except OSError:
            self._paging = 0
            # The engine retries by itself, so on_dirty need not be called.
            self._dirty = True
            raise
        if self._has_to_page:
            self._note_dirty()

    @property
    def _has_to_page(self) -> bool:
        """Whether messages are to leave memory. Few that have returned stay, as files for them are not worth it."""
        ram = self.ram
        return self._paging > 0 or (self.lazy and (bool(ram.window) or ram.kept_much))

    @property
    def has_dead_segments(self) -> bool:
        """Whether there may be segments for tidy() to drop."""
        return self._drop_active or self.log.has_dead

    def tidy(self) -> bool:
        """Drop segments without live messages.

        Called after the events of settled messages, and the copies of moved ones, have been written.

        Returns:
            False if the disk was too full to update the manifest; call it again later.
        """
        done = self.log.drop_dead(keep_active=not self._drop_active)
        self._drop_active = self._drop_active and not done
        return done

    def collect(self, group: CommitGroup) -> None:
        """Add written files to a commit group, and moves of dropped files to the trash."""
        self.log.collect(group)

    def idle(self) -> bool:
        """Release files and buffers if nothing was read since the last call; return whether nothing is kept."""
        if not self._used:
            self.log.release()
        if not self.ready_count and not self.taken_count and self._is_worth_dropping():
            self._drop_active = True
        idle, self._used = not self._used, False
        if self._drop_active and self.log.size:
            self._note_dirty()
        return idle

    def _is_worth_dropping(self) -> bool:
        """Return whether dropping the active segment is worthwhile: it is long, or the store is idle."""
        return not self._used or self.log.size > self._place.segment_bytes >> 4

    def shut(self) -> None:
        """Close all files and keep the messages. Appended messages must have been flushed."""
        self.log.close()

    @property
    def redelivered_below(self) -> int:
        """Messages with lower numbers may have been delivered before."""
        return max(self._cursor, self._redelivered_below)

    def set_lazy(self, lazy: bool) -> None:
        """Change the mode.

        When a store becomes lazy, the next flushes write its messages in parts. When it is no longer lazy, messages
        stay on disk; see preload().
        """
        if lazy and not self.lazy:
            self.lazy = True
            self.ram.drop_stored(self._is_stored)
            self._note_dirty()
        self.lazy = lazy

    def page_out(self, body_bytes: int) -> None:
        """Let the next flushes page out this many bytes of bodies, oldest first."""
        self.ram.drop_stored(self._is_stored)
        self._paging = min(body_bytes, self.ram.held_bytes)
        if self._paging:
            self._note_dirty()

    def preload(self, seq: int, count: int, below: int) -> tuple[int, int]:
        """Preload messages near the head from disk into memory.

        Args:
            seq: Number from which to continue; 0 to begin.
            count: Maximum number of messages to check.
            below: Only messages whose body, and body with properties, are shorter than this many bytes.
        Returns:
            The number to continue from, and the number of messages checked; 0 if there are no more.
        """
        seq = max(seq, self._cursor)
        return (seq, 0) if self.lazy or seq >= self.ram.first_seq else preload(self.ram, self.log, seq, count, below)

    @property
    def priority(self) -> int:
        """The priority of its messages, 0..255; 0 in a queue without priorities."""
        return self._place.priority

    # --- internal -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the durable stream."""
        batch = self._unwritten.arrivals(self.log.dead)
        failure = self.log.append(Stream.DURABLE, batch) if batch else None
        self._unwritten.clear()
        if failure is not None:
            self._unwritten.replace([arrival for arrival in batch if not self.log.was_written(arrival)])
            raise failure

    def _page_out(self, body_bytes: int) -> None:
        """Let messages leave memory: all of them in the lazy mode, else as many as page_out() asked for."""
        ram = self.ram
        if not self.lazy:
            body_bytes = min(self._paging, body_bytes)
        before = ram.held_bytes
        if self._paging or ram.kept_much:
            # They stand before the window.
            page_out_kept(ram, self.log, body_bytes, self._is_stored)
            if not self.lazy:
                body_bytes -= before - ram.held_bytes
        if ram.window and body_bytes > 0:
            page_out(ram, self.log, body_bytes, self._may_spill)
        self._paging = min(ram.held_bytes, max(0, self._paging - (before - ram.held_bytes)))
        if not ram.window:
            self._may_spill = False
            if not ram and not self.taken_count:
                ram.forget_arrivals()

    def _is_stored(self, seq: int, message: Message) -> bool:
        """Return whether a message can be read from disk."""
        if isinstance(message, StoredMessage):
            return True
        durable = self._durable and (self._persists_transient or message.envelope.persistent)
        return durable and seq < self._unwritten.first_seq(self.next_seq)

    def _forget_ready(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Remove all ready messages.

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

    def _note_dirty(self) -> None:
        if not self._dirty:
            self._dirty = True
            self._on_dirty(self)


def _body_length(message: Message) -> int:
    return len(message.body)
