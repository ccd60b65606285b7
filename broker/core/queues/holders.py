"""Owners of unacked messages: consumers, and the gets of a channel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from leveret.broker.core.queues.queue import Queue
from leveret.storage.interface import Entry


class Holder:
    """Owner of unacked messages of a queue: a consumer, or the gets of a channel.

    Args:
        queue: The queue of the messages.

    Attributes:
        unacked: Number of unacked messages.
        taken: The unacked messages themselves, if it is neither a consumer nor the gets of a channel.
    """

    __slots__ = ("queue", "taken", "unacked")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.unacked = 0
        self.taken: Sequence[Entry] = ()

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over the unacked messages in the order in which they were delivered.

        Messages may be delivered and settled meanwhile.

        Args:
            from_tag: Leave out those with lower delivery tags, of a consumer or of the gets of a channel.
        """
        return iter(self.taken)

    def next_tag(self) -> int:
        """Return the delivery tag of the next message that it gets; 0 if it has no delivery tags."""
        return 0


class Consumer(Holder):
    """A consumer of a queue; see QueueConsumer.

    Args:
        queue: The queue consumed from.
        tag: The consumer tag.
        no_ack: Whether messages are settled once sent.
        exclusive: Whether it is the only consumer allowed on the queue.
        priority: The x-priority argument; higher ones are served first.
        prefetch: Maximum number of unacked messages; 0 for no limit.
        channel_id: What distinguishes its channel from the others.

    Attributes:
        blocked: Whether it is outside the ring because it had no credit when it was to be served.
    """

    __slots__ = ("blocked", "channel_id", "exclusive", "no_ack", "prefetch", "priority", "tag")

    def __init__(
        self,
        queue: Queue,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        prefetch: int,
        channel_id: int,
    ) -> None:
        super().__init__(queue)
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.prefetch = prefetch
        self.channel_id = channel_id
        self.blocked = False

    @abstractmethod
    def credit(self) -> int:
        """Return the number of messages it can take now; 0 or less blocks it until unblock() of its queue."""

    @abstractmethod
    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to the client; see QueueConsumer."""

    @abstractmethod
    def cancelled(self) -> None:
        """Handle the deletion of the queue."""

    def unblock(self) -> None:
        """Let the queue serve it again, if it had no credit."""
        self.queue.unblock(self)
