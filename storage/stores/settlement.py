"""Groups settled messages into runs; each run is one event and one range of dead numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message, StoredMessage
from leveret.storage.seq_ranges import SeqRanges
from leveret.storage.stores.ram_messages import RamMessages

#: A run ends where waits differ by more than this, in microseconds, and by more than a tenth.
_WAIT_STEP: Final = 100_000
#: Messages that are settled for these reasons have copies elsewhere, or records that were written again at the end.
_MOVES: Final = (EventKind.RETURNED, EventKind.MOVED, EventKind.ROUTED, EventKind.FORGOTTEN)


class SettledRun:
    """Settled messages with consecutive numbers and equal attributes.

    Attributes:
        first: Sequence number of the first message.
        end: Sequence number after the last message.
        durable: Whether they survive a restart.
        stored: Whether they are on disk.
        redelivered: Whether they had been delivered before.
        wait: Longest time that one of them waited, in microseconds.
        least_wait: Shortest time that one of them waited.
        waits: Sum of the times that they waited.
        body_bytes: Sum of their body lengths.
    """

    __slots__ = ("body_bytes", "durable", "end", "first", "least_wait", "redelivered", "stored", "wait", "waits")

    def __init__(
        self,
        first: int,
        end: int,
        durable: bool,
        stored: bool,
        redelivered: bool,
        wait: int,
        body_bytes: int,
        least_wait: int,
        waits: int,
    ) -> None:
        self.first: Final = first
        self.end: Final = end
        self.durable: Final = durable
        self.stored: Final = stored
        self.redelivered: Final = redelivered
        self.wait: Final = wait
        self.body_bytes: Final = body_bytes
        self.least_wait: Final = least_wait
        self.waits: Final = waits


def settled_runs(
    entries: Sequence[Entry], now: int, ram: RamMessages, durable: bool, persists_transient: bool, unwritten: int
) -> list[SettledRun]:
    """Group entries into runs.

    Args:
        entries: Entries, not empty; the runs are longest in order of sequence number.
        now: Microseconds since 1970.
        ram: Provides the arrival of messages that were not read from disk.
        durable: Whether persistent messages survive a restart.
        persists_transient: Whether all messages survive a restart.
        unwritten: First number of the durable stream that is not on disk yet.
    """
    if len(entries) > 1:
        return [*_grouped(entries, now, ram, durable, persists_transient, unwritten)]
    seq, message, redelivered = entries[0]
    is_read = isinstance(message, StoredMessage)
    survives = persists_transient or (durable and message.envelope.persistent)
    stored = seq < unwritten if survives else is_read
    arrived = message.arrived_at if isinstance(message, StoredMessage) else ram.arrival(seq)[0]
    wait = now - arrived
    return [SettledRun(seq, seq + 1, survives, stored, redelivered, wait, len(message.body), wait, wait)]


def _grouped(
    entries: Sequence[Entry], now: int, ram: RamMessages, durable: bool, persists_transient: bool, unwritten: int
) -> Iterator[SettledRun]:
    """Group entries into runs; see settled_runs()."""
    first = end = run_bytes = shortest = longest = wait = waits = 0
    like = True, False, False
    # Arrival of the messages with numbers in this range.
    same_from = same_until = arrived = 0
    # The previous message, if it was in memory; numbers below `until` with the same envelope extend its run.
    before: Message | None = None
    until = 0
    for seq, message, redelivered in entries:
        if (
            seq == end
            and before is not None
            and seq < until
            and message.envelope is before.envelope
            and redelivered is like[2]
            and not isinstance(message, StoredMessage)
        ):
            end += 1
            run_bytes += len(message.body)
            waits += wait
            continue
        if persists_transient or (durable and message.envelope.persistent):
            this = True, seq < unwritten, redelivered
        else:
            this = False, isinstance(message, StoredMessage), redelivered
        if isinstance(message, StoredMessage):
            before = None
            wait = now - message.arrived_at
        else:
            before = message
            if not same_from <= seq < same_until:
                same_from = seq
                arrived, same_until = ram.arrival(seq)
            until = min(same_until, unwritten) if seq < unwritten else same_until
            wait = now - arrived
        if seq == end and this == like and (wait == longest or _are_close(wait, shortest, longest)):
            end = seq + 1
            if wait != longest:
                shortest, longest = min(shortest, wait), max(longest, wait)
            run_bytes += len(message.body)
            waits += wait
        else:
            if end:
                yield SettledRun(first, end, *like, longest, run_bytes, shortest, waits)
            first, end, like, run_bytes = seq, seq + 1, this, len(message.body)
            shortest = longest = waits = wait
    yield SettledRun(first, end, *like, longest, run_bytes, shortest, waits)


def _are_close(wait: int, shortest: int, longest: int) -> bool:
    """Return whether a wait is close enough to share an event with a run."""
    return max(longest, wait) - min(shortest, wait) <= max(_WAIT_STEP, longest // 10)


def lives_on(kind: EventKind, flags: int) -> bool:
    """Return whether messages settled for this reason have copies, elsewhere or under new numbers."""
    return bool(flags & DEAD_LETTERED) or kind in _MOVES


class Leaving:
    """Runs of moved messages, in the order in which they were settled.

    They are gone for users of the store. On disk they are settled after their copies have been synced.

    Attributes:
        body_bytes: Sum of their body lengths.
        uncovered: Number of newest runs whose copies are in no commit group yet.
    """

    __slots__ = ("_runs", "body_bytes", "count", "uncovered")

    def __init__(self) -> None:
        #: Most stores never have any, and an empty deque takes 600 bytes.
        self._runs: deque[tuple[SettledRun, EventKind, int]] | None = None
        self.count = self.body_bytes = self.uncovered = 0

    def __len__(self) -> int:
        return 0 if self._runs is None else len(self._runs)

    def add(self, run: SettledRun, kind: EventKind, flags: int) -> None:
        """Add a run.

        Args:
            run: Messages in the files of the durable stream.
            flags: Event flags.
        """
        if self._runs is None:
            self._runs = deque()
        self._runs.append((run, kind, flags))
        self.count += run.end - run.first
        self.body_bytes += run.body_bytes
        self.uncovered += 1

    def cover(self) -> int:
        """Mark all runs as covered by a commit group; return how many of them were not covered before."""
        covered, self.uncovered = self.uncovered, 0
        return covered

    def numbers(self) -> SeqRanges:
        """Return the numbers of all messages."""
        numbers = SeqRanges()
        for run, _, _ in self._runs or ():
            numbers.add(run.first, run.end)
        return numbers

    def pop(self) -> tuple[SettledRun, EventKind, int]:
        """Remove and return the oldest run. There must be one."""
        assert self._runs is not None
        run, kind, flags = self._runs.popleft()
        self.count -= run.end - run.first
        self.body_bytes -= run.body_bytes
        return run, kind, flags

    def clear(self) -> None:
        """Remove all runs."""
        self._runs = None
        self.count = self.body_bytes = self.uncovered = 0
