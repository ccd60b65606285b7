"""Base class of queues: messages, length limits and expiry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from leveret.broker.core.message_stores.backing import QueueBacking
from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.queues.host import QueueHost
from leveret.broker.core.queues.limits import Limits
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.policies.dead_letter import EXPIRED, MAXLEN
from leveret.policies.settings import QueueSettings
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message, TimedMessage
from leveret.storage.stores.priority_store import PriorityStore

#: Messages dropped or expired between two checks of the time slice: less than a millisecond, without dead letters.
_DROP_STEP: Final = 512
_ALL_BYTES: Final = 1 << 62

#: Upper bound of expiry times, in microseconds since 1970: message-ttl has no upper bound.
_LATEST: Final = (1 << 63) - 2


class QueueContents(ABC):
    """The messages of a queue, without consumers.

    Args:
        host: The virtual host of the queue.
        backing: Where its messages are kept.

    Attributes:
        store: The message store.
        settings: Effective settings, merged from arguments and policies.
        scheduled: True while deliver() is scheduled for the end of the turn; maintained by Turn.
        deleted: True once the queue is deleted; settling messages then has no effect.
    """

    scheduled: bool
    deleted: bool

    __slots__ = (
        "_is_shrinking", "_limits", "_may_have_timed", "_untimed_since", "counters", "host", "settings", "backing",
        "store",
    )  # fmt: skip

    def __init__(self, host: QueueHost, backing: QueueBacking) -> None:
        self.host = host
        self.backing = backing
        self.store: MessageStore = backing.store
        self.settings = QueueSettings()
        self.counters = QueueCounters()
        self._limits: Limits | None = None
        #: New settings require eviction, even if overflow is now reject-publish.
        self._is_shrinking = False
        #: Whether a ready message may have an expiry time.
        self._may_have_timed = self.store.ready_count > 0
        #: Messages without an expiry time appended since the last message with one.
        self._untimed_since = 0

    @property
    def has_limits(self) -> bool:
        """Whether length limits are in force."""
        return self._limits is not None

    def _set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or also in memory as far as there is room."""
        self.backing.set_lazy(lazy)
        self.store = self.backing.store

    def page_out(self, body_bytes: int) -> None:
        """Page about this many bytes of bodies out to disk."""
        self.backing.page_out(body_bytes)
        self.store = self.backing.store

    def _append(
        self, messages: Sequence[Message], body_bytes: int, ttl: int | None, longest: int | None = None
    ) -> None:
        if ttl is not None:
            expires_at = min(self.host.timers.now() + ttl * 1000, _LATEST)
            messages = [TimedMessage(message.envelope, message.body, expires_at) for message in messages]
            self._note_timed_message()
        elif self._may_have_timed:
            self._untimed_since += len(messages)
        self.store.append(messages, body_bytes, longest)
        self.counters.published += len(messages)

    # -- expiry times -------------------------------------------------------------------------------------

    def _note_timed_message(self) -> None:
        """Note that a message with an expiry time was added. Messages in front of it may still be ready, too."""
        self._may_have_timed = True
        self._untimed_since = 0

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Return messages to their positions in the store, without any further effect."""
        self.store.requeue(entries)
        self._note_returned(entries)

    def _note_returned(self, entries: Sequence[Entry]) -> None:
        """Note whether messages that were put back have expiry times."""
        if any(entry[1].expires_at for entry in entries):
            self._note_timed_message()

    def _update_may_have_timed(self) -> None:
        """Update whether a ready message may have an expiry time.

        None has one if at most as many are ready as have arrived since the last message with an expiry time. With
        priorities that does not follow, as later messages may leave first; then none has one only if none is ready.
        """
        ready = self.store.ready_count
        has_priorities = type(self.store) is PriorityStore
        self._may_have_timed = ready > (0 if has_priorities else self._untimed_since)

    # -- dropping -----------------------------------------------------------------------------------------

    def _evict(self, time_slice: TimeSlice) -> bool:
        """Drop the oldest messages while a limit is exceeded and time is left; return whether it is finished."""
        limits, store = self._limits, self.store
        if limits is None or (limits.refuses and not self._is_shrinking):
            return True
        while limits.exceeded(store):
            if time_slice.is_over():
                return False
            excess = limits.excess_messages(store)
            if excess > 0:
                self._drop_oldest(min(excess, _DROP_STEP), _ALL_BYTES, EventKind.MAXLEN)
            else:
                self._drop_oldest(_DROP_STEP, limits.excess_bytes(store), EventKind.MAXLEN_BYTES)
        self._is_shrinking = False
        return True

    def _evict_now(self) -> None:
        """Drop the oldest messages while a limit is exceeded; continue in the next turn if it takes too long."""
        if not self._evict(self.host.turn.slice()):
            self.host.turn.deliver_later(self)

    def _drop_oldest(self, count: int, body_bytes: int, kind: EventKind) -> None:
        """Drop excess messages from the head. Bodies are read only for dead-lettering."""
        if self.settings.dead_letter_exchange is None:
            dropped, _ = self.store.drop(count, body_bytes, kind)
            self.counters.dropped[MAXLEN] += dropped
            return
        entries, _ = self.store.take(count, body_bytes)
        self._drop(entries, MAXLEN, kind)

    def _expire(self, time_slice: TimeSlice) -> bool:
        """Drop expired messages from the head while time is left; return whether it is finished."""
        now = self.host.timers.now()
        while not time_slice.is_over():
            if self._expire_step(now) < _DROP_STEP:
                return True
        head = self.store.peek()
        return head is None or not 0 < head.expires_at <= now

    def _expire_step(self, now: int) -> int:
        """Drop a batch of expired messages from the head; return their number."""
        if self.settings.dead_letter_exchange is None:
            expired, _ = self.store.drop_expired(now, _DROP_STEP)
            self.counters.dropped[EXPIRED] += expired
            return expired
        entries = self.store.take_expired(now, _DROP_STEP)
        if entries:
            self._drop(entries, EXPIRED, EventKind.EXPIRED)
        return len(entries)

    def _drop(self, entries: Sequence[Entry], reason: str, kind: EventKind) -> None:
        """Remove taken messages permanently, and dead-letter them if a dead-letter exchange is set.

        Args:
            entries: The messages.
            reason: The reason in the x-death header.
            kind: The event in the event log.
        """
        self.counters.dropped[reason] += len(entries)
        if self.settings.dead_letter_exchange is not None:
            self._dead_letter(self._as_dead_letters(entries), reason, entries, kind)
        else:
            self.store.settle(entries, kind)

    def settle_dead_letters(self, batch: DeadLetterBatch) -> None:
        """Settle a batch of dead letters that has been published, as far as it was routable."""
        if batch.entries and not self.deleted:
            self.store.settle(batch.entries, batch.kind, DEAD_LETTERED)

    def _as_dead_letters(self, entries: Sequence[Entry]) -> list[Message]:
        """Return the messages as they are dead-lettered."""
        return [entry[1] for entry in entries]

    def evict_and_expire(self, time_slice: TimeSlice) -> bool:
        """Apply limits and expiry while time is left; return whether both are finished."""
        if self._limits is not None and not self._evict(time_slice):
            return False
        return not self._may_have_timed or self._expire(time_slice)

    @abstractmethod
    def deliver(self) -> None:
        """Apply limits and expiry, then deliver ready messages to consumers."""

    @abstractmethod
    def _dead_letter(
        self, letters: Sequence[Message], reason: str, entries: Sequence[Entry] = (), kind: EventKind = EventKind.MAXLEN
    ) -> None:
        """Publish messages to the dead-letter exchange; the arguments are those of DeadLetterBatch."""
