"""Moving messages from one queue to another, for working off what was dead-lettered.

A message is published to the target first, and settled at the source only once that is durable: a crash in between
leaves it in both, never in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Final

from leveret.broker.core.consumers import Holder
from leveret.broker.core.json_tables import table_to_json
from leveret.broker.core.published import published_to
from leveret.broker.core.queues.quorum import without_count
from leveret.policies.message_filter import MessageFilter
from leveret.protocol.properties import Properties
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue

#: Messages and bytes that one step moves at most: a millisecond or two.
_STEP_MESSAGES: Final = 256
_STEP_BYTES: Final = 1 << 20
#: Messages that a filter passes over are held until the end, so that they return to where they were.
_HELD_MAX: Final = 100_000


class End(Enum):
    """Why a move has ended."""

    EMPTY = "the source has no more messages"
    LIMIT = "the limit is reached"
    TARGET_FULL = "the target is full"
    HELD = "the filter has skipped as many messages as can be held"
    DELETED = "one of the queues was deleted"


class Move:
    """One move under way: step(), wait until that is durable, settle(), and so on; in the end finish().

    Messages stay as they are: exchange, routing key, properties; their time to live starts again in the target.
    Those that the filter passes over are unacked until finish(), and count as delivered before.

    Args:
        source: Where messages come from.
        target: Where they go to; another queue.
        wanted: Which messages.
        limit: How many at most; None for all that are there.

    Attributes:
        moved: Messages that have been moved so far.
        scanned: Messages that have been looked at.
        end: Why it has ended; None while it goes on.
    """

    def __init__(self, source: Queue, target: Queue, wanted: MessageFilter, limit: int | None = None) -> None:
        self._source = source
        self._target = target
        self._wanted = wanted
        self._limit = limit
        self._holder = Holder(source)
        # What comes in meanwhile is left alone, so that two moves in opposite directions come to an end.
        self._to_scan = source.ready_count()
        self._passed_over: list[Entry] = []
        self._published: list[Entry] = []
        self._last: tuple[object, bool] = (None, False)
        self.moved = 0
        self.scanned = 0
        self.end: End | None = None

    def step(self) -> None:
        """Publish some messages to the target. They are settled by settle()."""
        if self._source.deleted or self._target.deleted:
            self.end = End.DELETED
            return
        entries = self._take()
        selected: list[Entry] = []
        for entry in entries:
            (selected if self._is_wanted(entry[1]) else self._passed_over).append(entry)
        refused = self._publish(selected)
        if refused:
            self._put_back(refused)
            self.end = End.TARGET_FULL
        elif self._limit is not None and self.moved + len(self._published) >= self._limit:
            self.end = End.LIMIT
        elif not entries or self.scanned >= self._to_scan:
            self.end = End.EMPTY
        elif len(self._passed_over) >= _HELD_MAX:
            self.end = End.HELD

    def settle(self) -> None:
        """Give up at the source what step() has published: it is durable in the target, as far as it has to be."""
        published, self._published = self._published, []
        if published:
            self.moved += len(published)
            self._source.release(self._holder, published)
            self._source.acknowledge(published, EventKind.MOVED)

    def finish(self) -> None:
        """Put everything back that has not been moved; of no consequence if nothing is left."""
        returned, self._passed_over = [*self._passed_over, *self._published], []
        self._published = []
        self._put_back(returned)

    def _take(self) -> list[Entry]:
        """Take messages from the head, and hold them."""
        count = min(_STEP_MESSAGES, self._to_scan - self.scanned)
        if self._limit is not None:
            count = min(count, self._limit - self.moved - len(self._published))
        source = self._source
        if count <= 0 or not source.ready_count():
            return []
        entries, body_bytes = source.store.take(count, _STEP_BYTES)
        self.scanned += len(entries)
        source.unacked_count += len(entries)
        source.unacked_bytes += body_bytes
        self._holder.unacked += len(entries)
        return entries

    def _is_wanted(self, message: Message) -> bool:
        if self._wanted.is_empty:
            return True
        envelope = message.envelope
        if self._last[0] is not envelope:
            exchange, routing_key = published_to(envelope)
            headers = table_to_json(Properties(envelope.header).headers())
            self._last = envelope, self._wanted.passes(exchange, routing_key, headers)
        return self._last[1]

    def _publish(self, entries: Sequence[Entry]) -> list[Entry]:
        """Publish entries in runs of equal envelope and size, as far as the target has room; return the others."""
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
        """How many more messages fit into the target. One that would drop its oldest is full, too."""
        settings = self._target.settings
        if settings.max_length is None and settings.max_length_bytes is None:
            return _STEP_MESSAGES
        self._target.ready_count()
        return max(0, self._target.make_limits(settings).room(self._target.store, size))

    def _put_back(self, entries: Sequence[Entry]) -> None:
        """Let the source have messages again where they were, without counting a failed delivery."""
        if not entries:
            return
        source = self._source
        source.release(self._holder, entries)
        if not source.deleted:
            source.put_back(entries)
            source.host.turn.deliver_later(source)


def _copies(messages: Sequence[Message]) -> list[Message]:
    """Messages of one envelope as they were published, without what the source queue has noted on them."""
    envelope = without_count(messages[0]).envelope
    return [Message(envelope, message.body) for message in messages]
