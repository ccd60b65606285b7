"""Messages that return to their queue: their delivery counts, the limits of redeliveries, and retries that wait.

Quorum queues count as in RabbitMQ, classic queues only with redelivery-limit or delayed retries.

Source: https://www.rabbitmq.com/docs/quorum-queues
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.queues.traits import UNBOUNDED, QueueTraits
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn, Work
from leveret.policies.queue_settings import QueueSettings, read_retry
from leveret.protocol import properties
from leveret.protocol.field_table import FieldValue, find, normalize, sort_table
from leveret.protocol.properties import Properties, encode_headers
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import NO_ENVELOPE, Envelope, Message, StoredMessage, TimedMessage
from leveret.storage.stores.numbered_store import NumberedStore

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
    header = published.replaced({properties.HEADERS: encode_headers(headers) if headers else None})
    return envelope.changed(header, count)


class ReturnRules:
    """The rules in force on one queue.

    As in RabbitMQ 4.3, on a quorum queue with delayed retries, or of that release, only failures raise the delivery
    count; a header has the number of all returns then. In all other cases each return raises it.

    Args:
        counter: Sets the counts.

    Attributes:
        is_needed: Whether messages of a classic queue are counted or wait at all.
        delays: Whether messages may wait.
    """

    __slots__ = ("_counter", "_delivery_limit", "_failures_only", "_redelivery_limit", "_retry", "delays", "is_needed")

    def __init__(self, settings: QueueSettings, traits: QueueTraits, counter: DeliveryCounter) -> None:
        self._counter = counter
        self._retry = read_retry(settings)
        self.delays = self._retry is not None
        self._failures_only = traits.counts_failures_only or (self.delays and traits.counts_deliveries)
        limit = settings.redelivery_limit
        self.is_needed = self.delays or limit is not None
        self._redelivery_limit = UNBOUNDED if limit is None else limit
        self._delivery_limit = delivery_limit(settings) if traits.counts_deliveries else UNBOUNDED

    def is_over_limit(self, message: Message, failed: bool) -> bool:
        """Return whether a message has returned too often.

        Args:
            message: The message, before this return is counted.
            failed: Whether it was rejected, or its channel has ended.
        """
        count, returns = self._counts(message, failed)
        counted = failed or not self._failures_only
        return (counted and count > self._delivery_limit) or returns > self._redelivery_limit

    def counted(self, message: Message, failed: bool) -> tuple[Message, int]:
        """Return a message with its new counts, and how many milliseconds it waits; 0 if it does not.

        Args:
            message: See is_over_limit().
            failed: See is_over_limit().
        """
        count, returns = self._counts(message, failed)
        made = self._counter.with_count(message, count, returns if self._failures_only else None)
        retry = self._retry
        return made, 0 if retry is None else retry.delay(failed, count, returns)

    def _counts(self, message: Message, failed: bool) -> tuple[int, int]:
        """Return the delivery count and the number of returns after this return."""
        if self._failures_only:
            return delivery_count(message) + (1 if failed else 0), returns_of(message) + 1
        count = delivery_count(message) + 1
        return count, count


#: Messages that are requeued between two checks of the time slice.
RETURN_STEP: Final = 512

#: Puts messages back into the queue.
PutBack: TypeAlias = Callable[[Sequence[Entry]], None]


class Returning:
    """Requeued messages that are not back in their queue yet.

    Attributes:
        batches: Batches of messages, oldest first; empty if all are back.
    """

    __slots__ = ("_done", "batches")

    def __init__(self) -> None:
        self.batches: list[tuple[Sequence[Entry], PutBack]] = []
        #: Number of messages of the first batch that have been taken.
        self._done = 0

    def add(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Add a batch.

        Args:
            entries: The messages, at least one.
            put_back: Called with parts of them, in order.
        """
        self.batches.append((entries, put_back))

    def take_part(self) -> tuple[Sequence[Entry], PutBack]:
        """Remove and return the next messages, and what to call with them; requires batches."""
        entries, put_back = self.batches[0]
        end = self._done + RETURN_STEP
        part = entries[self._done : end]
        self._done = end
        if end >= len(entries):
            del self.batches[0]
            self._done = 0
        return part, put_back

    def clear(self) -> None:
        """Forget all messages: their queue is deleted."""
        self.batches.clear()
        self._done = 0


