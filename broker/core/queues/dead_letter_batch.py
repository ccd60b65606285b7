"""A batch of messages to publish to a dead-letter exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leveret.policies.settings import QueueSettings
from leveret.storage.event_format import EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue


@dataclass(slots=True, eq=False)
class DeadLetterBatch:
    """Messages that a queue drops for one reason.

    Args:
        queue: The source queue.
        messages: The messages as they are dead-lettered, oldest first.
        reason: The reason in the x-death header.
        settings: Settings of the queue when it dropped the messages.
        entries: The store entries of the same messages, which are settled once all have been published. Empty for
            messages that are not in the store, or that the queue settles itself.
        kind: The event in the event log.
    """

    queue: Queue
    messages: Sequence[Message]
    reason: str
    settings: QueueSettings
    entries: Sequence[Entry] = ()
    kind: EventKind = EventKind.MAXLEN
