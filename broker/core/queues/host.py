"""What a queue needs of its virtual host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.timers import Timers
from leveret.broker.core.turn import Turn

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue


class QueueHost(Protocol):
    """Where queues live: their virtual host.

    Attributes:
        name: Its name.
        turn: Calls deliver() at the end of the turn.
        timers: The clock.
    """

    name: str
    turn: Turn
    timers: Timers

    def dead_letter(self, batch: DeadLetterBatch) -> None:
        """Publish messages to their queue's dead-letter exchange; it learns of each by dead_lettered()."""

    def delete_queue(self, queue: Queue) -> int:
        """Delete a queue that nobody needs any more."""
