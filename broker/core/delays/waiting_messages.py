"""The messages of one exchange x-delayed-message that wait until they are due, and their header x-delay.

Source: RabbitMQ's plugin rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import ClassVar, Final, Protocol

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.messages import PublishDetails, Publisher, Target
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.protocol import properties
from leveret.protocol.field_table import FLOAT_KINDS, INTEGER_KINDS, FieldTable, FieldValue, find, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.backings import LevelBacking
from leveret.storage.event_format import TOLD, EventKind
from leveret.storage.message import NO_ENVELOPE, Envelope, Message
from leveret.storage.stores.numbered_store import NumberedStore

#: Name of the header.
DELAY: Final = "x-delay"

#: Longest delay, in milliseconds: 100,000 years, which keeps all times within 64 bits.
DELAY_MAX: Final = 100_000 * 366 * 86_400_000
#: Digits that are read; more are longer than the longest delay.
_DIGITS_MAX: Final = 30


def read_delay(headers: FieldTable) -> int:
    """Return the delay of a message.

    Args:
        headers: Its headers. All integers count, fractions without what is behind the point, and strings that are a
            decimal integer, with a sign or without.
    Returns:
        Milliseconds, 1..DELAY_MAX; 0 if the message is not to be delayed: without the header, with one that is not
        positive, or that cannot be used.
    """
    field = find(headers, DELAY)
    if field is None:
        return 0
    milliseconds = 0
    if field.kind in INTEGER_KINDS or (field.kind in FLOAT_KINDS and isfinite(field.value)):
        milliseconds = int(field.value)
    elif field.kind == "S":
        milliseconds = _parse(field.value)
    return max(0, min(milliseconds, DELAY_MAX))


def published_delay(envelope: Envelope) -> int:
    """Return the delay with which a stored message was published, in milliseconds."""
    field = find(Properties(envelope.header).headers(), DELAY)
    return -field.value if field is not None and field.kind == "l" else 0


def mark_delayed(envelope: Envelope) -> tuple[int, Envelope]:
    """Return the delay of a message, and its envelope as it will be delivered.

    The header then has the negative delay, as in RabbitMQ since 3.13: so it is not delayed again where it is published
    again with the same headers.
    """
    read = Properties(envelope.header)
    headers = read.headers()
    delay = read_delay(headers)
    if not delay:
        return 0, envelope
    changed = tuple(
        (key, FieldValue("l", -delay) if key == DELAY else value) for key, value in sort_table(normalize(headers))
    )
    header = read.replaced({properties.HEADERS: encode_headers(changed)})
    return delay, envelope.changed(header, envelope.delivery_count)


def _parse(octets: bytes) -> int:
    """Return the value of a decimal integer; 0 for other strings."""
    digits = octets[1:] if octets[:1] in (b"+", b"-") else octets
    if not digits.isdigit() or octets[:1] == b"-":
        return 0
    return int(digits) if len(digits) <= _DIGITS_MAX else DELAY_MAX


class DueRouter(Protocol):
    """Routes messages that are due."""

    def begin(self, waiting: WaitingMessages) -> None:
        """Route the messages of an exchange that are due."""


class WaitingMessages(Target):
    """Stores messages, and has them routed when they are due.

    Args:
        backing: Where the messages are stored.
        router: Routes what is due.

    Attributes:
        limit: Maximum number of waiting messages; None for no limit. More are refused.
        counters: Counters of the exchange.
        schedule: The messages, with the headers that they will be delivered with, and when each is due.
    """

    __slots__ = (
        "_delay", "_published", "_router", "_stored_envelope", "backing", "counters", "limit", "schedule",
    )  # fmt: skip

    definition_kind: ClassVar[str] = "exchange"

    def __init__(
        self,
        vhost_name: str,
        name: str,
        backing: LevelBacking,
        counters: ExchangeCounters,
        timers: Timers,
        turn: Turn,
        router: DueRouter,
    ) -> None:
        super().__init__(vhost_name, name, backing)
        # Each message has a delay of its own, and some may be refused.
        self.accepts_varied = False
        self.backing = backing
        self.counters = counters
        self.limit: int | None = None
        self._router = router
        #: The last envelope that was published, with its delay and the envelope that is stored.
        self._published = self._stored_envelope = NO_ENVELOPE
        self._delay = 0
        self.schedule = Schedule(NumberedStore(backing.store), timers, turn, self._route)

    @property
    def count(self) -> int:
        """Number of waiting messages."""
        return self.schedule.count

    @property
    def body_bytes(self) -> int:
        """Sum of their body lengths."""
        return self.schedule.body_bytes

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Store messages; those that exceed the limit are refused and counted."""
        taken = len(messages)
        if self.limit is not None:
            taken = max(0, min(taken, self.limit - self.count))
            if taken < len(messages):
                self._refuse(messages[taken:], publisher)
                if not taken:
                    return 0
        envelope = messages[0].envelope
        if envelope is not self._published:
            self._delay, self._stored_envelope = mark_delayed(envelope)
            self._published = envelope
        self.schedule.add(self._stored_envelope, messages[:taken], self._delay)
        return taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Store messages one by one."""
        for message in messages:
            self.publish([message], len(message.body))

    def _refuse(self, messages: Sequence[Message], publisher: Publisher | None) -> None:
        is_told = messages[0].envelope.dead or (publisher is not None and publisher.is_told)
        self.counters.refuse += len(messages)
        if is_told:
            self.counters.refuse_told += len(messages)
        body_bytes = sum([len(message.body) for message in messages])
        details = PublishDetails("", messages[0].envelope, publisher)
        self.backing.store.note(EventKind.REFUSED, len(messages), body_bytes, TOLD if is_told else 0, details)

    def _route(self) -> None:
        self._router.begin(self)

    def delete(self) -> None:
        """Delete the messages of a deleted exchange; they are counted as lost."""
        self.deleted = True
        self.schedule.close()
        self.counters.drop_deleted += self.schedule.left_count
        self.backing.delete()
