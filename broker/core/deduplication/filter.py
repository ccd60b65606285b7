"""Drops the duplicates of an exchange x-message-deduplication, on the way to what is behind it.

What the exchange remembers may be on disk, so that a restart does not forget it. A value is written when its message is
on disk, and before that is confirmed. So a message that a publisher sends again, because the broker was killed before
the confirm, is a duplicate only if the first one is there; after a confirm it always is. Values are synced with what is
written next, within about a second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.header_values import NEVER, RememberedValues, read_key, read_ttl
from leveret.broker.core.message_stores import SyncWaiter, WriteFailures
from leveret.broker.core.messages import Definition, Publisher, Remembering, Target, leave_out, names_of
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import Work
from leveret.protocol.properties import encode_content_header
from leveret.storage.backings import Backing, LevelBacking
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, StoredMessage, TimedMessage
from leveret.storage.stores.numbered_store import scan_all
from leveret.storage.stores.segment_store import SegmentStore

#: What all records have in common; their bodies are the keys.
_ENVELOPE: Final = Envelope(b"\x00\x00", encode_content_header(0), persistent=True)
#: Records that are read together at a start.
_READ: Final = 4096
#: Records beyond those that are needed, after which the oldest ones are removed; at least, and by values.
_SURPLUS: Final = 4096
_SURPLUS_SHARE: Final = 2
#: The largest number of records removed at once.
_REMOVE: Final = 2048
_ALL_BYTES: Final = 1 << 62
#: Seconds until values are written again whose messages could not be.
_RETRY_SECONDS: Final = 1.0


class Sync(Protocol):
    """Tells when messages are on disk; see MessageStores."""

    def await_sync(self, waiter: SyncWaiter) -> None:
        """Notify a waiter once all messages of this turn are written and synced."""


class ValueLog:
    """Appends values to a store, and removes the oldest records when most are not needed any more.

    Implements SyncWaiter.

    Args:
        backing: The store.
        stores: Tells when messages are on disk.
        offset: Returns what is added to the expiry of a value to get the time of the system's clock.
    """

    __slots__ = (
        "_is_closed", "_is_waiting", "_offset", "_pending", "_stores", "_timers", "_unwritten", "_values", "backing",
    )  # fmt: skip

    def __init__(
        self, backing: LevelBacking, values: RememberedValues, stores: Sync, timers: Timers, offset: Callable[[], int]
    ) -> None:
        self.backing = backing
        self._values = values
        self._stores = stores
        self._timers = timers
        self._offset = offset
        #: Values of this turn, by key.
        self._pending: dict[bytes, int] = {}
        #: Keys of values whose messages are not known to be on disk.
        self._unwritten: set[bytes] = set()
        self._is_waiting = False
        self._is_closed = False

    def load(self, size: int) -> None:
        """Remember what is in the store, up to a number of values.

        The records are gone through as they were written, so that the same values have made room for others.

        Raises:
            UnreadableFileError: The system cannot read them.
        """
        values, offset = self._values, self._offset()
        for entries in scan_all(self.backing.store, _READ):
            for _, record, _ in entries:
                arrived = record.arrived_at if isinstance(record, StoredMessage) else 0
                values.drop_expired(arrived - offset, _READ)
                values.remove(record.body)
                while len(values) >= size:
                    values.drop_oldest()
                values.add(record.body, record.expires_at - offset if record.expires_at else NEVER)

    def add(self, key: bytes, expiry: int) -> None:
        """Write a value as soon as the messages of this turn are on disk."""
        self._pending[key] = expiry
        self._unwritten.add(key)
        if not self._is_waiting:
            self._is_waiting = True
            self._stores.await_sync(self)

    def remove(self, key: bytes) -> None:
        """Do not write a value of this turn: its message was refused."""
        self._pending.pop(key, None)
        self._unwritten.discard(key)

    def write_all(self) -> Iterator[None]:
        """Write all that is remembered now, in steps."""
        keys = list(self._values.expiries)
        for at in range(0, len(keys), _REMOVE):
            if self._is_closed:
                return
            live: dict[bytes, int] = {}
            for key in keys[at : at + _REMOVE]:
                expiry = self._values.expiries.get(key, 0)
                if expiry:
                    live[key] = expiry
            self._append(live)
            yield

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Handle the write of this turn's messages."""
        self._is_waiting = False
        if self._is_closed:
            return None
        if failures.any:
            self._timers.call_later(_RETRY_SECONDS, self._retry)
            return None
        pending, self._pending = self._pending, {}
        return partial(self._synced, pending)

    def delete(self) -> None:
        """Delete the store."""
        self._is_closed = True
        self._pending.clear()
        self._unwritten.clear()
        self.backing.delete()

    def _retry(self) -> None:
        if self._pending and not self._is_waiting and not self._is_closed:
            self._is_waiting = True
            self._stores.await_sync(self)

    def _synced(self, pending: dict[bytes, int]) -> None:
        """Write values whose messages are on disk. The confirms of these follow."""
        if not self._is_closed and pending:
            self._unwritten.difference_update(pending)
            self._append(pending)
            self.backing.write()

    def _append(self, values: dict[bytes, int]) -> None:
        offset = self._offset()
        records = [
            TimedMessage(_ENVELOPE, key, 0 if expiry == NEVER else expiry + offset) for key, expiry in values.items()
        ]
        store = self.backing.store
        if records:
            store.append(records, sum([len(record.body) for record in records]))
        surplus = store.ready_count - len(self._values)
        if surplus > _SURPLUS + len(self._values) // _SURPLUS_SHARE:
            self._remove_oldest(min(_REMOVE, 2 * len(records) + 64))

    def _remove_oldest(self, count: int) -> None:
        """Remove the oldest records; values among them that are remembered are written again."""
        store, offset = self.backing.store, self._offset()
        entries: list[Entry] = store.take(count, _ALL_BYTES)[0]
        again: list[TimedMessage] = []
        for _, record, _ in entries:
            expiry = self._values.expiries.get(record.body, 0)
            if expiry and record.body not in self._unwritten:
                again.append(TimedMessage(_ENVELOPE, record.body, 0 if expiry == NEVER else expiry + offset))
        if again:
            store.append(again, sum([len(record.body) for record in again]))
        store.settle(entries, EventKind.FORGOTTEN)


