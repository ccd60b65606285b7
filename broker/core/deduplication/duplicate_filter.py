"""Drops the duplicates of one exchange x-message-deduplication."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.deduplication.header_value import read_key, read_ttl
from leveret.broker.core.deduplication.remembered_values import NEVER, RememberedValues
from leveret.broker.core.deduplication.value_log import Sync, ValueLog
from leveret.broker.core.message_stores.value_backing import ValueBacking
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.message import Message

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

    Args:
        counters: Counters of the exchange.
        timers: Clock and timers.
        turn: Provides time slices.

    Attributes:
        size: Maximum number of values; a new one takes the place of the oldest.
        ttl: Milliseconds for which a value is remembered, unless its message says otherwise; None for no limit.
        log: Keeps the values on disk; None if they are in memory only.
    """

    __slots__ = (
        "_base", "_armed_for", "_counters", "_is_closed", "_timer", "_timers", "_turn", "_values", "log", "size", "ttl",
    )  # fmt: skip

    def __init__(self, counters: ExchangeCounters, timers: Timers, turn: Turn) -> None:
        self.size = 1
        self.ttl: int | None = None
        self._counters = counters
        self._timers = timers
        self._turn = turn
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

    def keep_on_disk(self, backing: ValueBacking, stores: Sync) -> None:
        """Keep values in a store from now on; remember what is in it, and write what is remembered."""
        self.log = ValueLog(backing, self._values, stores, self._timers, self._offset)
        if len(self._values):
            self._write_slice(self.log.write_all())
        else:
            self.log.load(self.size)
            self._values.drop_expired(self._now(), len(self._values))
            self._arm(0)

    def keep_in_memory(self) -> None:
        """Delete the store; what is remembered stays in memory."""
        if self.log is not None:
            self.log.delete()
            self.log = None

    def _write_slice(self, steps: Iterator[None]) -> None:
        time_slice = self._turn.slice()
        for _ in steps:
            if time_slice.is_over():
                self._timers.call_later(0, partial(self._write_slice, steps))
                return

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
        """Forget what has expired, and what exceeds the size, in time slices."""
        self._timer = None
        if self._is_closed:
            return
        values, now, time_slice = self._values, self._now(), self._turn.slice()
        is_done = False
        while not is_done:
            is_done = values.drop_expired(now, _STEP)
            for _ in range(_STEP):
                if len(values) <= self.size:
                    break
                values.drop_oldest()
            else:
                is_done = False
            if not is_done and time_slice.is_over():
                self._arm(0)
                return
        expiry = values.next_expiry()
        if expiry != NEVER:
            self._arm(expiry)
