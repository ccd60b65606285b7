"""Publishes messages to a queue that drops duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.deduplication.values import read_key
from leveret.broker.core.messages import Publisher
from leveret.broker.core.queues.consumers import ConsumerGroup
from leveret.broker.core.queues.contents import Contents
from leveret.broker.core.queues.outbox import DeadLetterOutbox
from leveret.storage.interface import MessageStore
from leveret.storage.message import Message


class UniqueQueue(Protocol):
    """A queue that drops duplicates; see Queue."""

    consumers: ConsumerGroup
    contents: Contents
    counters: QueueCounters
    outbox: DeadLetterOutbox

    @property
    def store(self) -> MessageStore:
        """The message store."""

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Append messages; those that are checked already, if QueuedValues.is_checked."""

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages with different headers; see publish()."""

    def deliver(self) -> None:
        """Apply limits and expiry, then deliver."""


def publish_unique(
    queue: UniqueQueue, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None
) -> int:
    """Publish messages of one envelope, but drop duplicates, which count as accepted; see Queue.publish()."""
    key, values = read_key(messages[0].envelope.header), queue.outbox.values
    if key is None:
        values.is_checked = True
        return queue.publish(messages, body_bytes, publisher)
    size = len(messages[0].body)
    for taken, message in enumerate(messages):
        if _has_duplicate(queue, key):
            queue.counters.deduplicated += 1
            continue
        values.add(key)
        values.is_checked = True
        if not queue.publish([message], size, publisher):
            values.discard(key)
            rest = messages[taken + 1 :]
            if rest:
                # They are refused for the same reason.
                values.is_checked = True
                queue.publish(rest, size * len(rest), publisher)
            return taken
    return len(messages)


def publish_varied_unique(queue: UniqueQueue, messages: Sequence[Message]) -> None:
    """Publish messages with different headers, but drop duplicates; see Queue.publish_varied()."""
    values = queue.outbox.values
    waiting: list[Message] = []
    for message in messages:
        key = read_key(message.envelope.header)
        if key is not None:
            if values.has(key) and waiting and queue.consumers.ring:
                # The duplicate may be of one of them, which may be delivered for good.
                _publish_checked(queue, waiting)
                waiting = []
            if _has_duplicate(queue, key):
                queue.counters.deduplicated += 1
                continue
            values.add(key)
        waiting.append(message)
    if waiting:
        _publish_checked(queue, waiting)


def _publish_checked(queue: UniqueQueue, messages: Sequence[Message]) -> None:
    sizes = [len(message.body) for message in messages]
    queue.outbox.values.is_checked = True
    queue.publish_varied(messages, sum(sizes), max(sizes))


def _has_duplicate(queue: UniqueQueue, key: bytes) -> bool:
    """Return whether a message in the queue has a value, after deliveries and expiry that are due."""
    values = queue.outbox.values
    if not values.has(key):
        return False
    if queue.store.ready_count and (queue.consumers.ring or queue.contents.may_have_timed):
        queue.deliver()
    return values.has(key)
