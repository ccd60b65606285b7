"""Applies a filter to messages; what messages of one envelope have in common is decoded once."""

from __future__ import annotations

from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.messages.published import published_to
from leveret.policies.message_filter import MessageFilter
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope, Message

_SECOND = 1_000_000


class Selector:
    """Selects messages by a filter.

    Args:
        message_filter: The filter.
    """

    def __init__(self, message_filter: MessageFilter) -> None:
        self._filter = message_filter
        self._envelope: Envelope | None = None
        self._verdict: bool | None = True

    def wants(self, message: Message, arrived: int, now: int) -> bool:
        """Return whether a message passes the filter.

        Args:
            message: The message.
            arrived: Its arrival in the queue, in microseconds since 1970.
            now: Microseconds since 1970.
        """
        if self._filter.is_empty:
            return True
        envelope = message.envelope
        if self._envelope is not envelope:
            self._envelope, self._verdict = envelope, self._verdict_on(envelope)
        if self._verdict is not None:
            return self._verdict
        return self._filter.passes_message(message.body, max(0, now - arrived) / _SECOND)

    def _verdict_on(self, envelope: Envelope) -> bool | None:
        exchange, routing_key = published_to(envelope)
        wanted = self._filter
        if not (wanted.needs_headers or wanted.properties):
            return wanted.passes_envelope(exchange, routing_key, {}, {})
        properties = Properties(envelope.header)
        headers = table_to_json(properties.headers()) if wanted.needs_headers else {}
        others = properties.as_dict(with_headers=False) if wanted.properties else {}
        return wanted.passes_envelope(exchange, routing_key, headers, others)
