"""The messages of a store that are in memory: those that wait to be written, and those kept beside the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.format import Stream
from storage.interface import Entry
from storage.message import Message
from storage.segment import Arrival
from storage.stored_message import StoredMessage


class RamMessages:
    """Messages by number, with the time of their arrival.

    Without a limit to speak of, the lazy mode, all messages are written and none is kept. With one, transient
    messages are not written until the limit is reached, and persistent ones are kept beside the disk as long as all
    messages before them are in memory too: what is kept is the head of the queue.

    Args:
        next_seq: Number of the next message; those before it are on disk.

    Attributes:
        limit: Bytes of bodies that may be kept; 0 for the lazy mode.
        held_bytes: Bytes of bodies that are kept or wait.
    """

    __slots__ = ("_cached", "_gap_end", "_waiting", "held_bytes", "limit")

    def __init__(self, next_seq: int) -> None:
        self.limit = 0
        self.held_bytes = 0
        #: Not on disk, or not yet.
        self._waiting: dict[int, tuple[Message, int]] = {}
        #: On disk too; never taken.
        self._cached: dict[int, tuple[Message, int]] = {}
        #: A message below this that was never taken may be on disk only.
        self._gap_end = next_seq

    def __len__(self) -> int:
        return len(self._waiting) + len(self._cached)

    def append(self, seq: int, messages: Iterable[Message], arrived: int, body_bytes: int) -> int:
        """Have messages wait; return the number behind the last one.

        Args:
            seq: Number of the first.
            messages: In order.
            arrived: When they came, in microseconds.
            body_bytes: Sum of their body lengths.
        """
        waiting = self._waiting
        for message in messages:
            waiting[seq] = message, arrived
            seq += 1
        self.held_bytes += body_bytes
        return seq

    def read_run(self, seq: int, count: int, body_bytes: int, expired_at: int, redelivered: bool) -> list[Entry]:
        """Messages whose numbers follow each other; see SegmentReader.read_run()."""
        entries: list[Entry] = []
        if not self._waiting and not self._cached:
            return entries
        waiting, cached = self._waiting, self._cached
        for at in range(seq, seq + count):
            found = waiting.get(at) or cached.get(at)
            if found is None or body_bytes <= 0:
                break
            message, arrived = found
            expires_at = message.expires_at
            if expired_at and not 0 < expires_at <= expired_at:
                break
            entries.append((at, StoredMessage(message.envelope, message.body, expires_at, arrived), redelivered))
            body_bytes -= len(message.body)
        return entries

    def taken(self, entries: Iterable[Entry]) -> None:
        """Keep messages no longer that are on disk and have been taken."""
        cached = self._cached
        if cached:
            for seq, message, _ in entries:
                if cached.pop(seq, None) is not None:
                    self.held_bytes -= len(message.body)

    def settle(self, seq: int) -> bool:
        """Forget a taken message; tell whether it was not on disk."""
        found = self._waiting.pop(seq, None)
        if found is None:
            return False
        self.held_bytes -= len(found[0].body)
        return True

    def to_write(self, stream_of: Callable[[bool], Stream]) -> list[Arrival]:
        """What has to be written now, in order."""
        spill = not self.limit or self.held_bytes > self.limit
        return [
            (seq, message, arrived)
            for seq, (message, arrived) in self._waiting.items()
            if spill or stream_of(message.envelope.persistent) is Stream.DURABLE
        ]

    def written(self, batch: Iterable[Arrival], cursor: int, next_seq: int) -> None:
        """Note that messages are on disk now.

        Args:
            batch: All or some of those that had to be written.
            cursor: The first message that was never taken.
            next_seq: Number of the next message.
        """
        keep = 0 < self.limit >= self.held_bytes and cursor >= self._gap_end
        for seq, message, arrived in batch:
            del self._waiting[seq]
            if keep and seq >= cursor:
                self._cached[seq] = message, arrived
            else:
                self.held_bytes -= len(message.body)
        self._gap_end = 0 if keep else next_seq

    def next_seq(self, seq: int, end: int) -> int:
        """The lowest number from `seq` on that is here; `end` if there is none below it."""
        return min([end, *(at for each in (self._waiting, self._cached) for at in each if at >= seq)])

    def forget(self, is_ready: Callable[[int], bool]) -> None:
        """Forget all messages for whose numbers `is_ready` holds."""
        for seq in [at for at in self._waiting if is_ready(at)]:
            self.settle(seq)
        self.drop_cache()

    def drop_cache(self) -> None:
        """Keep only what is not on disk."""
        self.held_bytes -= sum(len(message.body) for message, _ in self._cached.values())
        if self._cached:
            self._gap_end = max(self._cached) + 1
        self._cached.clear()

    def count(self, stream: Stream, stream_of: Callable[[bool], Stream]) -> int:
        """How many wait that go to a stream."""
        return sum(stream_of(message.envelope.persistent) is stream for message, _ in self._waiting.values())

    def oldest(self) -> int:
        """When the first one came that waits; 0 if none does."""
        return next(iter(self._waiting.values()))[1] if self._waiting else 0
