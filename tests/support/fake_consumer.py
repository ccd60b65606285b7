"""A consumer without a channel, whose credit the test sets."""

from __future__ import annotations

from collections.abc import Sequence

from leveret.broker.core.consumers import Consumer
from leveret.broker.core.queues.queue import Queue
from leveret.storage.interface import Entry
from tests.support.queues import settle

#: Credit that no test uses up.
PLENTY = 1 << 30


class FakeConsumer(Consumer):
    """Takes what it has credit for and remembers it.

    Args:
        queue: The queue consumed from.
        tag: Its consumer tag.
        room: Messages it may hold unacked; with no_ack, messages it takes before the test gives it room again.
        no_ack: Messages count as settled once sent.
        exclusive: No other consumer beside it.
        priority: The x-priority argument.

    Attributes:
        held: Entries delivered and not settled, oldest first.
        runs: The bodies of each delivery, as text.
        gone: It was told that the queue is gone.
        log: Its tag is appended for each message; shared by consumers whose order matters.
    """

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
        super().__init__(queue, tag, no_ack, exclusive, priority)
        self.room = room
        self.held: list[Entry] = []
        self.runs: list[list[str]] = []
        self.gone = 0
        self.log = [] if log is None else log

    def credit(self) -> int:
        """The room that is left."""
        return self.room - self.unacked

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Remember what comes, and hold the queue to its promises."""
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
        """Count how often it is told."""
        self.gone += 1

    @property
    def received(self) -> list[str]:
        """The bodies of all deliveries, in order."""
        return [body for run in self.runs for body in run]

    def acknowledge(self, count: int = 1) -> None:
        """Acknowledge the oldest messages held, and ask for more."""
        entries, self.held = self.held[:count], self.held[count:]
        settle(self, entries, "acknowledge")
        self.queue.unblock(self)

    def requeue(self, *positions: int) -> None:
        """Return messages held, by their places in ``held``, in that order; ask for nothing."""
        entries = [self.held[position] for position in positions]
        self.held = [entry for entry in self.held if entry not in entries]
        settle(self, entries, "requeue")
