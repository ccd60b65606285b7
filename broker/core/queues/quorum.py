"""Quorum queues on a single node.

Clients see RabbitMQ's behaviour: always durable, with a delivery count and a delivery limit. Length limits are exact,
while RabbitMQ applies them with a delay.

Source: https://www.rabbitmq.com/docs/quorum-queues
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from leveret.broker.core.queues.consumers import Holder
from leveret.broker.core.queues.limits import UNBOUNDED, Limits
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.timers import Timer
from leveret.policies.dead_letter import DELIVERY_LIMIT
from leveret.policies.settings import QueueSettings
from leveret.protocol import properties
from leveret.protocol.field_table import FieldValue, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.event_format import DEAD_LETTERED, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message, StoredMessage, TimedMessage
from leveret.storage.stores.returns_store import ReturnsStore

#: Default of delivery-limit: RabbitMQ's since 4.0.
_DEFAULT_DELIVERY_LIMIT: Final = 20
#: Delay before dead letters that no queue accepted are published again, in seconds: RabbitMQ's interval.
_RETRY_SECONDS: Final = 180.0
_COUNT_HEADER: Final = "x-delivery-count"


def _limits(settings: QueueSettings) -> Limits:
    """Return the limits: quorum queues do not support reject-publish-dlx and use drop-head instead."""
    if settings.overflow == "reject-publish-dlx":
        settings = replace(settings, overflow="drop-head")
    return Limits(settings)


class QuorumQueue(Queue):
    """A quorum queue."""

    __slots__ = ("_counted_envelope", "_counted_for", "_retained", "_retry", "_unconfirmed")

    queue_type: Literal["classic", "quorum"] = "quorum"
    make_limits = staticmethod(_limits)
    supports_global_prefetch = False
    supports_conditional_delete = False
    allows_get_with_single_active = False
    delays_next_single_active = False
    supports_exclusive_consumers = False
    counts_waiting_consumers = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._counted_for: tuple[Envelope, int] | None = None
        self._counted_envelope = Envelope(b"", b"")
        #: Unconfirmed dead letters by identity: the message as published, its store entry, and the event to log.
        self._unconfirmed: dict[int, tuple[Message, Entry, EventKind]] = {}
        self._retained: list[tuple[Sequence[Message], str]] = []
        self._retry: Timer | None = None

    def get(self, holder: Holder | None) -> Entry | None:
        """Take the message at the head; its headers always contain the delivery count."""
        entry = super().get(holder)
        if entry is None or entry[1].envelope.delivery_count is not None:
            return entry
        return entry[0], self._count(entry[1], 0), entry[2]

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Requeue messages, and drop those that exceed the delivery limit.

        As in RabbitMQ they are appended at the tail, unless delivery-limit is set: then they precede all messages that
        have not been delivered yet.
        """
        self._requeue(entries, to_tail=self.settings.delivery_limit is None)

    def requeue_abandoned(self, entries: Sequence[Entry]) -> None:
        """Requeue messages of a closed channel, before all messages that have not been delivered yet."""
        self._requeue(entries, to_tail=False)

    def _requeue(self, entries: Sequence[Entry], to_tail: bool) -> None:
        if self.deleted:
            return
        limit = self._delivery_limit()
        over_limit = [entry for entry in entries if _delivery_count(entry[1]) >= limit]
        returned = [entry for entry in entries if _delivery_count(entry[1]) < limit]
        if over_limit:
            self._drop(over_limit, DELIVERY_LIMIT, EventKind.DELIVERY_LIMIT)
        self.counters.requeued += len(returned)
        assert isinstance(self.store, ReturnsStore)
        append = self.store.append if to_tail else self.store.append_returned
        for _, message, _ in returned:
            counted = self._count(message, _delivery_count(message) + 1)
            append([counted], len(counted.body))
        self._note_returned(returned)
        self.store.settle(returned, EventKind.RETURNED)
        # Unlike classic queues, quorum queues deliver before they apply limits.
        if not self._may_have_timed or self._expire(self.host.turn.slice()):
            self._serve_consumers()
        self._evict_now()
        self.host.turn.deliver_later(self)

    def _as_dead_letters(self, entries: Sequence[Entry]) -> list[Message]:
        """Return the messages as they are dead-lettered: without the delivery count."""
        return [without_count(entry[1]) for entry in entries]

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages. As in RabbitMQ, dead letters are never refused: they would be lost."""
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
        """Remove taken messages permanently; with the at-least-once strategy once their dead letters are confirmed."""
        if not self._sends_at_least_once():
            super()._drop(entries, reason, kind)
            return
        self.counters.dropped[reason] += len(entries)
        letters = self._as_dead_letters(entries)
        self._unconfirmed.update(
            (id(letter), (letter, entry, kind)) for letter, entry in zip(letters, entries, strict=True)
        )
        self._dead_letter(letters, reason)

    def dead_lettered(self, messages: Sequence[Message], taken: int, arrived: int, reason: str) -> None:
        """Settle dead letters that were accepted; with at-least-once, keep the remaining ones to publish again."""
        if not any(id(message) in self._unconfirmed for message in messages):
            super().dead_lettered(messages, taken, arrived, reason)
            return
        self.counters.dead_letters_arrived += taken
        self.counters.dead_letters_confirmed += taken
        self._settle_letters(messages[:taken])
        retained = [message for message in messages[taken:] if id(message) in self._unconfirmed]
        if not retained:
            return
        self._retained.append((retained, reason))
        self.retained_count += len(retained)
        if self._retry is None:
            self._retry = self.host.timers.call_later(_RETRY_SECONDS, self._retry_dead_letters)

    def delete(self) -> int:
        """Delete the queue and its retained dead letters."""
        if self._retry is not None:
            self._retry.cancel()
        self._retained.clear()
        self._unconfirmed.clear()
        return super().delete()

    def _sends_at_least_once(self) -> bool:
        settings = self.settings
        return (
            settings.dead_letter_strategy == "at-least-once"
            and settings.overflow == "reject-publish"
            and settings.dead_letter_exchange is not None
        )

    def _settle_letters(self, letters: Sequence[Message]) -> None:
        """Settle messages whose dead letters were confirmed."""
        for letter in letters:
            found = self._unconfirmed.pop(id(letter), None)
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
        """Return the message with x-delivery-count; the last envelope is cached, as messages often share it."""
        wanted = (message.envelope, delivery_count)
        if self._counted_for != wanted:
            self._counted_for = wanted
            self._counted_envelope = _with_count(message.envelope, delivery_count)
        return _with_envelope(message, self._counted_envelope)


def _delivery_count(message: Message) -> int:
    return message.envelope.delivery_count or 0


def without_count(message: Message) -> Message:
    """Return the message as published, without x-delivery-count."""
    if message.envelope.delivery_count is None:
        return message
    return _with_envelope(message, _with_count(message.envelope, None))


def _with_envelope(message: Message, envelope: Envelope) -> Message:
    """Return the message with another envelope."""
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
