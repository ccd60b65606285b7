"""Quorum queues, on the one node that there is.

What clients see is RabbitMQ's: always durable, returned messages are counted, and one that was returned too often is
dropped. The limits are exact, where RabbitMQ's lag behind.

Source: https://www.rabbitmq.com/docs/quorum-queues
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from leveret.broker.core.consumers import Holder
from leveret.broker.core.queues.limits import UNBOUNDED, Limits
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.timers import Timer
from leveret.policies.dead_letter import DELIVERY_LIMIT
from leveret.policies.settings import QueueSettings
from leveret.protocol import properties
from leveret.protocol.field_table import FieldValue, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, TimedMessage
from leveret.storage.stored_message import StoredMessage
from leveret.storage.stores.returns_store import ReturnsStore

#: Redeliveries that a message may have where nothing is set: RabbitMQ's default since 4.0.
_DEFAULT_DELIVERY_LIMIT: Final = 20
#: How long a dead letter that nobody has taken waits for another try, in seconds: RabbitMQ's interval.
_RETRY_SECONDS: Final = 180.0
_COUNT_HEADER: Final = "x-delivery-count"


def _limits(settings: QueueSettings) -> Limits:
    """The limits of these settings: reject-publish-dlx is not known here, and is drop-head."""
    if settings.overflow == "reject-publish-dlx":
        settings = replace(settings, overflow="drop-head")
    return Limits(settings)


class QuorumQueue(Queue):
    """One quorum queue."""

    __slots__ = ("_counted_envelope", "_counted_for", "_retained", "_retry", "_under_way")

    queue_type: Literal["classic", "quorum"] = "quorum"
    make_limits = staticmethod(_limits)
    shares_prefetch = False
    deletes_conditionally = False
    gets_beside_single_active = False
    successor_waits = False
    knows_exclusive_consumers = False
    counts_waiting_consumers = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._counted_for: tuple[Envelope, int] | None = None
        self._counted_envelope = Envelope(b"", b"")
        #: Dead letters that are to arrive: the message as it was sent, where it is kept, why it died. By identity.
        self._under_way: dict[int, tuple[Message, Entry, EventKind]] = {}
        self._retained: list[tuple[Sequence[Message], str]] = []
        self._retry: Timer | None = None

    def get(self, holder: Holder | None) -> Entry | None:
        """Take the message at the head; its headers always show the delivery count."""
        entry = super().get(holder)
        if entry is None or entry[1].envelope.delivery_count is not None:
            return entry
        return entry[0], self._count(entry[1], 0), entry[2]

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put messages back, but for those that have come back too often.

        As in RabbitMQ they go to the tail, unless the queue has a delivery limit of its own: then they come before all
        that has not been delivered yet.
        """
        self._give_back(entries, to_tail=self.settings.delivery_limit is None)

    def requeue_abandoned(self, entries: Sequence[Entry]) -> None:
        """Put messages of a channel that has ended back, before all that has not been delivered yet."""
        self._give_back(entries, to_tail=False)

    def _give_back(self, entries: Sequence[Entry], to_tail: bool) -> None:
        if self.deleted:
            return
        limit = self._delivery_limit()
        spent = [entry for entry in entries if _delivery_count(entry[1]) >= limit]
        returned = [entry for entry in entries if _delivery_count(entry[1]) < limit]
        if spent:
            self._drop(spent, DELIVERY_LIMIT, EventKind.DELIVERY_LIMIT)
        self.counters.requeued += len(returned)
        assert isinstance(self.store, ReturnsStore)
        append = self.store.append if to_tail else self.store.append_returned
        for _, message, _ in returned:
            counted = self._count(message, _delivery_count(message) + 1)
            append([counted], len(counted.body))
        self._note_returned(returned)
        self.store.settle(returned, EventKind.RETURNED)
        # Unlike with classic queues, limits are for what nobody takes.
        if not self._timed or self._expire(self.host.turn.slice()):
            self._serve_consumers()
        self._evict_now()
        self.host.turn.deliver_later(self)

    def _letters(self, entries: Sequence[Entry]) -> list[Message]:
        """Messages as they are dead-lettered: without the delivery count."""
        return [without_count(entry[1]) for entry in entries]

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Take messages at the tail. Dead letters are never refused, as in RabbitMQ: they would be lost."""
        limits = self._limits
        if limits is None or not limits.refuses or not messages[0].envelope.dead:
            return super().publish(messages, body_bytes)
        self._limits = None
        try:
            return super().publish(messages, body_bytes)
        finally:
            self._limits = limits

    # -- dead letters at least once -----------------------------------------------------------------------

    def _drop(self, entries: Sequence[Entry], reason: str, kind: EventKind) -> None:
        """Remove taken messages for good; if their letters are to arrive at least once, they stay until then."""
        if not self._sends_at_least_once():
            super()._drop(entries, reason, kind)
            return
        self.counters.dropped[reason] += len(entries)
        letters = self._letters(entries)
        self._under_way.update(
            (id(letter), (letter, entry, kind)) for letter, entry in zip(letters, entries, strict=True)
        )
        self._dead_letter(letters, reason)

    def dead_lettered(self, messages: Sequence[Message], taken: int, arrived: int, reason: str) -> None:
        """Learn which dead letters have arrived: the others are kept, and sent again later."""
        if not any(id(message) in self._under_way for message in messages):
            super().dead_lettered(messages, taken, arrived, reason)
            return
        self.counters.dead_letters_arrived += taken
        self.counters.dead_letters_confirmed += taken
        self._settle_letters(messages[:taken])
        retained = [message for message in messages[taken:] if id(message) in self._under_way]
        if not retained:
            return
        self._retained.append((retained, reason))
        self.retained_count += len(retained)
        if self._retry is None:
            self._retry = self.host.timers.call_later(_RETRY_SECONDS, self._retry_dead_letters)

    def delete(self) -> int:
        """End the queue, and with it what it retains."""
        if self._retry is not None:
            self._retry.cancel()
        self._retained.clear()
        self._under_way.clear()
        return super().delete()

    def _sends_at_least_once(self) -> bool:
        settings = self.settings
        return (
            settings.dead_letter_strategy == "at-least-once"
            and settings.overflow == "reject-publish"
            and settings.dead_letter_exchange is not None
        )

    def _settle_letters(self, letters: Sequence[Message]) -> None:
        """Forget messages whose letters have arrived."""
        for letter in letters:
            found = self._under_way.pop(id(letter), None)
            if found is not None:
                self.store.settle([found[1]], found[2], DEAD_LETTERED)

    def _retry_dead_letters(self) -> None:
        retained, self._retained = self._retained, []
        self._retry = None
        self.retained_count = 0
        for messages, reason in retained:
            if self.settings.dead_letter_exchange is None:
                self._settle_letters(messages)
            else:
                self._dead_letter(messages, reason)

    # -- inside -------------------------------------------------------------------------------------------

    def _delivery_limit(self) -> int:
        limit = self.settings.delivery_limit
        if not isinstance(limit, int):
            return _DEFAULT_DELIVERY_LIMIT
        return UNBOUNDED if limit < 0 else limit

    def _count(self, message: Message, delivery_count: int) -> Message:
        """The message with its delivery count in the headers; the last such envelope is kept, as they repeat."""
        wanted = (message.envelope, delivery_count)
        if self._counted_for != wanted:
            self._counted_for = wanted
            self._counted_envelope = _with_count(message.envelope, delivery_count)
        return _with_envelope(message, self._counted_envelope)


def _delivery_count(message: Message) -> int:
    return message.envelope.delivery_count or 0


def without_count(message: Message) -> Message:
    """A message as it was published: what it says of its deliveries is the queue's own."""
    if message.envelope.delivery_count is None:
        return message
    return _with_envelope(message, _with_count(message.envelope, None))


def _with_envelope(message: Message, envelope: Envelope) -> Message:
    """The same message, saying something else."""
    if isinstance(message, StoredMessage):
        return StoredMessage(envelope, message.body, message.expires_at, message.arrived_at)
    if message.expires_at:
        return TimedMessage(envelope, message.body, message.expires_at)
    return Message(envelope, message.body)


def _with_count(envelope: Envelope, delivery_count: int | None) -> Envelope:
    published = Properties(envelope.header)
    headers = tuple(entry for entry in published.headers() if entry[0] != _COUNT_HEADER)
    if delivery_count is not None:
        headers = sort_table(normalize((*headers, (_COUNT_HEADER, FieldValue("l", delivery_count)))))
    return Envelope(
        envelope.route,
        published.replaced({properties.HEADERS: encode_headers(headers) if headers else None}),
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.dead,
        envelope.blind_keys,
        delivery_count,
    )
