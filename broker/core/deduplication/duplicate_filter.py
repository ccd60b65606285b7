"""Drops the duplicates of one exchange x-message-deduplication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from leveret.broker.core.deduplication.header_value import read_key, read_ttl
from leveret.broker.core.deduplication.remembered_values import NEVER, RememberedValues
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.stats.counters import ExchangeCounters
from leveret.storage.message import Message

#: Memory of a value, in bytes, without a data directory; see RememberedValues.
_VALUE_BYTES: Final = 150
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
    """

    __slots__ = ("_armed_for", "_counters", "_is_closed", "_timer", "_timers", "_turn", "_values", "size", "ttl")

    def __init__(self, counters: ExchangeCounters, timers: Timers, turn: Turn) -> None:
        self.size = 1
        self.ttl: int | None = None
        self._counters = counters
        self._timers = timers
        self._turn = turn
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

    def info(self) -> CacheInfo:
        """Return the number of values, without expired ones unless these are very many, and their memory."""
        self._values.drop_expired(self._timers.monotonic(), _STEP)
        entries = len(self._values)
        return CacheInfo(entries, entries * _VALUE_BYTES)

    def close(self) -> None:
        """Forget everything: the exchange has been deleted."""
        self._is_closed = True
        self._values = RememberedValues()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- messages -----------------------------------------------------------------------------------------

    def select(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are no duplicates, and remember their value.

        Args:
            messages: Messages with one envelope, so all have the same value, or none.
        """
        header = messages[0].envelope.header
        key = read_key(header)
        if key is None:
            return messages
        now = self._timers.monotonic()
        if self._values.has(key, now):
            self._counters.deduplicated += len(messages)
            return ()
        if not self._remember(key, header, now):
            return messages
        self._counters.deduplicated += len(messages) - 1
        return messages[:1]

    def select_varied(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages that are no duplicates, and remember their values; see select().

        Args:
            messages: Messages with different envelopes.
        """
        now, values = self._timers.monotonic(), self._values
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
        if ttl is None:
            values.add(key, NEVER)
        else:
            expiry = min(now + ttl * _MILLISECOND, NEVER - 1)
            values.add(key, expiry)
            if self._timer is None or expiry < self._armed_for:
                self._arm(expiry)
        return True

    # -- forgetting ---------------------------------------------------------------------------------------

    def _arm(self, expiry: int) -> None:
        """Set the timer for the time when a value expires."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._timers.monotonic()
        seconds = min(max((expiry - now) / _SECOND, _TIMER_MIN if expiry else 0.0), _TIMER_MAX)
        self._armed_for = now + int(seconds * _SECOND)
        self._timer = self._timers.call_later(seconds, self._clean)

    def _clean(self) -> None:
        """Forget what has expired, and what exceeds the size, in time slices."""
        self._timer = None
        if self._is_closed:
            return
        values, now, time_slice = self._values, self._timers.monotonic(), self._turn.slice()
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
