"""What happened in a queue since it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from storage.interface import Entry


class QueueCounters:
    """Counts messages. They only grow.

    Attributes:
        published: Accepted from publishers and dead-lettering.
        refused: Publishes refused because the queue was full.
        delivered: Sent to consumers.
        got: Sent in answer to basic.get.
        redelivered: Of delivered and got, those that had been delivered before.
        acknowledged: Settled by consumers.
        requeued: Returned to the queue.
        dropped: Removed otherwise, by reason: maxlen, expired, rejected, delivery_limit, purged.
        dead_lettered: Handed to the dead-letter exchange, by reason.
    """

    __slots__ = (
        "acknowledged",
        "dead_lettered",
        "delivered",
        "dropped",
        "got",
        "published",
        "redelivered",
        "refused",
        "requeued",
    )

    def __init__(self) -> None:
        self.published = 0
        self.refused = 0
        self.delivered = 0
        self.got = 0
        self.redelivered = 0
        self.acknowledged = 0
        self.requeued = 0
        self.dropped: Counter[str] = Counter()
        self.dead_lettered: Counter[str] = Counter()

    def count_delivery(self, entries: Sequence[Entry]) -> None:
        """Count messages sent to a consumer."""
        self.delivered += len(entries)
        if self.requeued:
            self.redelivered += sum([entry[2] for entry in entries])
