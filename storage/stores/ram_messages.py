"""In-memory messages of a store: the window of newest messages, and single older ones."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from leveret.storage.interface import Entry
from leveret.storage.message import Message, StoredMessage

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
