"""The messages of one exchange x-delayed-message that wait until they are due."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol

from leveret.broker.core.delays.delay_header import mark_delayed
from leveret.broker.core.delays.due_index import DueIndex
from leveret.broker.core.message_stores.numbered_backing import NumberedBacking
from leveret.broker.core.queues.target import Target
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.stats.counters import ExchangeCounters
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, TimedMessage

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
_MILLISECOND: Final = 1000
_SECOND: Final = 1_000_000


class DueRouter(Protocol):
    """Routes messages that are due."""

    def begin(self, waiting: WaitingMessages) -> None:
        """Route the messages of an exchange that are due."""


class WaitingMessage(NamedTuple):
    """One waiting message.

    Attributes:
        number: Its number, which no other message of the exchange ever has.
        due: When it is due, in microseconds since 1970.
        message: The message, with the header that it will be delivered with.
    """

    number: int
    due: int
    message: Message


class WaitingMessages(Target):
    """Stores messages, and has them routed when they are due.

    A delay follows the monotonic clock, so that steps of the system's clock have no effect. The time by the system's
    clock is stored with each message (as its expiry), and counts after a restart.

    Args:
        vhost_name: Name of the virtual host.
        name: Name of the exchange.
        backing: Where the messages are stored.
        counters: Counters of the exchange.
        timers: Clock and timers.
        turn: Provides time slices.
        router: Routes what is due.

    Attributes:
        limit: Maximum number of waiting messages; None for no limit. More are refused.
        counters: Counters of the exchange.
    """

    __slots__ = (
        "_armed_for", "_delay", "_index", "_is_loading", "_published", "_router", "_store", "_stored_envelope",
        "_taken_count", "_timer", "_timers", "_turn", "backing", "counters", "limit",
    )  # fmt: skip

    definition_kind: ClassVar[str] = "exchange"

    def __init__(
        self,
        vhost_name: str,
        name: str,
        backing: NumberedBacking,
        counters: ExchangeCounters,
        timers: Timers,
        turn: Turn,
        router: DueRouter,
    ) -> None:
        super().__init__(vhost_name, name, backing)
        # Each message has a delay of its own, and some may be refused.
        self.accepts_varied = False
        self.backing = backing
        self.counters = counters
        self.limit: int | None = None
        self._store = backing.messages
        self._timers = timers
        self._turn = turn
        self._router = router
        self._index = DueIndex()
        self._timer: Timer | None = None
        #: The time for which the timer is set.
        self._armed_for = 0
        self._taken_count = 0
        #: The last envelope that was published, with its delay and the envelope that is stored.
        self._published = self._stored_envelope = Envelope(b"", b"")
        self._delay = 0
        self._is_loading = self._store.ready_count > 0
        if self._is_loading:
            steps = self._load(self._store.next_seq)
            timers.call_later(0, partial(self._load_slice, steps))

    @property
    def count(self) -> int:
        """Number of waiting messages."""
        return self._store.ready_count

    @property
    def body_bytes(self) -> int:
        """Sum of their body lengths."""
        return self._store.ready_bytes

    # -- adding -------------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Store messages; those that exceed the limit are refused and counted."""
        taken = len(messages)
        if self.limit is not None:
            taken = max(0, min(taken, self.limit - self.count))
            if taken < len(messages):
                self._refuse(messages[taken:])
                if not taken:
                    return 0
        envelope = messages[0].envelope
        if envelope is not self._published:
            self._delay, self._stored_envelope = mark_delayed(envelope)
            self._published = envelope
        timers, delay = self._timers, self._delay * _MILLISECOND
        due, expires_at, stored = timers.monotonic() + delay, timers.now() + delay, self._stored_envelope
        timed = [TimedMessage(stored, message.body, expires_at) for message in messages[:taken]]
        first = self._store.append(timed, taken * len(timed[0].body))
        self._index.add(due, first, taken)
        if self._timer is None or due < self._armed_for:
            self._arm(due)
        return taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Store messages one by one."""
        for message in messages:
            self.publish([message], len(message.body))

    def _refuse(self, messages: Sequence[Message]) -> None:
        self.counters.refuse += len(messages)
        self._store.refuse(len(messages), sum([len(message.body) for message in messages]))

    # -- at the start -------------------------------------------------------------------------------------

    def _load_slice(self, steps: Iterator[None]) -> None:
        """Enter messages that were stored before the start into the index, in time slices."""
        time_slice = self._turn.slice()
        for _ in steps:
            if self.deleted:
                return
            if time_slice.is_over():
                self._timers.call_later(0, partial(self._load_slice, steps))
                return
        self._is_loading = False
        self._arm_next()

    def _load(self, end: int) -> Iterator[None]:
        """Enter messages into the index; the number of the last one is below `end`."""
        # What the clocks show now is compared once, so that the order by time is kept.
        offset = self._timers.monotonic() - self._timers.now()
        seq = 0
        while seq < end:
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
            yield

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
        numbers = sorted([number for _, number in due])
        found: dict[int, Entry] = {}
        at, left = 0, _BATCH_BYTES
        while at < len(numbers) and left > 0:
            if at:
                yield
                if self.deleted:
                    return []
            entries, used = self._store.take(numbers[at : at + _READ_MESSAGES], left)
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
        if self._is_loading or self.deleted or not len(index):
            return []
        due = index.head(self._timers.monotonic(), _BATCH_MESSAGES)
        for at, (_, number) in enumerate(due):
            if not store.is_written(number):
                # The order is kept: only those before the first one that is not written.
                return due[:at]
        return due

    def _put_back(self, due: Sequence[tuple[int, int]], found: dict[int, Entry], unread: Sequence[int]) -> None:
        """Let messages wait again, because bodies that have been read take too much memory.

        Those that precede all unread ones stay taken. If there is none, the first message is read in addition.

        Args:
            due: Time and number of all messages of the batch, in order.
            found: Those that have been read; some are removed.
            unread: Numbers of those that have not been read.
        """
        rest = set(unread)
        keeps = next(at for at, (_, number) in enumerate(due) if number in rest)
        if not keeps:
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
        self._index.remove(place)
        entries, _ = self._store.take([number], 1)
        self._taken_count += len(entries)
        return entries[0] if entries else None

    def settle(self, entries: Sequence[Entry], kind: EventKind) -> None:
        """Remove taken messages permanently.

        Args:
            entries: The messages.
            kind: What has become of them. They stay on disk until their copies in queues are, if it is ROUTED.
        """
        if entries and not self.deleted:
            self._taken_count -= len(entries)
            self._store.settle(entries, kind)

    # -- looking ------------------------------------------------------------------------------------------

    def waiting(self, place: int, count: int) -> Iterator[WaitingMessage]:
        """Return waiting messages, the next one that is due first, without those that are not readable yet.

        Args:
            place: Place of the first one, from 0.
            count: Maximum number.
        """
        offset = self._timers.now() - self._timers.monotonic()
        for due, number in list(self._index.entries(place, count)):
            message = self._store.read(number) if self._store.is_written(number) else None
            if message is not None:
                yield WaitingMessage(number, due + offset, message)

    def find(self, number: int) -> WaitingMessage | None:
        """Return a waiting message by its number; None if it does not wait."""
        place = self._index.find(number)
        return None if place is None else next(self.waiting(place, 1), None)

    def next_due(self) -> int | None:
        """Return when the next message is due, in microseconds since 1970; None if none waits."""
        if not len(self._index):
            return None
        return self._index.first_due() - self._timers.monotonic() + self._timers.now()

    # -- timer --------------------------------------------------------------------------------------------

    def arm_next(self) -> None:
        """Set the timer for the next message, after take_due() has returned none."""
        if not self.deleted and not self._is_loading:
            self._arm_next()

    def _arm_next(self) -> None:
        if len(self._index):
            due = self._index.first_due()
            is_overdue = due <= self._timers.monotonic() and not self._store.is_written(self._index.head(due, 1)[0][1])
            self._arm(due, _RETRY_SECONDS if is_overdue else 0.0)

    def _arm(self, due: int, at_least: float = 0.0) -> None:
        """Set the timer.

        Args:
            due: A time of the monotonic clock, in microseconds.
            at_least: Minimum delay in seconds.
        """
        if self._is_loading:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = due
        seconds = max(at_least, (due - self._timers.monotonic()) / _SECOND)
        self._timer = self._timers.call_later(min(seconds, _TIMER_MAX), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._router.begin(self)

    # -- deleting -----------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete the messages of a deleted exchange; they are counted as lost."""
        self.deleted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.counters.drop_deleted += self.count + self._taken_count
        self.backing.delete()
