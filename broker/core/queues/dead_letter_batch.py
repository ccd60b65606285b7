"""Messages on their way from a queue to its dead-letter exchange."""

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
        queue: Whence they come.
        messages: As they are dead-lettered, oldest first.
        reason: Why, as x-death says it.
        settings: Those of the queue when it dropped them.
        entries: The same messages as the queue's store knows them. It is told to forget them once all have been
            published. Empty for messages that it does not have, or that the queue itself forgets.
        kind: Why, as the event log says it.
    """

    queue: Queue
    messages: Sequence[Message]
    reason: str
    settings: QueueSettings
    entries: Sequence[Entry] = ()
    kind: EventKind = EventKind.MAXLEN