#: Memory of a value that does not expire, and of one that does, in bytes, as measured.
_VALUE_BYTES: Final = 100
_EXPIRING_BYTES: Final = 170
#: Values that are forgotten in one step, and those that a new one may have forgotten.
_STEP: Final = 512
_STEP_OF_ADD: Final = 16
#: Shortest and longest timer in seconds. Expired values count as forgotten before they are removed.
_TIMER_MIN: Final = 1.0
_TIMER_MAX: Final = 86_400.0
_MILLISECOND: Final = 1000
_SECOND: Final = 1_000_000


class CacheInfo(NamedTuple):
    """What the HTTP API says about remembered values.

    Attributes:
        entries: Number of values.
        memory: Their approximate memory in bytes.
    """

    entries: int
    memory: int


class DuplicateFilter:
    """Drops messages whose value is remembered, and remembers the values of the others.

    Times follow the monotonic clock, so that steps of the system's clock have no effect.

    Attributes:
        size: Maximum number of values; a new one takes the place of the oldest.
        ttl: Milliseconds for which a value is remembered, unless its message says otherwise; None for no limit.
        log: Keeps the values on disk; None if they are in memory only.
    """

    __slots__ = (
        "_base", "_armed_for", "_counters", "_is_closed", "_timer", "_timers", "_values", "_work", "log", "size", "ttl",
    )  # fmt: skip

    def __init__(self, counters: ExchangeCounters, timers: Timers, work: Work) -> None:
        self.size = 1
        self.ttl: int | None = None
        self._counters = counters
        self._timers = timers
        self._work = work
        self.log: ValueLog | None = None
        #: Times are those of the monotonic clock plus this: the time of the system's clock, without its later steps.
        self._base = timers.now() - timers.monotonic()
        self._values = RememberedValues()
        self._timer: Timer | None = None
        #: The time for which the timer is set.
        self._armed_for = 0
        self._is_closed = False

    def set_limits(self, size: int, ttl: int | None) -> None:
        """Set size and TTL. What is remembered stays, up to the new size, and expires as before."""
        self.size, self.ttl = size, ttl
        if len(self._values) > size:
            self._arm(0)

    def keep_on_disk(self, backing: LevelBacking, stores: Sync) -> None:
        """Keep values in a store from now on; remember what is in it, and write what is remembered."""
        self.log = ValueLog(backing, self._values, stores, self._timers, self._offset)
        if len(self._values):
            self._work.begin(self.log.write_all(), "remembered values were written")
        else:
            self.log.load(self.size)
            self._values.drop_expired(self._now(), len(self._values))
            self._arm(0)

    def keep_in_memory(self) -> None:
        """Delete the store; what is remembered stays in memory."""
        if self.log is not None:
            self.log.delete()
            self.log = None

    def _now(self) -> int:
        return self._timers.monotonic() + self._base

    def _offset(self) -> int:
        """Return by how much the system's clock has been set since the start, in microseconds."""
        return self._timers.now() - self._now()

    def info(self) -> CacheInfo:
        """Return the number of values, without expired ones unless these are very many, and their memory."""
        self._values.drop_expired(self._now(), _STEP)
        entries = len(self._values)
        each = _VALUE_BYTES if self._values.next_expiry() == NEVER else _EXPIRING_BYTES
        return CacheInfo(entries, entries * each)

    def close(self) -> None:
        """Forget everything: the exchange has been deleted."""
        self._is_closed = True
        self.keep_in_memory()
        self._values = RememberedValues()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- messages -----------------------------------------------------------------------------------------

    def select(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are not duplicates, and remember their value.

        Args:
            messages: Messages with one envelope, so all have the same value, or none.
        """
        header = messages[0].envelope.header
        key = read_key(header)
        if key is None:
            return messages
        now = self._now()
        if self._values.has(key, now):
            self._counters.deduplicated += len(messages)
            return ()
        if not self._remember(key, header, now):
            return messages
        self._counters.deduplicated += len(messages) - 1
        return messages[:1]

    def select_varied(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are not duplicates, and remember their values; see select().

        Args:
            messages: Messages with different envelopes.
        """
        now, values = self._now(), self._values
        selected: list[Message] = []
        for message in messages:
            header = message.envelope.header
            key = read_key(header)
            if key is not None:
                if values.has(key, now):
                    continue
                self._remember(key, header, now)
            selected.append(message)
        self._counters.deduplicated += len(messages) - len(selected)
        return selected

    def forget(self, message: Message) -> None:
        """Forget the value of a message that no queue has accepted, so that its publisher can try again."""
        key = read_key(message.envelope.header)
        if key is not None:
            self._values.remove(key)
            if self.log is not None:
                self.log.remove(key)

    def _remember(self, key: bytes, header: bytes, now: int) -> bool:
        """Remember a value that is not remembered; return whether its message lets it be."""
        ttl = read_ttl(header)
        if ttl is None:
            ttl = self.ttl
        if ttl is not None and ttl <= 0:
            return False
        values = self._values
        values.drop_expired(now, _STEP_OF_ADD)
        for _ in range(_STEP_OF_ADD):
            if len(values) < self.size:
                break
            values.drop_oldest()
        expiry = NEVER if ttl is None else min(now + ttl * _MILLISECOND, NEVER - 1)
        values.add(key, expiry)
        if expiry != NEVER and (self._timer is None or expiry < self._armed_for):
            self._arm(expiry)
        if self.log is not None:
            self.log.add(key, expiry)
        return True

    # -- forgetting ---------------------------------------------------------------------------------------

    def _arm(self, expiry: int) -> None:
        """Set the timer for the time when a value expires."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._now()
        seconds = min(max((expiry - now) / _SECOND, _TIMER_MIN if expiry else 0.0), _TIMER_MAX)
        self._armed_for = now + int(seconds * _SECOND)
        self._timer = self._timers.call_later(seconds, self._clean)

    def _clean(self) -> None:
        self._timer = None
        if not self._is_closed:
            self._work.begin(self._forget(), "remembered values were forgotten")

    def _forget(self) -> Iterator[None]:
        """Forget what has expired, and what exceeds the size, in steps."""
        values, now = self._values, self._now()
        is_done = False
        while not is_done:
            is_done = values.drop_expired(now, _STEP)
            for _ in range(_STEP):
                if len(values) <= self.size:
                    break
                values.drop_oldest()
            else:
                is_done = False
            if not is_done:
                yield
                if self._is_closed:
                    return
        expiry = values.next_expiry()
        if expiry != NEVER:
            self._arm(expiry)


class FilteredRoute(Target):
    """Takes messages, and passes on those that are not duplicates. It is made with a route, and is as valid as that.

    Args:
        targets: Where its messages are routed to.
        histories: Exchanges x-recent-history and further filters behind it that only remember.
        counters: Counters of the exchange that the messages were published to, which counts them as routed once for
            each of its targets; None if it does not count.
    """

    __slots__ = ("_counters", "_duplicates", "_histories", "targets")

    definition_kind: ClassVar[str] = "exchange"

    def __init__(
        self,
        vhost_name: str,
        name: str,
        duplicates: DuplicateFilter,
        targets: tuple[Target, ...],
        histories: tuple[Remembering, ...] = (),
        counters: ExchangeCounters | None = None,
    ) -> None:
        super().__init__(vhost_name, name, _RouteBacking(targets, duplicates.log is not None))
        self.targets = targets
        self._duplicates = duplicates
        self._histories = histories
        self._counters = counters

    def takes_varied(self) -> bool:
        """Return whether all targets do."""
        return all(target.takes_varied() for target in self.targets) and not self._histories

    def definitions(self) -> list[Definition]:
        """Return the definitions of the exchange and of all targets."""
        return [*super().definitions(), *[each for target in self.targets for each in target.definitions()]]

    def queue_names(self) -> list[str]:
        """Return the names of the queues that its targets are or lead to."""
        return names_of(self.targets)

    def without(self, names: Collection[str | None]) -> Target | None:
        """Return the same without some queues; None if nothing is left."""
        kept = leave_out(self.targets, names)
        if not kept:
            return None
        if len(kept) == len(self.targets):
            return self
        return FilteredRoute(self.vhost_name, self.name, self._duplicates, kept, self._histories, self._counters)

    def decided(self, messages: Sequence[Message]) -> Target:
        """Return what takes those of the messages, when they are published, that are not duplicates now."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)
        return _DecidedRoute(self, passed, tuple([target.decided(passed) for target in self.targets] if passed else ()))

    def remember(self, messages: Sequence[Message]) -> None:
        """Remember the values of messages that reach no queue."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Pass messages on; duplicates count as accepted."""
        passed = self._duplicates.select(messages)
        if passed:
            for history in self._histories:
                history.remember(passed)
        return self.pass_on(passed, self.targets, len(messages), publisher)

    def pass_on(
        self, passed: Sequence[Message], targets: tuple[Target, ...], count: int, publisher: Publisher | None
    ) -> int:
        """Publish messages of one envelope and size that are not duplicates.

        Args:
            targets: Where they are routed to.
            count: How many messages there were before the duplicates were dropped.
            publisher: Who publishes them; None for the broker itself.
        Returns:
            How many of these were accepted, from the front.
        """
        taken = passed_count = len(passed)
        if not taken:
            self._count_out(-count)
            return count
        body_bytes = passed_count * len(passed[0].body)
        most, is_refused = 0, False
        for target in targets:
            if not target.deleted:
                accepted = target.publish(passed, body_bytes, publisher)
                taken, most, is_refused = min(taken, accepted), max(most, accepted), True
        if is_refused and not most:
            self._duplicates.forget(passed[0])
        self._count_out(passed_count * len(targets) - count)
        return count if taken == passed_count else taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Pass messages with different headers and sizes on."""
        passed = self._duplicates.select_varied(messages)
        if len(passed) < len(messages):
            sizes = [len(message.body) for message in passed]
            body_bytes, longest = sum(sizes), max(sizes, default=0)
        self._count_out(len(passed) * len(self.targets) - len(messages))
        if passed:
            for target in self.targets:
                if not target.deleted:
                    target.publish_varied(passed, body_bytes, longest)

    def _count_out(self, more: int) -> None:
        """Correct the number of messages that the exchange has routed, to which each message was added once."""
        if self._counters is not None:
            self._counters.publish_out += more


class _DecidedRoute(Target):
    """Takes the messages of a transaction when it is committed; which are duplicates was decided when they came."""

    __slots__ = ("_passed", "_route", "_targets")

    definition_kind: ClassVar[str] = "exchange"

    def __init__(self, route: FilteredRoute, passed: Sequence[Message], targets: tuple[Target, ...]) -> None:
        super().__init__(route.vhost_name, route.name, route.stored)
        self._route = route
        self._passed = passed
        self._targets = targets

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Pass on the messages that are not duplicates."""
        return self._route.pass_on(self._passed, self._targets, len(messages), publisher)

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Do the same; transactions have no such batches."""
        self.publish(messages, body_bytes)


class _RouteBacking(Backing):
    """Where the messages of some targets are kept, as far as confirms depend on it."""

    __slots__ = ("_targets",)

    def __init__(self, targets: tuple[Target, ...], keeps_values: bool) -> None:
        stored = [target.stored for target in targets]
        # Values on disk are written before the confirm, whatever the messages are.
        super().__init__(
            keeps_values or any(each.awaits_sync for each in stored),
            keeps_values or any(each.persists_transient for each in stored),
        )
        self._targets = targets

    def stores(self) -> Collection[SegmentStore]:
        """The stores on disk of all targets."""
        return [store for target in self._targets for store in target.stored.stores()]
