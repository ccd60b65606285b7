"""Applies a filter to messages; what messages of one envelope have in common is decoded once."""

from __future__ import annotations

from collections.abc import Generator

from leveret.broker.core.json_values.tables import table_to_json
from leveret.broker.core.messages.origin import published_to
from leveret.broker.core.queues.body_conditions import BodyConditions, UnreadableBody
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.policies.message_filter import MessageFilter
from leveret.protocol.properties import Properties
from leveret.storage.message import Envelope, Message

_SECOND = 1_000_000


class Selector:
    """Selects messages by a filter.

    Args:
        message_filter: The filter.

    Attributes:
        problem: Why the last message could not be checked, which counts as one that does not pass; "" if it could.
    """

    def __init__(self, message_filter: MessageFilter) -> None:
        self._filter = message_filter
        self._body = BodyConditions(message_filter.body, message_filter.match == "any")
        self._envelope: Envelope | None = None
        self._verdict: bool | None = True
        #: The message that is being checked, for wants().
        self._key: object = None
        self._checking: Generator[None, None, bool] | None = None
        self.problem = ""

    @property
    def is_checking(self) -> bool:
        """Whether wants() has begun with a message."""
        return self._checking is not None

    def steps(self, message: Message, arrived: int, now: int) -> Generator[None, None, bool]:
        """Check a message, in steps of a fraction of a millisecond; return whether it passes the filter.

        Args:
            message: The message.
            arrived: Its arrival in the queue, in microseconds since 1970.
            now: Microseconds since 1970.
        """
        self.problem = ""
        if self._filter.is_empty:
            return True
        envelope = message.envelope
        if self._envelope is not envelope:
            self._envelope, self._verdict = envelope, self._verdict_on(envelope)
        if self._verdict is not None:
            return self._verdict
        by_age = self._filter.passes_age(max(0, now - arrived) / _SECOND)
        if by_age is not None:
            return by_age
        try:
            return (yield from self._body.steps(message.body))
        except UnreadableBody as error:
            self.problem = str(error)
            return False

    def wants(self, key: object, message: Message, arrived: int, now: int, time_slice: TimeSlice) -> bool | None:
        """Return whether a message passes the filter; None if the time slice was over before.

        Args:
            key: What the message has in common with itself, when it is given again to continue.
            message: See steps().
            arrived: See steps().
            now: See steps().
            time_slice: Ends the work; one step is always done.
        """
        if self._checking is None or self._key != key:
            self._key, self._checking = key, self.steps(message, arrived, now)
        try:
            while True:
                next(self._checking)
                if time_slice.is_over():
                    return None
        except StopIteration as end:
            self._checking = None
            return bool(end.value)

    def _verdict_on(self, envelope: Envelope) -> bool | None:
        exchange, routing_key = published_to(envelope)
        wanted = self._filter
        if not (wanted.needs_headers or wanted.properties):
            return wanted.passes_envelope(exchange, routing_key, {}, {})
        properties = Properties(envelope.header)
        headers = table_to_json(properties.headers()) if wanted.needs_headers else {}
        others = properties.as_dict(with_headers=False) if wanted.properties else {}
        return wanted.passes_envelope(exchange, routing_key, headers, others)
