"""Moves messages from one queue to another, for example to retry dead-lettered messages.

A message is published to the target first. It is settled at the source once it is durable in the target. After a crash
in between it is in both queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Final

from leveret.broker.core.queues.delivery_count import without_count
from leveret.broker.core.queues.holders import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.selecting import Selector
from leveret.policies.message_filter import MessageFilter
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message
from leveret.storage.stores.ages import arrival

#: Maximum messages and bytes of one step: a millisecond or two.
_STEP_MESSAGES: Final = 256
_STEP_BYTES: Final = 1 << 20
#: Maximum number of skipped messages, which stay unacked until the move ends, to return to their positions.
_MAX_SKIPPED: Final = 100_000


class MoveEnd(Enum):
    """The reason why a move has ended."""

    EMPTY = "the source has no more messages"
    LIMIT = "the limit is reached"
    TARGET_FULL = "the target is full"
    TOO_MANY_SKIPPED = "the filter has skipped as many messages as can be held"
    DELETED = "one of the queues was deleted"


class Move:
    """A move of messages between two queues.

    The caller repeats step(), waits until the messages are durable, and calls settle(); finally it calls finish().
    Messages keep their exchange, routing key and properties; their TTL starts again in the target. Messages that the
    filter skips are unacked until finish(), and count as redelivered afterwards.

    Args:
        source: The source queue.
        target: The target queue; not the source.
        message_filter: Selects the messages to move.
        limit: Maximum number of messages to move; None for all messages in the source.

    Attributes:
        moved: Number of messages moved so far.
        scanned: Number of messages examined so far.
        end: The reason why the move has ended; None while it continues.
    """

    def __init__(self, source: Queue, target: Queue, message_filter: MessageFilter, limit: int | None = None) -> None:
        self._source = source
        self._target = target
        self._selector = Selector(message_filter)
        self._limit = limit
        self._holder = Holder(source)
        # Excludes messages that arrive during the move: otherwise two opposite moves would never end.
        self._to_scan = source.ready_count()
        self._skipped: list[Entry] = []
        self._published: list[Entry] = []
        self.moved = 0
        self.scanned = 0
        self.end: MoveEnd | None = None

    def step(self) -> None:
        """Publish a batch of messages to the target; settle() settles them at the source."""
        if self._source.deleted or self._target.deleted:
            self.end = MoveEnd.DELETED
            return
        entries = self._take()
        selected: list[Entry] = []
        store, now = self._source.store, self._source.host.timers.now()
        for entry in entries:
            is_wanted = self._selector.wants(entry[1], arrival(store, entry), now)
            (selected if is_wanted else self._skipped).append(entry)
        refused = self._publish(selected)
        if refused:
            self._put_back(refused)
            self.end = MoveEnd.TARGET_FULL
        elif self._limit is not None and self.moved + len(self._published) >= self._limit:
            self.end = MoveEnd.LIMIT
        elif not entries or self.scanned >= self._to_scan:
            self.end = MoveEnd.EMPTY
        elif len(self._skipped) >= _MAX_SKIPPED:
            self.end = MoveEnd.TOO_MANY_SKIPPED

    def settle(self) -> None:
        """Settle the messages of step() at the source, once they are durable in the target."""
        published, self._published = self._published, []
        if published:
            self.moved += len(published)
            self._source.release(self._holder, published)
            self._source.acknowledge(published, EventKind.MOVED)

    def finish(self) -> None:
        """Requeue all messages that were taken and not moved."""
        returned, self._skipped = [*self._skipped, *self._published], []
        self._published = []
        self._put_back(returned)

    def _take(self) -> list[Entry]:
        """Take messages from the head of the source; they are unacked."""
        count = min(_STEP_MESSAGES, self._to_scan - self.scanned)
        if self._limit is not None:
            count = min(count, self._limit - self.moved - len(self._published))
        source = self._source
        if count <= 0 or not source.ready_count():
            return []
        entries, body_bytes = source.store.take(count, _STEP_BYTES)
        self.scanned += len(entries)
        source.delivery.hold(self._holder, len(entries), body_bytes)
        return entries

    def _publish(self, entries: Sequence[Entry]) -> list[Entry]:
        """Publish entries in runs of equal envelope and size until the target is full; return the remaining ones."""
        done = 0
        for (_, size), run in groupby(entries, key=lambda entry: (id(entry[1].envelope), len(entry[1].body))):
            copies = _copies([entry[1] for entry in run])
            fitting = copies[: self._room(size)]
            taken = self._target.publish(fitting, size * len(fitting)) if fitting else 0
            self._published += entries[done : done + taken]
            done += taken
            if taken < len(copies):
                break
        return list(entries[done:])

    def _room(self, size: int) -> int:
        """Return how many more messages fit into the target. With drop-head it is full at its limit, too."""
        limits = self._target.contents.limits
        if limits is None:
            return _STEP_MESSAGES
        self._target.ready_count()
        return max(0, limits.room(self._target.store, size))

    def _put_back(self, entries: Sequence[Entry]) -> None:
        """Return messages to their positions in the source, without increasing their delivery count."""
        if not entries:
            return
        source = self._source
        source.release(self._holder, entries)
        if not source.deleted:
            source.contents.put_back(entries)
            source.host.turn.deliver_later(source)


def _copies(messages: Sequence[Message]) -> list[Message]:
    """Return messages of one envelope as they were published, without x-delivery-count."""
    envelope = without_count(messages[0]).envelope
    return [Message(envelope, message.body) for message in messages]
