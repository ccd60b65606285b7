"""The messages of one exchange x-delayed-message that wait until they are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from leveret.broker.core.counters.counters import ExchangeCounters
from leveret.broker.core.delays.delay_header import mark_delayed
from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.message_stores.numbered_backing import NumberedBacking
from leveret.broker.core.messages.origin import PublishDetails, Publisher
from leveret.broker.core.messages.target import Target
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.storage.event_format import TOLD
from leveret.storage.message import NO_ENVELOPE, Message


class DueRouter(Protocol):
    """Routes messages that are due."""

    def begin(self, waiting: WaitingMessages) -> None:
        """Route the messages of an exchange that are due."""


class WaitingMessages(Target):
    """Stores messages, and has them routed when they are due.

    Args:
        vhost_name: Name of the virtual host.
        name: Name of the exchange.
        backing: Where the messages are stored.
        counters: Counters of the exchange.
        timers: Clock and timers.
        turn: Provides time slices.
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
        backing: NumberedBacking,
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
        self.schedule = Schedule(backing.messages, timers, turn, self._route)

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
        self.backing.messages.refuse(len(messages), body_bytes, TOLD if is_told else 0, details)

    def _route(self) -> None:
        self._router.begin(self)

    def delete(self) -> None:
        """Delete the messages of a deleted exchange; they are counted as lost."""
        self.deleted = True
        self.schedule.close()
        self.counters.drop_deleted += self.schedule.left_count
        self.backing.delete()
