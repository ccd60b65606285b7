"""What is in a queue, and what its limits and times to live leave in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from leveret.broker.core.queues.counters import QueueCounters
from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.queues.host import QueueHost
from leveret.broker.core.queues.limits import Limits
from leveret.broker.core.queues.storage import QueueStorage
from leveret.broker.core.time_slice import TimeSlice
from leveret.policies.dead_letter import EXPIRED, MAXLEN
from leveret.policies.settings import QueueSettings
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry, MessageStore
from leveret.storage.message import Message, TimedMessage
from leveret.storage.stores.priority_store import PriorityStore

#: Messages dropped or expired before the time is looked at: less than a millisecond, without their dead letters.
_DROP_STEP: Final = 512
_ALL_BYTES: Final = 1 << 62

#: The latest time at which a message can expire, in microseconds since 1970: a policy may name any number.
_LATEST: Final = (1 << 63) - 2


class QueueContents(ABC):
    """The messages of a queue without its consumers.

    Args:
        host: Its virtual host.
        storage: Keeps its messages.

    Attributes:
        store: Its messages.
        settings: What is in force: arguments and policies taken together.
        scheduled: Whether deliver() is due at the end of the turn; kept by Turn.
        deleted: It is gone; settling its messages has no effect.
    """

    scheduled: bool
    deleted: bool

    __slots__ = (
        "_is_shrinking", "_limits", "_timed", "_untimed_since", "counters", "host", "settings", "storage", "store",
    )  # fmt: skip

    def __init__(self, host: QueueHost, storage: QueueStorage) -> None:
        self.host = host
        self.storage = storage
        self.store: MessageStore = storage.store
        self.settings = QueueSettings()
        self.counters = QueueCounters()
        self._limits: Limits | None = None
        #: New settings demand that messages go, also if they let new ones be refused from now on.
        self._is_shrinking = False
        #: Whether a message with an expiry time may be among those that wait.
        self._timed = self.store.ready_count > 0
        #: Messages without an expiry time that have come at the tail since the last one with it.
        self._untimed_since = 0

    @property
    def has_limits(self) -> bool:
        """Whether limits of its length are in force."""
        return self._limits is not None

    def _set_lazy(self, lazy: bool) -> None:
        """Keep ready messages on disk only, or in memory as far as there is room."""
        self.storage.set_lazy(lazy)
        self.store = self.storage.store

    def page_out(self, body_bytes: int) -> None:
        """Have about this many bytes of bodies leave memory."""
        self.storage.page_out(body_bytes)
        self.store = self.storage.store

    def _append(
        self, messages: Sequence[Message], body_bytes: int, ttl: int | None, longest: int | None = None
    ) -> None:
        if ttl is not None:
            expires_at = min(self.host.timers.now() + ttl * 1000, _LATEST)
            messages = [TimedMessage(message.envelope, message.body, expires_at) for message in messages]
            self._note_timed()
        elif self._timed:
            self._untimed_since += len(messages)
        self.store.append(messages, body_bytes, longest)
        self.counters.published += len(messages)

    # -- expiry times -------------------------------------------------------------------------------------

    def _note_timed(self) -> None:
        """Note that a message with an expiry time waits: what came before it may still be there too."""
        self._timed = True
        self._untimed_since = 0

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Have messages ready again where they were, and nothing else."""
        self.store.requeue(entries)
        self._note_returned(entries)

    def _note_returned(self, entries: Sequence[Entry]) -> None:
        """Note the expiry times of messages that have been put back."""
        if any(entry[1].expires_at for entry in entries):
            self._note_timed()

    def _find_timed(self) -> None:
        """Find out whether a message with an expiry time may still be waiting.

        None is if no more wait than have come since the last one. That is not so where priorities let later ones go
        first: there none is only if nothing waits at all.
        """
        ready = self.store.ready_count
        has_priorities = type(self.store) is PriorityStore
        self._timed = ready > (0 if has_priorities else self._untimed_since)

    # -- dropping -----------------------------------------------------------------------------------------

    def _evict(self, time_slice: TimeSlice) -> bool:
        """Drop the oldest messages while there are too many and time is left; return whether that is done."""
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
        """Drop the oldest messages while there are too many; what takes too long is left to the next turns."""
        if not self._evict(self.host.turn.slice()):
            self.host.turn.deliver_later(self)

    def _drop_oldest(self, count: int, body_bytes: int, kind: EventKind) -> None:
        """Drop messages at the head that are too many. Their bodies are not read unless they are dead-lettered."""
        if self.settings.dead_letter_exchange is None:
            dropped, _ = self.store.drop(count, body_bytes, kind)
            self.counters.dropped[MAXLEN] += dropped
            return
        entries, _ = self.store.take(count, body_bytes)
        self._drop(entries, MAXLEN, kind)

    def _expire(self, time_slice: TimeSlice) -> bool:
        """Drop messages at the head that have expired, while time is left; return whether that is done."""
        now = self.host.timers.now()
        while not time_slice.is_over():
            if self._expire_step(now) < _DROP_STEP:
                return True
        head = self.store.peek()
        return head is None or not 0 < head.expires_at <= now

    def _expire_step(self, now: int) -> int:
        """Drop some messages at the head that have expired; return how many."""
        if self.settings.dead_letter_exchange is None:
            expired, _ = self.store.drop_expired(now, _DROP_STEP)
            self.counters.dropped[EXPIRED] += expired
            return expired
        entries = self.store.take_expired(now, _DROP_STEP)
        if entries:
            self._drop(entries, EXPIRED, EventKind.EXPIRED)
        return len(entries)

    def _drop(self, entries: Sequence[Entry], reason: str, kind: EventKind) -> None:
        """Remove taken messages for good, by way of the dead-letter exchange if there is one.

        Args:
            entries: The messages.
            reason: Why, as x-death says it.
            kind: Why, as the event log says it.
        """
        self.counters.dropped[reason] += len(entries)
        if self.settings.dead_letter_exchange is not None:
            self._dead_letter(self._letters(entries), reason, entries, kind)
        else:
            self.store.settle(entries, kind)

    def dead_letters_sent(self, batch: DeadLetterBatch) -> None:
        """Learn that all of a batch have been published, as far as they could be: forget them."""
        if batch.entries and not self.deleted:
            self.store.settle(batch.entries, batch.kind, DEAD_LETTERED)

    def _letters(self, entries: Sequence[Entry]) -> list[Message]:
        """Messages as they are dead-lettered."""
        return [entry[1] for entry in entries]

    def tidy(self, time_slice: TimeSlice) -> bool:
        """Drop what limits and expiry demand, while time is left; return whether all is done."""
        if self._limits is not None and not self._evict(time_slice):
            return False
        return not self._timed or self._expire(time_slice)

    @abstractmethod
    def deliver(self) -> None:
        """Drop what must go, then hand ready messages to consumers."""

    @abstractmethod
    def _dead_letter(
        self, letters: Sequence[Message], reason: str, entries: Sequence[Entry] = (), kind: EventKind = EventKind.MAXLEN
    ) -> None:
        """Publish messages to the dead-letter exchange; for the arguments see DeadLetterBatch."""
