"""Classic queues with priorities (x-max-priority)."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.broker.core.queues.queue import Queue
from leveret.storage.message import Message


class PriorityQueue(Queue):
    """A classic queue with priorities.

    Messages are delivered with each run, not at the end of the turn. As in RabbitMQ, a consumer with credit gets the
    first message to arrive, even if one of higher priority follows. Only messages that have to wait are sorted.
    """

    __slots__ = ()

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages and deliver them to consumers.

        Args:
            messages: Messages in order of arrival, with one envelope.
            body_bytes: Sum of their body lengths.
        Returns:
            Number of messages accepted from the front; the remaining ones were refused.
        """
        self._deliver_waiting()
        taken = super().publish(messages, body_bytes)
        self._deliver_new()
        return taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages with different headers and sizes, and deliver them; requires accepts_varied.

        Args:
            messages: Messages in order of arrival, with one priority and one delivery mode, and without expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """
        self._deliver_waiting()
        super().publish_varied(messages, body_bytes, longest)
        self._deliver_new()

    def _deliver_new(self) -> None:
        """Deliver new messages, unless evictions for a new limit are pending."""
        if not self._is_shrinking:
            self._serve_consumers()

    def _deliver_waiting(self) -> None:
        """Deliver waiting messages to consumers that got credit in this turn, before newer ones are added."""
        if self.scheduled:
            self.deliver()
