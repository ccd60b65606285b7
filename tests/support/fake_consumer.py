"""A consumer without a channel; the test sets its credit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leveret.broker.core.queues.queue import Queue
from leveret.storage.interface import Entry
from tests.support.queues import settle

#: More credit than any test needs.
PLENTY = 1 << 30


class FakeConsumer:
    """Accepts messages while it has credit, and records them."""

    def __init__(
        self,
        queue: Queue,
        tag: str = "c",
        room: int = PLENTY,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        log: list[str] | None = None,
    ) -> None:
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.blocked = False
        self.unacked = 0
        self.room = room
        self.held: list[Entry] = []
        self.runs: list[list[str]] = []
        self.cancellations = 0
        self.log = [] if log is None else log
        self.channel_id = id(self.log)

    def credit(self) -> int:
        """Return the remaining credit in messages."""
        return self.room - self.unacked

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Record messages, and assert that the queue respects the credit and passes the right size."""
        assert entries
        assert len(entries) <= self.credit()
        assert body_bytes == sum(len(message.body) for _, message, _ in entries)
        self.runs.append([message.body.decode() for _, message, _ in entries])
        self.log += [self.tag] * len(entries)
        if self.no_ack:
            self.room -= len(entries)
        else:
            self.unacked += len(entries)
            self.held += entries

    def cancelled(self) -> None:
        """Count the cancellation."""
        self.cancellations += 1

    def unblock(self) -> None:
        """Let the queue serve it again."""
        self.queue.unblock(self)

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over the unacked messages."""
        return iter(self.held)

    def next_tag(self) -> int:
        """Return 0: there are no delivery tags."""
        return 0

    @property
    def received(self) -> list[str]:
        """The bodies of all deliveries, in order."""
        return [body for run in self.runs for body in run]

    def acknowledge(self, count: int = 1) -> None:
        """Acknowledge the oldest unacked messages, and request more."""
        entries, self.held = self.held[:count], self.held[count:]
        settle(self, entries, "acknowledge")
        self.unblock()

    def requeue(self, *positions: int) -> None:
        """Requeue unacked messages by their indices in `held`, in that order; do not request more."""
        entries = [self.held[position] for position in positions]
        self.held = [entry for entry in self.held if entry not in entries]
        settle(self, entries, "requeue")
