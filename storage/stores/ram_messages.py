"""A store's messages in memory: the window of newest messages, and single older ones; writing and paging them out."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from leveret.storage.format import DURABLE, SPILL
from leveret.storage.interface import Entry
from leveret.storage.message import Message, StoredMessage
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import Arrival

#: Maximum number of arrival times; beyond that they become coarser.
_ARRIVALS_MAX: Final = 8192
#: The heap of kept numbers is rebuilt when more of its numbers are stale than are kept, plus this many.
_STALE_MAX: Final = 64
#: Kept messages, and bytes of their bodies, that need not be paged out.
_KEPT_MAX: Final = 4096
_KEPT_BYTES: Final = 1 << 20
#: Numbers that are tried one by one for a kept message.
_LOOK_AHEAD: Final = 256
#: The window before the first message: an empty deque takes 600 bytes, and many queues are never used.
_NO_WINDOW: Final[deque[Message]] = deque()


class RamMessages:
    """In-memory messages by sequence number.

    The *window* is a deque of the newest messages, none of which has ever been taken; it ends at the queue's tail.
    Before it, single messages are kept by number: requeued or preloaded ones. All of them are ready; taken messages
    are removed.

    Attributes:
        window: The window.
        first_seq: Number of its first message, or of the next message while it is empty.
        window_bytes: Body bytes of the window.
        held_bytes: Body bytes of all messages in memory.
    """

    __slots__ = (
        "_arrival_seqs", "_arrivals", "_is_newest_over", "_kept", "_kept_order", "_largest", "_newest_arrival",
        "_newest_seq", "first_seq", "held_bytes", "window", "window_bytes",
    )  # fmt: skip

    def __init__(self, next_seq: int) -> None:
        self.window = _NO_WINDOW
        self.first_seq = next_seq
        self.window_bytes = self.held_bytes = 0
        #: Length of the longest body ever appended.
        self._largest = 0
        self._kept: dict[int, Message] = {}
        #: A heap of their numbers and of some removed ones, which are deleted when they reach the top.
        self._kept_order: list[int] = []
        #: Arrival times of messages that were not read from disk, each valid from a number on; without the newest one.
        self._arrival_seqs = array("Q")
        self._arrivals = array("q")
        #: The newest one. It is written over if none of its messages is live: in a queue that is empty most of the
        #: time, that is one for each message.
        self._newest_seq = next_seq
        self._newest_arrival = 0
        self._is_newest_over = True

    def __len__(self) -> int:
        return len(self.window) + len(self._kept)

    def append(
        self, seq: int, messages: Sequence[Message], arrived: int, body_bytes: int, longest: int | None = None
    ) -> None:
        """Append messages to the window.

        Args:
            seq: Sequence number of the first message.
            messages: Messages in order.
            arrived: Arrival in microseconds since 1970.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body; None if all have one length.
        """
        if not self.window:
            self.first_seq = seq
            if self.window is _NO_WINDOW:
                self.window = deque()
        if len(messages) == 1:
            self.window.append(messages[0])
            size = body_bytes
        else:
            self.window.extend(messages)
            size = len(messages[0].body) if longest is None else longest
        if size > self._largest:
            self._largest = size
        self.window_bytes += body_bytes
        self.held_bytes += body_bytes
        if self._is_newest_over:
            self._newest_seq, self._newest_arrival, self._is_newest_over = seq, arrived, False
        elif arrived != self._newest_arrival:
            self._arrival_seqs.append(self._newest_seq)
            self._arrivals.append(self._newest_arrival)
            self._newest_seq, self._newest_arrival = seq, arrived
            if len(self._arrivals) > _ARRIVALS_MAX:
                # Remove every second time of the older half, so that long waits are less exact.
                del self._arrival_seqs[1 : _ARRIVALS_MAX // 2 : 2], self._arrivals[1 : _ARRIVALS_MAX // 2 : 2]

    def arrival(self, seq: int) -> tuple[int, int]:
        """Return the arrival of an appended message, and the end of the numbers with the same arrival."""
        if seq >= self._newest_seq:
            return self._newest_arrival, 1 << 63
        at = bisect_right(self._arrival_seqs, seq)
        if not at:
            return 0, seq + 1
        return self._arrivals[at - 1], self._arrival_seqs[at] if at < len(self._arrivals) else self._newest_seq

    def is_exact(self, seq: int, within: int) -> bool:
        """Return whether arrival() is exact to some microseconds: earlier times may have become coarser."""
        if seq >= self._newest_seq:
            return True
        at = bisect_right(self._arrival_seqs, seq)
        after = self._arrivals[at] if at < len(self._arrivals) else self._newest_arrival
        return at > 0 and after - self._arrivals[at - 1] <= within

    def forget_arrivals(self) -> None:
        """Discard arrival times: no appended message is live."""
        self._is_newest_over = True
        if self._arrivals:
            del self._arrival_seqs[:], self._arrivals[:]

    # --- the window ---------------------------------------------------------------------------------------------------

    def take(self, count: int, body_bytes: int) -> tuple[list[Entry], int]:
        """Take from the head of the window.

        Args:
            count: Maximum number of messages.
            body_bytes: Stop when their bodies have reached this many bytes; more than 0.
        Returns:
            The entries and their body bytes.
        """
        window, seq = self.window, self.first_seq
        count = min(count, len(window))
        if count == 1:
            message = window.popleft()
            size = len(message.body)
            self.first_seq = seq + 1
            self.window_bytes -= size
            self.held_bytes -= size
            return [(seq, message, False)], size
        pop = window.popleft
        if count * self._largest <= body_bytes:
            # The byte limit cannot be reached.
            entries: list[Entry] = [(number, pop(), False) for number in range(seq, seq + count)]
            taken = sum([len(entry[1].body) for entry in entries])
        else:
            entries, taken = [], 0
            for number in range(seq, seq + count):
                if taken >= body_bytes:
                    break
                message = pop()
                entries.append((number, message, False))
                taken += len(message.body)
        self._advance(len(entries), taken)
        return entries, taken

    def take_expired(self, now: int, count: int) -> tuple[list[Entry], int]:
        """Take expired messages from the head of the window; see take()."""
        window, seq = self.window, self.first_seq
        entries: list[Entry] = []
        while window and len(entries) < count and 0 < window[0].expires_at <= now:
            entries.append((seq, window.popleft(), False))
            seq += 1
        taken = sum([len(entry[1].body) for entry in entries])
        self._advance(len(entries), taken)
        return entries, taken

    @property
    def end(self) -> int:
        """The number after the last message of the window."""
        return self.first_seq + len(self.window)

    def oldest(self, body_bytes: int, max_count: int) -> list[Message]:
        """Return messages with this many bytes at the head of the window.

        Args:
            body_bytes: Sum of their body lengths, approximately.
            max_count: Maximum number of messages.
        """
        if self.window_bytes <= body_bytes:
            return list(islice(self.window, max_count))
        count = 0
        for message in islice(self.window, max_count):
            if body_bytes <= 0:
                break
            body_bytes -= len(message.body) + 1
            count += 1
        return list(islice(self.window, count))

    def drop_oldest(self, count: int) -> None:
        """Remove messages on disk from the head of the window."""
        window = self.window
        if count == len(window):
            dropped = self.window_bytes
            window.clear()
        else:
            dropped = sum([len(window.popleft().body) for _ in range(count)])
        self._advance(count, dropped)

    def leave_window(self, end: int) -> list[Message]:
        """Remove and return the messages of the window with numbers below `end`, in order."""
        count = min(max(0, end - self.first_seq), len(self.window))
        pop = self.window.popleft
        messages = [pop() for _ in range(count)]
        self._advance(count, sum([len(message.body) for message in messages]))
        return messages

    def _advance(self, count: int, body_bytes: int) -> None:
        self.first_seq += count
        self.window_bytes -= body_bytes
        self.held_bytes -= body_bytes

    # --- before the window --------------------------------------------------------------------------------------------

    def keep(self, seq: int, message: Message) -> None:
        """Add a ready message before the window."""
        if seq not in self._kept:
            heappush(self._kept_order, seq)
            if len(self._kept_order) > 2 * len(self._kept) + _STALE_MAX:
                self._kept_order = [*self._kept, seq]
                heapify(self._kept_order)
        self._kept[seq] = message
        self.held_bytes += len(message.body)

    def kept_run(
        self, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool
    ) -> tuple[list[Entry], int]:
        """Return kept messages with consecutive numbers, without removing them.

        Args:
            seq: Number of the first message.
            count: Maximum number of messages.
            body_bytes: Stop when their bodies have reached this many bytes.
            expired_at: If not 0, stop at a message that has not expired at this time (microseconds since 1970).
            redelivered: Redelivered flag of the entries.
        Returns:
            The entries and their body bytes.
        """
        entries: list[Entry] = []
        taken = 0
        kept = self._kept
        if kept:
            for at in range(seq, seq + count):
                message = kept.get(at)
                if message is None or taken >= body_bytes:
                    break
                if expired_at and not 0 < message.expires_at <= expired_at:
                    break
                entries.append((at, message, redelivered))
                taken += len(message.body)
        return entries, taken

    def drop_kept(self, entries: Iterable[Entry]) -> None:
        """Remove taken messages if they are kept."""
        kept = self._kept
        if kept:
            for seq, message, _ in entries:
                if kept.pop(seq, None) is not None:
                    self.held_bytes -= len(message.body)

    def next_kept(self, seq: int, end: int) -> int:
        """Return the lowest kept number from `seq` on; `end` if there is none below it.

        Args:
            seq: First number to check; fast only at the head of the queue, before which nothing is kept.
            end: End of the search, excluded.
        """
        kept, order = self._kept, self._kept_order
        while order and order[0] not in kept:
            heappop(order)
        if order and order[0] < seq:
            return min([end, *(at for at in kept if at >= seq)])
        return min(end, order[0]) if order else end

    def next_kept_after(self, seq: int, end: int) -> int:
        """Return the lowest kept number from `seq` on, or a lower one near it; `end` if there is none below it.

        Unlike next_kept() it is fast everywhere: where there are many kept messages it looks only a little ahead.
        """
        kept = self._kept
        if len(kept) <= _LOOK_AHEAD:
            return min([end, *[at for at in kept if at >= seq]])
        ahead = min(end, seq + _LOOK_AHEAD)
        return next((at for at in range(seq, ahead) if at in kept), ahead)

    @property
    def keeps_many(self) -> bool:
        """Whether the kept messages take a lot of memory, so that some are to be paged out."""
        return len(self._kept) > _KEPT_MAX or self.held_bytes - self.window_bytes > _KEPT_BYTES

    def remove_kept(self, body_bytes: int) -> list[tuple[int, Message]]:
        """Remove the kept messages with the lowest numbers, and return them in order.

        Args:
            body_bytes: Stop when their bodies have reached this many bytes; 1 or more. Each message counts as one byte
                more than its body.
        """
        kept, order = self._kept, self._kept_order
        removed: list[tuple[int, Message]] = []
        while kept and body_bytes > 0:
            seq = heappop(order)
            message = kept.pop(seq, None)
            if message is not None:
                removed.append((seq, message))
                self.held_bytes -= len(message.body)
                body_bytes -= len(message.body) + 1
        return removed

    def drop_stored(self, is_stored: Callable[[int, Message], bool]) -> None:
        """Remove kept messages that are on disk."""
        if self._kept:
            self._kept = {seq: each for seq, each in self._kept.items() if not is_stored(seq, each)}
            self._kept_order = sorted(self._kept)
            self.held_bytes = self.window_bytes + sum(len(each.body) for each in self._kept.values())

    def clear(self, next_seq: int) -> None:
        """Remove all messages."""
        self.window.clear()
        self._kept.clear()
        self._kept_order.clear()
        self.first_seq = next_seq
        self.window_bytes = self.held_bytes = 0

    def oldest_arrival(self) -> int:
        """Return the arrival of the first message of the window; 0 if it is empty."""
        if not self.window:
            return 0
        head = self.window[0]
        return head.arrived_at if isinstance(head, StoredMessage) else self.arrival(self.first_seq)[0]


#: Bytes paged out per flush, so that a turn stays short; more only if more bytes arrive.
_PAGE_OUT_BYTES: Final = 1 << 20
#: Messages paged out per flush, for the same reason.
_PAGE_OUT_MESSAGES: Final = 8192
#: Bytes preloaded per call.
_PRELOAD_BYTES: Final = 256 << 10
#: A content header without properties.
_BARE_HEADER_BYTES: Final = 14
_EXPIRES_ANY: Final = 0


class Paging:
    """Moves the messages of a store between memory and disk.

    Attributes:
        has_gaps: Whether some of the unwritten messages may have been settled since.
        keeps_dead: Whether those are written, too, because a named reader wants them.
        lazy: Whether no ready message stays in memory after it has been written.
        may_spill: Whether the window may contain messages that paging out writes to the spill stream.
        appended_bytes: Body bytes appended since the last flush.
    """

    __slots__ = (
        "_left", "_log", "_ram", "_ram_end", "_unwritten", "appended_bytes", "has_gaps", "keeps_dead",
        "lazy", "may_spill",
    )  # fmt: skip

    def __init__(self, ram: RamMessages, log: MessageLog) -> None:
        self._ram = ram
        self._log = log
        #: What the next flush writes to the durable stream: number of the first message, messages, arrival.
        self._unwritten: list[tuple[int, Sequence[Message], int]] = []
        self.has_gaps = self.keeps_dead = False
        self.lazy = True
        self.may_spill = False
        self.appended_bytes = 0
        #: Bytes to page out; everything in the lazy mode.
        self._left = 0
        #: End of the numbers in the window at the last flush.
        self._ram_end = 0

    def append(self, seq: int, messages: Sequence[Message], arrived: int, body_bytes: int) -> None:
        """Let the next flush write appended messages to the durable stream.

        Args:
            seq: Sequence number of the first message.
            messages: Messages in order.
            arrived: Arrival in microseconds since 1970.
            body_bytes: Sum of their body lengths.
        """
        self._unwritten.append((seq, messages, arrived))
        self.appended_bytes += body_bytes

    def first_unwritten(self, next_seq: int) -> int:
        """Return the lowest number of an unwritten message; `next_seq` if there is none."""
        return self._unwritten[0][0] if self._unwritten else next_seq

    def unwritten(self, keeps_dead: bool = False) -> list[Arrival]:
        """Return the unwritten messages in order, on request with those that have been settled since."""
        batches = self._unwritten
        if len(batches) == 1 and len(batches[0][1]) == 1:
            # As in a queue whose publisher waits for each confirm.
            found: list[Arrival] = [(batches[0][0], batches[0][1][0], batches[0][2])]
        else:
            found = [
                (seq, message, arrived)
                for first, messages, arrived in batches
                for seq, message in enumerate(messages, first)
            ]
        if self.has_gaps and not keeps_dead:
            return [each for each in found if each[0] not in self._log.dead]
        return found

    def forget_unwritten(self) -> None:
        """Write none of the unwritten messages."""
        self._unwritten.clear()
        self.has_gaps = False

    @property
    def is_due(self) -> bool:
        """Whether messages are to leave memory. Few that have returned stay, as files for them are not worth it."""
        ram = self._ram
        return self._left > 0 or (self.lazy and (bool(ram.window) or ram.keeps_many))

    def flush(self, keeps_arrivals: bool) -> None:
        """Write unwritten messages, and page out some.

        Args:
            keeps_arrivals: Whether arrivals are needed even if no message is in memory.
        Raises:
            OSError: Not all could be written; the rest stay in memory.
        """
        appended, self.appended_bytes = self.appended_bytes, 0
        try:
            if self._unwritten:
                self._write()
            if self.is_due:
                new = self._ram.end - self._ram_end
                self._page_out(max(_PAGE_OUT_BYTES, 2 * appended), max(_PAGE_OUT_MESSAGES, 2 * new))
                if not keeps_arrivals and not self._ram:
                    self._ram.forget_arrivals()
        except OSError:
            self._left = 0
            raise
        finally:
            self._ram_end = self._ram.end

    def adopt_window(self) -> None:
        """Count the messages of a store that was in memory as old: they may be paged out in parts."""
        self.may_spill = True
        self._ram_end = self._ram.end

    def begin(self, body_bytes: int) -> bool:
        """Let the next flushes page out this many bytes of bodies, oldest first; return whether there are any."""
        self.drop_stored()
        self._left = min(body_bytes, self._ram.held_bytes)
        return self._left > 0

    def drop_stored(self) -> None:
        """Remove messages from memory that stand before the window and are on disk."""
        self._ram.drop_stored(self.is_stored)

    def is_stored(self, seq: int, message: Message) -> bool:
        """Return whether a message before the window can be read from disk."""
        if isinstance(message, StoredMessage):
            return True
        durable = self._log.stream_of(message.envelope.persistent) is DURABLE
        return durable and seq < self.first_unwritten(seq + 1)

    def preload(self, seq: int, count: int, below: int) -> tuple[int, int]:
        """Preload messages before the window from disk into memory.

        Args:
            seq: Number from which to continue; to begin, that of the first message that was never taken.
            count: Maximum number of messages to check.
            below: Only messages whose body, and body with properties, are shorter than this many bytes.
        Returns:
            The number to continue from, and the number of messages checked; 0 if there are no more.
        """
        ram, log = self._ram, self._log
        if self.lazy or seq >= ram.first_seq:
            return seq, 0
        first, end = next(log.dead.live_runs(seq, ram.first_seq), (0, 0))
        entries = log.read_run(first, min(count, end - first), _PRELOAD_BYTES, _EXPIRES_ANY, False, True) if end else []
        for number, message, _ in entries:
            size = len(message.body)
            if size < below and size + len(message.envelope.header) - _BARE_HEADER_BYTES < below:
                ram.drop_kept([(number, message, False)])
                ram.keep(number, message)
        return (entries[-1][0] + 1 if entries else seq), len(entries)

    # --- internal -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the durable stream."""
        log, batch = self._log, self.unwritten(self.keeps_dead)
        failure = log.append(DURABLE, batch) if batch else None
        if self.has_gaps and self.keeps_dead:
            self._bury_written(batch)
        if failure is not None:
            left = [arrival for arrival in batch if not log.was_written(arrival)]
            self._unwritten = [(seq, [message], arrived) for seq, message, arrived in left]
            self.has_gaps = self.has_gaps and self.keeps_dead
            raise failure
        self.forget_unwritten()

    def _bury_written(self, batch: Sequence[Arrival]) -> None:
        """Count those of the messages just written that had been settled before."""
        log = self._log
        for seq, message, arrived in batch:
            if seq in log.dead and log.was_written((seq, message, arrived)):
                log.bury(seq, seq + 1, DURABLE, len(message.body), ())

    def _page_out(self, body_bytes: int, count: int) -> None:
        """Let messages leave memory: all of them in the lazy mode, else as many as begin() asked for."""
        ram = self._ram
        if not self.lazy:
            body_bytes = min(self._left, body_bytes)
        before = ram.held_bytes
        if self._left or ram.keeps_many:
            # They stand before the window.
            self._page_out_kept(body_bytes)
            if not self.lazy:
                body_bytes -= before - ram.held_bytes
        if ram.window and body_bytes > 0:
            self._page_out_window(body_bytes, count)
        self._left = min(ram.held_bytes, max(0, self._left - (before - ram.held_bytes)))
        if not ram.window:
            self.may_spill = False

    def _page_out_window(self, body_bytes: int, count: int) -> None:
        """Write the oldest messages of the window that are not on disk, then remove them from memory.

        Raises:
            OSError: Not all could be written; the rest stay in memory.
        """
        ram, log = self._ram, self._log
        if ram.window_bytes <= body_bytes and not self.may_spill:
            ram.drop_oldest(len(ram.window))
            return
        oldest = ram.oldest(body_bytes, count)
        failure: OSError | None = None
        if self.may_spill:
            batch = self._to_spill(oldest)
            failure = log.append(SPILL, batch) if batch else None
            if failure is not None:
                left = next(arrival[0] for arrival in batch if not log.was_written(arrival))
                oldest = oldest[: left - ram.first_seq]
        ram.drop_oldest(len(oldest))
        if failure is not None:
            raise failure

    def _page_out_kept(self, body_bytes: int) -> None:
        """Let messages leave memory that stand before the window, and write those that are not on disk.

        Raises:
            OSError: Not all could be written; those stay.
        """
        ram, log = self._ram, self._log
        batch: list[Arrival] = [
            (seq, message, ram.arrival(seq)[0])
            for seq, message in ram.remove_kept(body_bytes)
            if not self.is_stored(seq, message)
        ]
        failure = log.append(SPILL, batch) if batch else None
        if failure is not None:
            for arrival in batch:
                if not log.was_written(arrival):
                    ram.keep(arrival[0], arrival[1])
            raise failure

    def _to_spill(self, messages: Sequence[Message]) -> list[Arrival]:
        """Return the messages at the head of the window that belong to the spill stream."""
        batch: list[Arrival] = []
        arrived = same_until = 0
        for seq, message in enumerate(messages, self._ram.first_seq):
            if self._log.stream_of(message.envelope.persistent) is SPILL:
                if seq >= same_until:
                    arrived, same_until = self._ram.arrival(seq)
                batch.append((seq, message, arrived))
        return batch