#: Messages that one step returns.
_DUE_STEP: Final = 128

#: Appends messages to the queue, before those that were never delivered.
AppendDue: TypeAlias = Callable[[Sequence[Message]], None]


class DelayedReturns:
    """Messages that wait, and return to their queue when they are due.

    A message is appended to the queue first, and settled here when this copy is on disk. After a crash in between it is
    in both.

    Args:
        store: Where the messages wait.
        queue_name: Name of the queue, for the log.
        clocks: Clock and timers, and the turn, which provides time slices.
        work: Runs what is to be done when messages are due.
        append: Appends due messages to the queue.

    Attributes:
        schedule: The messages, and when each is due.
    """

    __slots__ = ("_append", "_deferred", "_deferred_of", "_queue_name", "_work", "schedule")

    def __init__(
        self, store: NumberedStore, queue_name: str, clocks: tuple[Timers, Turn], work: Work, append: AppendDue
    ) -> None:
        self._queue_name = queue_name
        self._work = work
        self._append = append
        #: The last envelope that was changed, with the expiry, and what it was changed to.
        self._deferred_of = NO_ENVELOPE, 0
        self._deferred = self._deferred_of[0]
        self.schedule = Schedule(store, *clocks, self._begin)

    def add(self, message: Message, delay_ms: int) -> None:
        """Let a message wait.

        Args:
            message: The message. Its expiry is looked at when it is due.
            delay_ms: The delay in milliseconds, 1 or more.
        """
        envelope, expires_at = message.envelope, message.expires_at
        if expires_at:
            if self._deferred_of != (envelope, expires_at):
                self._deferred_of = envelope, expires_at
                self._deferred = _with_expiry(envelope, expires_at)
            envelope = self._deferred
        self.schedule.add(envelope, [message], delay_ms)

    def cancel(self, number: int) -> Message | None:
        """Remove a message before it is due; return it, or None if it does not wait any more."""
        entry = self.schedule.take(number)
        if entry is None:
            return None
        self.schedule.settle([entry], EventKind.CANCELLED)
        return entry[1]

    def return_now(self, number: int) -> bool:
        """Return a message to the queue as if it were due; return whether it still waited."""
        entry = self.schedule.take(number)
        if entry is None:
            return False
        self._append([_when_due(entry[1])])
        self.schedule.settle([entry], EventKind.RETURNED)
        return True

    def close(self) -> None:
        """Forget the messages of a deleted queue."""
        self.schedule.close()

    def _begin(self) -> None:
        subject = f"due messages of queue '{self._queue_name}' were routed"
        self._work.begin(self._return_due(), subject, self.schedule.arm_next)

    def _return_due(self) -> Iterator[None]:
        """Return all that is due to the queue; a step reads or appends some messages."""
        schedule = self.schedule
        while True:
            purges = schedule.purges
            entries = yield from schedule.take_due()
            if not entries:
                break
            for at in range(0, len(entries), _DUE_STEP):
                if at:
                    yield
                if schedule.closed:
                    return
                if schedule.purges != purges:
                    schedule.settle(entries[at:], EventKind.PURGED)
                    break
                part = entries[at : at + _DUE_STEP]
                self._append([_when_due(entry[1]) for entry in part])
                schedule.settle(part, EventKind.RETURNED)
            yield
        schedule.arm_next()


def _when_due(message: Message) -> Message:
    """Return a message as it was before it waited."""
    envelope, expires_at = message.envelope, message.envelope.deferred_expiry
    return (
        TimedMessage(_with_expiry(envelope, 0), message.body, expires_at)
        if expires_at
        else Message(envelope, message.body)
    )


def _with_expiry(envelope: Envelope, expires_at: int) -> Envelope:
    """Return the envelope with another deferred expiry."""
    return envelope.changed(envelope.header, envelope.delivery_count, expires_at)
