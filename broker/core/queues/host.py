"""What a queue needs of its virtual host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from broker.core.timers import Timers
from broker.core.turn import Turn
from storage.message import Message

if TYPE_CHECKING:
    from broker.core.queues.queue import Queue


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

    def dead_letter(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Publish messages to the queue's dead-letter exchange, if it has one."""

    def delete_queue(self, queue: Queue) -> int:
        """Delete a queue that nobody needs any more."""
