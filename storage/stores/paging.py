"""Writes messages of a store to disk, pages them out of memory, and preloads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.storage.format import DURABLE, SPILL
from leveret.storage.message import Message, StoredMessage
from leveret.storage.segments.message_log import MessageLog
from leveret.storage.segments.segment import Arrival
from leveret.storage.stores.cursor import Cursor
from leveret.storage.stores.ram_messages import RamMessages

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

    Args:
        cursor: Tells where the messages begin that were never taken.

    Attributes:
        has_gaps: Whether some of the unwritten messages may have been settled since.
        keeps_dead: Whether those are written, too, because a named reader wants them.
        lazy: Whether no ready message stays in memory after it has been written.
        may_spill: Whether the window may contain messages that paging out writes to the spill stream.
        appended_bytes: Body bytes appended since the last flush.
    """

    __slots__ = (
        "_cursor", "_left", "_log", "_ram", "_ram_end", "_unwritten", "appended_bytes", "has_gaps", "keeps_dead",
        "lazy", "may_spill",
    )  # fmt: skip

    def __init__(self, ram: RamMessages, log: MessageLog, cursor: Cursor) -> None:
        self._ram = ram
        self._log = log
        self._cursor = cursor
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
            seq: Number from which to continue; 0 to begin.
            count: Maximum number of messages to check.
            below: Only messages whose body, and body with properties, are shorter than this many bytes.
        Returns:
            The number to continue from, and the number of messages checked; 0 if there are no more.
        """
        ram, log, seq = self._ram, self._log, max(seq, self._cursor.position)
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
