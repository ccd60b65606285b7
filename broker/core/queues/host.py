"""Interface of a virtual host for its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue


class QueueHost(Protocol):
    """The virtual host of a queue.

    Attributes:
        name: Name of the virtual host.
        turn: Schedules deliver() for the end of the turn.
        timers: Clock and timers.
    """

    name: str
    turn: Turn
    timers: Timers

    def dead_letter(self, batch: DeadLetterBatch) -> None:
        """Publish messages to the dead-letter exchange; results are reported to Queue.dead_lettered()."""

    def delete_queue(self, queue: Queue) -> int:
        """Delete an expired or auto-delete queue; return the number of its messages."""
