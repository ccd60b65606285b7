"""Returned messages of one queue that wait before they are redelivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn
from leveret.broker.core.scheduling.work import Work
from leveret.storage.event_format import EventKind
from leveret.storage.message import NO_ENVELOPE, Envelope, Message, TimedMessage
from leveret.storage.stores.numbered_store import NumberedStore

#: Messages that one step returns.
_STEP: Final = 128

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
            for at in range(0, len(entries), _STEP):
                if at:
                    yield
                if schedule.closed:
                    return
                if schedule.purges != purges:
                    schedule.settle(entries[at:], EventKind.PURGED)
                    break
                part = entries[at : at + _STEP]
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
    return Envelope(
        envelope.route,
        envelope.header,
        envelope.persistent,
        envelope.priority,
        envelope.expiration_ms,
        envelope.dead,
        envelope.blind_keys,
        envelope.delivery_count,
        expires_at,
    )
