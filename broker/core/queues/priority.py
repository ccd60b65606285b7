"""Classic queues with priorities (x-max-priority)."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.broker.core.queues.queue import Queue
from leveret.storage.message import Message


class PriorityQueue(Queue):
    """One classic queue with priorities.

    Its consumers are served with each run of messages, not at the end of the turn: one with credit gets what comes
    first, as with RabbitMQ, though a higher priority follows. Only what has to wait is sorted.
    """

    __slots__ = ()

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Take messages at the tail, and serve consumers.

        Args:
            messages: In order of arrival, with one envelope.
            body_bytes: Sum of their body lengths.
        Returns:
            How many were taken; the others were refused.
        """
        self._serve_due()
        taken = super().publish(messages, body_bytes)
        self._serve_new()
        return taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Take messages at the tail whose headers and sizes differ, and serve consumers; only if takes_varied.

        Args:
            messages: In order of arrival, with one priority and one delivery mode, and without an expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """
        self._serve_due()
        super().publish_varied(messages, body_bytes, longest)
        self._serve_new()

    def _serve_new(self) -> None:
        """Hand out what has come, unless what has to go for a new limit is not gone yet."""
        if not self._is_shrinking:
            self._serve_consumers()

    def _serve_due(self) -> None:
        """Give those who got credit in this turn what has waited for them: what comes now came too late."""
        if self.scheduled:
            self.deliver()
