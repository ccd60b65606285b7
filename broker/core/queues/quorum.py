"""Quorum queues, on the one node that there is.

What clients see is RabbitMQ's: always durable, returned messages go to the tail and are counted, and one that
was returned too often is dropped. The limits are exact, where RabbitMQ's lag behind.

Source: https://www.rabbitmq.com/docs/quorum-queues
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from broker.core.consumers import Holder
from broker.core.queues.limits import UNBOUNDED, Limits
from broker.core.queues.queue import Queue, QueueHost
from broker.core.timers import Timer
from policies.dead_letter import DELIVERY_LIMIT
from policies.settings import QueueSettings
from protocol import properties
from protocol.field_table import FieldTable, FieldValue, normalize, sort_table
from protocol.properties import Properties, encode_headers
from storage.interface import Entry, MessageStore
from storage.memory_store import MemoryStore
from storage.message import Envelope, Message

#: Redeliveries that a message may have where nothing is set: RabbitMQ's default since 4.0.
_DEFAULT_DELIVERY_LIMIT: Final = 20
#: How long a dead letter that nobody has taken waits for another try, in seconds: RabbitMQ's interval.
_RETRY_SECONDS: Final = 180.0
_COUNT_HEADER: Final = "x-delivery-count"


class CountedMessage(Message):
    """A message that shows how often it was delivered before.

    Args:
        original: As it was published.
        envelope: Its envelope with the count in its headers.
        delivery_count: The count, 0 or more.
    """

    __slots__ = ("delivery_count", "expires_at", "original")

    def __init__(self, original: Message, envelope: Envelope, delivery_count: int) -> None:
        super().__init__(envelope, original.body)
        self.original = original
        self.delivery_count = delivery_count
        self.expires_at = original.expires_at


class QuorumStore(MemoryStore):
    """Messages that were returned stand among the others and still count as delivered before."""

    __slots__ = ()

    def take(self, count: int, body_bytes: int) -> list[Entry]:
        """Take messages from the head."""
        entries = super().take(count, body_bytes)
        return [(seq, message, isinstance(message, CountedMessage)) for seq, message, _ in entries]


def _limits(settings: QueueSettings) -> Limits:
    """The limits of these settings: reject-publish-dlx is not known here, and is drop-head."""
    if settings.overflow == "reject-publish-dlx":
        settings = replace(settings, overflow="drop-head")
    return Limits(settings)


class QuorumQueue(Queue):
    """One quorum queue."""

    __slots__ = ("_counted_envelope", "_counted_for", "_retained", "_retry")

    queue_type: Literal["classic", "quorum"] = "quorum"
    make_limits = staticmethod(_limits)
    shares_prefetch = False
    deletes_conditionally = False
    gets_beside_single_active = False

    def __init__(
        self,
        host: QueueHost,
        name: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: FieldTable,
        store: MessageStore,
    ) -> None:
        super().__init__(host, name, durable, auto_delete, owner, arguments, store)
        self._counted_for: tuple[Envelope, int] | None = None
        self._counted_envelope = Envelope(b"", b"")
        self._retained: list[tuple[Sequence[Message], str]] = []
        self._retry: Timer | None = None

    def get(self, holder: Holder | None) -> Entry | None:
        """Take the message at the head; its headers always show the delivery count."""
        entry = super().get(holder)
        if entry is None or isinstance(entry[1], CountedMessage):
            return entry
        return entry[0], self._count(entry[1], 0), entry[2]

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put messages back at the tail, but for those that have come back too often."""
        if self.deleted:
            return
        limit = self._delivery_limit()
        spent = [entry for entry in entries if _delivery_count(entry[1]) >= limit]
        returned = [entry for entry in entries if _delivery_count(entry[1]) < limit]
        if spent:
            self._drop(spent, DELIVERY_LIMIT)
        self.counters.requeued += len(returned)
        self.store.settle(returned)
        for _, message, _ in returned:
            counted = self._count(_original(message), _delivery_count(message) + 1)
            self.store.append([counted], len(counted.body))
        self._evict_batch()
        self.host.turn.deliver_later(self)

    def _drop(self, entries: Sequence[Entry], reason: str) -> None:
        """Remove taken messages for good; dead letters do not show the delivery count."""
        super()._drop([(seq, _original(message), redelivered) for seq, message, redelivered in entries], reason)

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

    def retain(self, messages: Sequence[Message], reason: str) -> None:
        """Keep dead letters that no queue has taken, and try again later, if they are to arrive at least once."""
        if self.settings.dead_letter_strategy != "at-least-once" or self.settings.overflow != "reject-publish":
            return
        self._retained.append((messages, reason))
        self.retained_count += len(messages)
        if self._retry is None:
            self._retry = self.host.timers.call_later(_RETRY_SECONDS, self._retry_dead_letters)

    def delete(self) -> int:
        """End the queue, and with it what it retains."""
        if self._retry is not None:
            self._retry.cancel()
        self._retained.clear()
        return super().delete()

    def _retry_dead_letters(self) -> None:
        retained, self._retained = self._retained, []
        self._retry = None
        self.retained_count = 0
        for messages, reason in retained:
            self.host.dead_letter(self, messages, reason)

    # -- inside -------------------------------------------------------------------------------------------

    def _delivery_limit(self) -> int:
        limit = self.settings.delivery_limit
        if not isinstance(limit, int):
            return _DEFAULT_DELIVERY_LIMIT
        return UNBOUNDED if limit < 0 else limit

    def _count(self, message: Message, delivery_count: int) -> CountedMessage:
        """The message with its delivery count in the headers; the last such envelope is kept, as they repeat."""
        wanted = (message.envelope, delivery_count)
        if self._counted_for != wanted:
            self._counted_for = wanted
            self._counted_envelope = _with_count(message.envelope, delivery_count)
        return CountedMessage(message, self._counted_envelope, delivery_count)


def _delivery_count(message: Message) -> int:
    return message.delivery_count if isinstance(message, CountedMessage) else 0


def _original(message: Message) -> Message:
    return message.original if isinstance(message, CountedMessage) else message


def _with_count(envelope: Envelope, delivery_count: int) -> Envelope:
    published = Properties(envelope.header)
    kept = tuple(entry for entry in published.headers() if entry[0] != _COUNT_HEADER)
    headers = sort_table(normalize((*kept, (_COUNT_HEADER, FieldValue("l", delivery_count)))))
    return Envelope(
        envelope.route,
        published.replaced({properties.HEADERS: encode_headers(headers)}),
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.dead,
        envelope.blind_keys,
    )
