"""Delivery counts: the header x-delivery-count, and the limits of redeliveries.

Quorum queues have them as in RabbitMQ, classic queues only with redelivery-limit.

Source: https://www.rabbitmq.com/docs/quorum-queues
"""

from __future__ import annotations

from typing import Final

from leveret.broker.core.queues.limits import UNBOUNDED
from leveret.policies.settings import QueueSettings
from leveret.protocol import properties
from leveret.protocol.field_table import FieldValue, find, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.message import NO_ENVELOPE, Envelope, Message, StoredMessage, TimedMessage

#: Default of delivery-limit: RabbitMQ's since 4.0.
_DEFAULT_LIMIT: Final = 20
_HEADER: Final = "x-delivery-count"
#: Number of all returns, where the delivery count has only some.
_RETURNS_HEADER: Final = "x-acquired-count"


class DeliveryCounter:
    """Sets delivery counts. The last envelope is cached, as messages often share it."""

    __slots__ = ("_envelope", "_made_for")

    def __init__(self) -> None:
        self._made_for: tuple[Envelope, int, int | None] | None = None
        self._envelope = NO_ENVELOPE

    def with_count(self, message: Message, count: int, returns: int | None = None) -> Message:
        """Return the message with a delivery count.

        Args:
            message: The message.
            count: The delivery count.
            returns: Number of all returns, which then has a header of its own; None if the count has them all.
        """
        wanted = (message.envelope, count, returns)
        if self._made_for != wanted:
            self._made_for = wanted
            self._envelope = _count_in(message.envelope, count, returns)
        return _with_envelope(message, self._envelope)


def delivery_count(message: Message) -> int:
    """Return how often a message was delivered and returned."""
    return message.envelope.delivery_count or 0


def returns_of(message: Message) -> int:
    """Return how often a message has returned, whatever the reason."""
    count = message.envelope.delivery_count
    if count is None:
        return 0
    found = find(Properties(message.envelope.header).headers(), _RETURNS_HEADER)
    return found.value if found is not None and found.kind == "l" and found.value > count else count


def delivery_limit(settings: QueueSettings) -> int:
    """Return the delivery count above which quorum queues drop messages; UNBOUNDED if there is no limit."""
    limit = settings.delivery_limit
    if not isinstance(limit, int):
        return _DEFAULT_LIMIT
    return UNBOUNDED if limit < 0 else limit


def unstored(message: Message) -> Message:
    """Return the message without its place on disk, to be stored again."""
    if not isinstance(message, StoredMessage):
        return message
    if message.expires_at:
        return TimedMessage(message.envelope, message.body, message.expires_at)
    return Message(message.envelope, message.body)


def without_count(message: Message) -> Message:
    """Return the message as published, without a delivery count."""
    if message.envelope.delivery_count is None:
        return message
    return _with_envelope(message, _count_in(message.envelope, None, None))


def _with_envelope(message: Message, envelope: Envelope) -> Message:
    """Return the message with another envelope."""
    if isinstance(message, StoredMessage):
        return StoredMessage(envelope, message.body, message.expires_at, message.arrived_at)
    if message.expires_at:
        return TimedMessage(envelope, message.body, message.expires_at)
    return Message(envelope, message.body)


def _count_in(envelope: Envelope, count: int | None, returns: int | None) -> Envelope:
    """Return the envelope with another delivery count and number of returns; None for none."""
    published = Properties(envelope.header)
    headers = tuple(entry for entry in published.headers() if entry[0] != _HEADER)
    if count is None or returns is not None:
        headers = tuple(entry for entry in headers if entry[0] != _RETURNS_HEADER)
    if returns is not None:
        headers = (*headers, (_RETURNS_HEADER, FieldValue("l", returns)))
    if count is not None and (count or returns is None):
        headers = (*headers, (_HEADER, FieldValue("l", count)))
    if count is not None:
        headers = sort_table(normalize(headers))
    return Envelope(
        envelope.route,
        published.replaced({properties.HEADERS: encode_headers(headers) if headers else None}),
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.dead,
        envelope.blind_keys,
        count,
    )
