"""Messages that wait until they are due: where they are stored, and when each is due."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry, Look
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stores.numbered_store import NumberedStore

#: Entries of a block that is full; a block is divided at twice as many.
_BLOCK: Final = 1024


class _Block:
    """Consecutive entries of the index.

    Attributes:
        times: When the messages are due, ascending.
        numbers: Their numbers; ascending where times are equal.
    """

    __slots__ = ("numbers", "times")

    def __init__(self, times: array[int], numbers: array[int]) -> None:
        self.times = times
        self.numbers = numbers


class DueIndex:
    """Times and numbers of messages, sorted by time, then by number.

    There are blocks of arrays: 16 bytes for each message, up to 32 if they are added in random order. Adding, and
    removing at the front, take about a microsecond, with a million messages too.
    """

    __slots__ = ("_blocks", "_count", "_lasts")

    def __init__(self) -> None:
        #: Each has at least one entry.
        self._blocks: list[_Block] = []
        #: The last time of each block.
        self._lasts: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: int, first: int, count: int = 1) -> None:
        """Add messages with consecutive numbers that are due at one time.

        Args:
            due: The time.
            first: Number of the first message; of several messages with higher numbers than all that are due then.
            count: Number of messages, at least 1.
        """
        self._count += count
        times, numbers = array("q", [due]) * count, array("Q", range(first, first + count))
        # Messages that were added before with this time come first, unless their number is higher (at a start).
        at = bisect_left(self._lasts, due)
        while at < len(self._lasts) - 1 and self._lasts[at] == due and self._blocks[at].numbers[-1] < first:
            at += 1
        if at == len(self._lasts):
            at -= 1
        if at < 0:
            self._blocks.append(_Block(times, numbers))
            self._lasts.append(due)
            at = 0
        else:
            block = self._blocks[at]
            place = _place(block, due, first)
            block.times[place:place] = times
            block.numbers[place:place] = numbers
            self._lasts[at] = block.times[-1]
        if len(self._blocks[at].times) > 2 * _BLOCK:
            self._divide(at)

    def first_due(self) -> int:
        """Return the earliest time. There must be a message."""
        return self._blocks[0].times[0]

    def last_due(self) -> int:
        """Return the latest time. There must be a message."""
        return self._lasts[-1]

    def clear(self) -> None:
        """Remove all messages."""
        self._blocks.clear()
        self._lasts.clear()
        self._count = 0

    def head(self, until: int, count: int) -> list[tuple[int, int]]:
        """Return time and number of the first messages.

        Args:
            until: Only messages that are due at this time or before.
            count: Maximum number of messages.
        """
        found: list[tuple[int, int]] = []
        for block in self._blocks:
            end = min(bisect_right(block.times, until), count - len(found))
            found += zip(block.times[:end], block.numbers[:end], strict=True)
            if end < len(block.times):
                break
        return found

    def drop(self, count: int) -> None:
        """Remove the first messages, as many as given."""
        self._count -= count
        emptied = 0
        for block in self._blocks:
            if count < len(block.times):
                del block.times[:count], block.numbers[:count]
                break
            count -= len(block.times)
            emptied += 1
        del self._blocks[:emptied], self._lasts[:emptied]

    def find(self, number: int) -> int | None:
        """Return the place of a message in the index, from 0; None if it is not there. It searches all of it."""
        start = 0
        for block in self._blocks:
            try:
                return start + block.numbers.index(number)
            except ValueError:
                start += len(block.numbers)
        return None

    def remove(self, place: int) -> None:
        """Remove the message at a place that find() has returned."""
        at, place = self._locate(place)
        block = self._blocks[at]
        del block.times[place], block.numbers[place]
        self._count -= 1
        if block.times:
            self._lasts[at] = block.times[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def entries(self, place: int, count: int) -> Iterator[tuple[int, int]]:
        """Return time and number of some messages, in order.

        Args:
            place: Place of the first one, from 0.
            count: Maximum number of messages.
        """
        if place >= self._count:
            return
        at, place = self._locate(place)
        while count > 0 and at < len(self._blocks):
            block = self._blocks[at]
            times, numbers = block.times[place : place + count], block.numbers[place : place + count]
            yield from zip(times, numbers, strict=True)
            count -= len(times)
            at, place = at + 1, 0

    def _locate(self, place: int) -> tuple[int, int]:
        """Return the block of a place, and the place in it."""
        for at, block in enumerate(self._blocks):
            if place < len(block.times):
                return at, place
            place -= len(block.times)
        raise IndexError(place)

    def _divide(self, at: int) -> None:
        """Divide a block into several ones."""
        block = self._blocks[at]
        starts = range(0, len(block.times), _BLOCK)
        parts = [_Block(block.times[start : start + _BLOCK], block.numbers[start : start + _BLOCK]) for start in starts]
        self._blocks[at : at + 1] = parts
        self._lasts[at : at + 1] = [part.times[-1] for part in parts]


def _place(block: _Block, due: int, number: int) -> int:
    """Return where a message belongs in a block."""
    low, high = bisect_left(block.times, due), bisect_right(block.times, due)
    return bisect_left(block.numbers, number, low, high)


#: Messages that are entered into the index in one step at a start.
_STEP_MESSAGES: Final = 256
#: Due messages that are taken together, and about how many bytes of their bodies.
_BATCH_MESSAGES: Final = 4096
_BATCH_BYTES: Final = 4 << 20
#: Messages that one step reads: a few milliseconds if they are all over the files.
_READ_MESSAGES: Final = 64
#: Longest timer in seconds; delays have no upper bound.
_TIMER_MAX: Final = 86_400.0
#: Seconds until messages are looked for again that are due, and not written because the disk is full.
_RETRY_SECONDS: Final = 0.05
#: Seconds until messages are read again that the system could not read.
_UNREADABLE_SECONDS: Final = 1.0
_MILLISECOND: Final = 1000
_SECOND: Final = 1_000_000


class WaitingMessage(NamedTuple):
    """One waiting message.

    Attributes:
        number: Its number, which no other message of the schedule ever has.
        due: When it is due, in microseconds since 1970.
        message: The message as stored.
    """

    number: int
    due: int
    message: Message


class Schedule:
    """Messages that wait, of one exchange x-delayed-message or one queue.

    A delay follows the monotonic clock, so that steps of the system's clock have no effect. The time by the system's
    clock is stored with each message (as its expiry), and counts after a restart.

    Args:
        store: Where the messages are stored.
        on_due: Called when messages are due; the caller then uses take_due() until it returns none, then arm_next().

    Attributes:
        closed: Whether the messages are deleted.
        purges: Number of purges so far. Messages that were taken before one are to be settled as purged, too.
    """

    __slots__ = (
        "_armed_for", "_index", "_is_loading", "_is_stalled", "_last_offset", "_on_due", "_store", "_taken_count",
        "_timer", "_timers", "_turn", "closed", "purges",
    )  # fmt: skip

    def __init__(self, store: NumberedStore, timers: Timers, turn: Turn, on_due: Callable[[], None]) -> None:
        self.closed = False
        self.purges = 0
        self._store = store
        self._timers = timers
        self._turn = turn
        self._on_due = on_due
        self._index = DueIndex()
        self._timer: Timer | None = None
        #: The time for which the timer is set.
        self._armed_for = 0
        self._taken_count = 0
        #: What _offset() has returned last.
        self._last_offset = 0
        #: Whether take_due() could not read the next message.
        self._is_stalled = False
        self._is_loading = store.ready_count > 0
        if self._is_loading:
            steps = self._load(store.next_seq)
            timers.call_later(0, partial(self._load_slice, steps))

    @property
    def next_number(self) -> int:
        """Number of the next message."""
        return self._store.next_seq

    @property
    def count(self) -> int:
        """Number of waiting messages."""
        return self._store.ready_count

    @property
    def body_bytes(self) -> int:
        """Sum of their body lengths."""
        return self._store.ready_bytes

    @property
    def left_count(self) -> int:
        """Number of waiting messages, and of those that are taken and not settled yet."""
        return self.count + self._taken_count

    def add(self, envelope: Envelope, messages: Sequence[Message], delay_ms: int) -> None:
        """Store messages.

        Args:
            envelope: The envelope to store them with.
            messages: Messages of one size; at least one.
            delay_ms: Milliseconds until they are due.
        """
        timers, delay = self._timers, delay_ms * _MILLISECOND
        timed = [TimedMessage(envelope, message.body, 0) for message in messages]
        first = self._store.append(timed, len(timed) * len(timed[0].body))
        # Read after the store has noted their arrival: none is to leave before it has waited for all of its time.
        due, expires_at = timers.monotonic() + delay, timers.now() + delay
        for each in timed:
            each.expires_at = expires_at
        self._index.add(due, first, len(timed))
        if self._timer is None or due < self._armed_for:
            self._arm(due)

    # -- at the start -------------------------------------------------------------------------------------

    def _load_slice(self, steps: Iterator[bool]) -> None:
        """Enter messages that were stored before the start into the index, in time slices."""
        time_slice = self._turn.slice()
        for is_stalled in steps:
            if self.closed:
                return
            if is_stalled or time_slice.is_over():
                self._timers.call_later(_UNREADABLE_SECONDS if is_stalled else 0, partial(self._load_slice, steps))
                return
        self._is_loading = False
        self._arm_next()

    def _load(self, end: int) -> Iterator[bool]:
        """Enter messages into the index; the number of the last one is below `end`.

        Returns:
            After each step whether it could not read anything.
        """
        # What the clocks show now is compared once, so that the order by time is kept.
        offset = self._timers.monotonic() - self._timers.now()
        seq = 0
        while seq < end:
            before = seq
            entries, seq = self._store.scan(seq, end, _STEP_MESSAGES)
            first = due = count = 0
            for number, message, _ in entries:
                if number != first + count or message.expires_at != due:
                    if count:
                        self._index.add(due + offset, first, count)
                    first, due, count = number, message.expires_at, 0
                count += 1
            if count:
                self._index.add(due + offset, first, count)
            yield seq == before

    # -- taking out ---------------------------------------------------------------------------------------

    def take_due(self) -> Generator[None, None, list[Entry]]:
        """Take messages that are due, earliest first, then in the order of publishing; some of them if there are many.

        They are read in the order of the files, step by step: single reads in any order would take several times as
        long. The caller routes them, then calls settle().
        """
        due = self._due_entries()
        if not due:
            return []
        # From now on they can neither be cancelled nor be delivered by number.
        self._index.drop(len(due))
        numbers, purges = sorted([number for _, number in due]), self.purges
        found: dict[int, Entry] = {}
        at, left = 0, _BATCH_BYTES
        while at < len(numbers) and left > 0:
            if at:
                yield
                if self.closed or self.purges != purges:
                    self.settle(list(found.values()), EventKind.PURGED)
                    return []
            entries, used = self._store.take(numbers[at : at + _READ_MESSAGES], left)
            if not used:
                self._is_stalled = True
                break
            self._is_stalled = False
            at += used
            self._taken_count += len(entries)
            for entry in entries:
                found[entry[0]] = entry
                left -= len(entry[1].body)
        if at < len(numbers):
            self._put_back(due, found, numbers[at:])
        return [found[number] for _, number in due if number in found]

    def _due_entries(self) -> list[tuple[int, int]]:
        """Return time and number of messages that are due and written, in order; some of them if there are many."""
        index, store = self._index, self._store
        if self._is_loading or self.closed or not len(index):
            return []
        due = index.head(self._timers.monotonic(), _BATCH_MESSAGES)
        for at, (_, number) in enumerate(due):
            if not store.is_written(number):
                # The order is kept: only those before the first one that is not written.
                return due[:at]
        return due

    def _put_back(self, due: Sequence[tuple[int, int]], found: dict[int, Entry], unread: Sequence[int]) -> None:
        """Let messages wait again, because bodies that have been read take too much memory, or the system cannot read.

        Those that precede all unread ones stay taken. If there is none, the first message is read in addition.
        """
        rest = set(unread)
        keeps = next(at for at, (_, number) in enumerate(due) if number in rest)
        if not keeps and not self._is_stalled:
            keeps, number = 1, due[0][1]
            entries, _ = self._store.take([number], 1)
            self._taken_count += len(entries)
            found.update((entry[0], entry) for entry in entries)
        returned: list[Entry] = []
        for time, number in due[keeps:]:
            entry = found.pop(number, None)
            if entry is not None:
                returned.append(entry)
            if entry is not None or number in rest:
                self._index.add(time, number)
        self._taken_count -= len(returned)
        self._store.put_back(returned)

    def take(self, number: int) -> Entry | None:
        """Take one message before it is due; the caller calls settle(). None if it does not wait any more."""
        place = self._index.find(number)
        if place is None or not self._store.is_written(number):
            return None
        entries, used = self._store.take([number], 1)
        if used:
            self._index.remove(place)
        self._taken_count += len(entries)
        return entries[0] if entries else None

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently.

        Args:
            entries: The messages.
            kind: What has become of them. If it is ROUTED or RETURNED, they stay on disk until their copies are there.
        """
        if entries and not self.closed:
            self._taken_count -= len(entries)
            self._store.settle(entries, kind)

    # -- looking ------------------------------------------------------------------------------------------

    def waiting(self, place: int, count: int) -> Iterator[WaitingMessage]:
        """Return waiting messages, the next one that is due first, without those that are not readable yet.

        Args:
            place: Place of the first one, from 0.
            count: Maximum number.
        """
        offset = self._offset()
        for due, number in list(self._index.entries(place, count)):
            message = self._store.read(number) if self._store.is_written(number) else None
            if message is not None:
                yield WaitingMessage(number, due + offset, message)

    def look(self, number: int, count: int, body_bytes: int) -> Look:
        """Look at waiting messages in the order of their numbers; their expiry is the time when they are due.

        Args:
            number: Number of the first message.
            count: Maximum number of messages.
            body_bytes: Stop when the bodies have reached this many bytes.
        """
        return self._store.look(number, count, body_bytes)

    def find(self, number: int) -> WaitingMessage | None:
        """Return a waiting message by its number; None if it does not wait."""
        place = self._index.find(number)
        return None if place is None else next(self.waiting(place, 1), None)

    def due_times(self) -> tuple[int, int] | None:
        """Return when the first and the last message are due, in microseconds since 1970; None if none waits."""
        if not len(self._index):
            return None
        offset = self._offset()
        return self._index.first_due() + offset, self._index.last_due() + offset

    def _offset(self) -> int:
        """Return what the system's clock shows more than the monotonic one.

        It is the same each time, unless it has changed by a millisecond: so are the times that are shown.
        """
        before, now, after = self._timers.monotonic(), self._timers.now(), self._timers.monotonic()
        if not now - after - _MILLISECOND < self._last_offset < now - before + _MILLISECOND:
            self._last_offset = now - before
        return self._last_offset

    # -- timer --------------------------------------------------------------------------------------------

    def arm_next(self) -> None:
        """Set the timer for the next message, after take_due() has returned none."""
        if not self.closed and not self._is_loading:
            self._arm_next()

    def _arm_next(self) -> None:
        if len(self._index):
            due = self._index.first_due()
            is_overdue = due <= self._timers.monotonic() and not self._store.is_written(self._index.head(due, 1)[0][1])
            pause = _UNREADABLE_SECONDS if self._is_stalled else _RETRY_SECONDS if is_overdue else 0.0
            self._arm(due, pause)

    def _arm(self, due: int, at_least: float = 0.0) -> None:
        """Set the timer."""
        if self._is_loading:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = due
        seconds = max(at_least, (due - self._timers.monotonic()) / _SECOND)
        self._timer = self._timers.call_later(min(seconds, _TIMER_MAX), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._on_due()

    # -- removing -----------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Remove all waiting messages; return their number, including those that the caller has taken."""
        purged = self._store.purge() + self._taken_count
        self.purges += 1
        self._index.clear()
        # What is being entered at a start finds nothing any more.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return purged

    def close(self) -> None:
        """Forget the messages, which are deleted, and the callback."""
        self.closed = True
        self._on_due = _do_nothing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _do_nothing() -> None:
    """Do nothing: the callback after the messages are deleted. It also breaks the reference cycle with the owner."""
