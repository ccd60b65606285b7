"""Dead letters of one queue: messages that it drops are published to its dead-letter exchange.

Sources: https://www.rabbitmq.com/docs/dlx, https://www.rabbitmq.com/docs/quorum-queues (at-least-once)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.deduplication.header_values import QueuedValues
from leveret.broker.core.queues.returns import without_count
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.policies.dead_letter import REASONS
from leveret.policies.queue_settings import DEFAULT_SETTINGS, QueueSettings
from leveret.storage.backings import QueueBacking
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, TOLD, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.priority_store import ReturnsStore

#: Delay before dead letters that no queue accepted are published again, in seconds: RabbitMQ's interval.
_RETRY_SECONDS: Final = 180.0


@dataclass(slots=True, eq=False)
class DeadLetterBatch:
    """Messages that a queue drops for one reason.

    Args:
        outbox: The outbox of the source queue.
        messages: The messages as they are dead-lettered, oldest first.
        reason: The reason in the x-death header.
        settings: Settings of the queue when it dropped the messages.
        entries: The store entries of the same messages, which are settled as they are published. Empty for messages
            that are not in the store, or that the outbox settles itself.
        kind: The event in the event log.
        is_told: Whether the publisher of the messages was told that they are refused.
    """

    outbox: DeadLetterOutbox
    messages: Sequence[Message]
    reason: str
    settings: QueueSettings
    entries: Sequence[Entry] = ()
    kind: EventKind = EventKind.MAXLEN
    is_told: bool = False


class DeadLetterOutbox:
    """Removes messages from a queue permanently, and dead-letters them if a dead-letter exchange is set.

    Args:
        backing: Where its messages are kept.
        publish: Publishes a batch; its results are reported to sent() and settle(), step by step.

    Attributes:
        queue_name: Name of the queue.
        counters: Counters of the queue.
        settings: Effective settings of the queue.
        values: Values by which the queue drops duplicates; those of messages that it drops become free.
        retained_count: Number of dead letters that no queue has accepted yet (at-least-once strategy).
        retained_bytes: Body bytes of these.
    """

    __slots__ = (
        "_backing", "_is_closed", "_publish", "_retained", "_retry", "_timers", "_unconfirmed", "counters",
        "queue_name", "retained_bytes", "retained_count", "settings", "values",
    )  # fmt: skip

    def __init__(
        self,
        queue_name: str,
        backing: QueueBacking,
        counters: QueueCounters,
        timers: Timers,
        publish: Callable[[DeadLetterBatch], None],
    ) -> None:
        self.queue_name = queue_name
        self.counters = counters
        self.settings = DEFAULT_SETTINGS
        self.values = QueuedValues()
        self.retained_count = self.retained_bytes = 0
        self._backing = backing
        self._timers = timers
        self._publish = publish
        self._is_closed = False
        #: Unconfirmed dead letters by identity: the message as published, its store entry, and the event to log.
        self._unconfirmed: dict[int, tuple[Message, Entry, EventKind]] = {}
        #: With the reason. Made for the first one: an empty deque takes 760 bytes, in each queue.
        self._retained: deque[tuple[Sequence[Message], str]] | None = None
        self._retry: Timer | None = None

    def apply(self, settings: QueueSettings) -> None:
        """Apply new settings. As in RabbitMQ, retained dead letters are published again at once, or lost."""
        self.settings = settings
        if self._retained:
            self._send_again()

    def drop(self, entries: Sequence[Entry], reason: str, kind: EventKind) -> None:
        """Remove taken messages permanently; with the at-least-once strategy once their dead letters are confirmed.

        Args:
            entries: The messages.
            reason: The reason in the x-death header.
            kind: The event in the event log.
        """
        self.counters.dropped[reason] += len(entries)
        if self.values.is_active:
            self.values.release(self._backing.store, entries)
        if self.settings.dead_letter_exchange is None:
            self._backing.store.settle(entries, kind)
            return
        letters = [entry[1] for entry in entries]
        if isinstance(self._backing.store, ReturnsStore):
            letters = [without_count(letter) for letter in letters]
        if self._sends_at_least_once():
            self._unconfirmed.update(
                (id(letter), (letter, entry, kind)) for letter, entry in zip(letters, entries, strict=True)
            )
            self.send(letters, reason)
        else:
            self.send(letters, reason, entries, kind)

    def remove(self, entries: Sequence[Entry]) -> None:
        """Remove taken messages on request; they count as purged and are not dead-lettered."""
        self.counters.dropped["purged"] += len(entries)
        if self.values.is_active:
            self.values.release(self._backing.store, entries)
        self._backing.store.settle(entries, EventKind.PURGED)

    def send(
        self,
        letters: Sequence[Message],
        reason: str,
        entries: Sequence[Entry] = (),
        kind: EventKind = EventKind.MAXLEN,
        is_told: bool = False,
    ) -> None:
        """Publish messages to the dead-letter exchange, if there is one; the arguments are those of DeadLetterBatch."""
        if self.settings.dead_letter_exchange is not None:
            self._publish(DeadLetterBatch(self, letters, reason, self.settings, entries, kind, is_told))

    def sent(self, letters: Sequence[Message], taken: int, arrived: int, batch: DeadLetterBatch) -> None:
        """Count dead letters that were published.

        The remaining ones are lost, or with the at-least-once strategy kept to be published again.

        Args:
            letters: The dead letters.
            taken: Number of messages, from the first, that all target queues accepted.
            arrived: Number of messages, from the first, that at least one target queue accepted.
            batch: What they are of.
        """
        reason = batch.reason
        unconfirmed = self._unconfirmed
        if unconfirmed and any(id(letter) in unconfirmed for letter in letters):
            self._confirm(letters, taken, reason)
            return
        self.counters.dead_letters_arrived += arrived
        if arrived < len(letters):
            self.counters.dead_letters_lost[reason] += len(letters) - arrived
            if batch.is_told:
                self.counters.refused_told += len(letters) - arrived
            if not self._is_closed:
                body_bytes = sum([len(letter.body) for letter in letters[arrived:]])
                flags = (REASONS.index(reason) + 1) << LETTER_REASON_SHIFT | (TOLD if batch.is_told else 0)
                self._backing.store.note(EventKind.DEAD_LETTER_LOST, len(letters) - arrived, body_bytes, flags)

    def settle(self, batch: DeadLetterBatch, start: int, end: int) -> None:
        """Settle messages of a batch, between two indices, that were published as far as they were routable."""
        if batch.entries and not self._is_closed:
            self._backing.store.settle(batch.entries[start:end], batch.kind, DEAD_LETTERED)

    def close(self) -> None:
        """Forget the retained dead letters of a deleted queue; settling messages then has no effect."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._retained = None
        self._unconfirmed.clear()

    # -- at least once ------------------------------------------------------------------------------------

    def _sends_at_least_once(self) -> bool:
        settings = self.settings
        return (
            settings.dead_letter_exchange is not None
            and settings.dead_letter_strategy == "at-least-once"
            and settings.overflow == "reject-publish"
        )

    def _confirm(self, letters: Sequence[Message], taken: int, reason: str) -> None:
        """Settle dead letters that were accepted by all target queues, and retain the remaining ones."""
        self.counters.dead_letters_arrived += taken
        self.counters.dead_letters_confirmed += taken
        self._settle_letters(letters[:taken], DEAD_LETTERED)
        remaining = [letter for letter in letters[taken:] if id(letter) in self._unconfirmed]
        if not self._sends_at_least_once():
            self._settle_letters(remaining)
        elif remaining:
            self._retain(remaining, reason)

    def _retain(self, letters: Sequence[Message], reason: str) -> None:
        """Keep dead letters to publish them again."""
        if self._retained is None:
            self._retained = deque()
        self._retained.append((letters, reason))
        self._count_retained(letters, 1)
        if self._retry is None:
            self._retry = self._timers.call_later(_RETRY_SECONDS, self._send_again)

    def _count_retained(self, letters: Sequence[Message], sign: int) -> None:
        self.retained_count += sign * len(letters)
        self.retained_bytes += sign * sum([len(letter.body) for letter in letters])

    def _settle_letters(self, letters: Sequence[Message], flags: int = 0) -> None:
        """Settle messages whose dead letters were confirmed, or, without flags, that are lost."""
        for letter in letters:
            found = self._unconfirmed.pop(id(letter), None)
            if found is not None:
                self._backing.store.settle([found[1]], found[2], flags)

    def _send_again(self) -> None:
        """Publish retained dead letters again; if they need not be confirmed any more, their messages are lost."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._sends_at_least_once():
            self._lose_retained()
            return
        retained, self._retained = self._retained or (), None
        self.retained_count = self.retained_bytes = 0
        # Few batches: each takes a time slice.
        for reason, batches in groupby(retained, key=itemgetter(1)):
            self.send([letter for letters, _ in batches for letter in letters], reason)

    def _lose_retained(self) -> None:
        """Settle the messages of retained dead letters, in time slices."""
        time_slice = TimeSlice(self._timers.monotonic)
        while self._retained:
            letters, _ = self._retained.popleft()
            self._count_retained(letters, -1)
            self._settle_letters(letters)
            if self._retained and time_slice.is_over():
                self._retry = self._timers.call_later(0, self._send_again)
                return
