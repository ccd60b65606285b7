"""Consumers of a queue and the order in which they are served."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Literal, Protocol, TypeAlias

from leveret.storage.interface import Entry

#: Why messages leave their holder: it has dealt with them, it gives them back (requeue), or it will do neither: its
#: channel is closed, or it took too long.
Release: TypeAlias = Literal["settled", "returned", "abandoned"]


class UnackedHolder(Protocol):
    """A holder as its queue sees it.

    Attributes:
        unacked: Number of unacked messages.
    """

    unacked: int

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over the unacked messages in the order in which they were delivered; see Holder."""

    def next_tag(self) -> int:
        """Return the delivery tag of the next message that it gets; 0 if it has no delivery tags."""


class QueueConsumer(Protocol):
    """A consumer as its queue sees it.

    Attributes:
        tag: The consumer tag.
        no_ack: Whether messages are settled once sent.
        exclusive: Whether it is the only consumer allowed on the queue.
        priority: The x-priority argument; higher ones are served first.
        blocked: Whether it is outside the ring because it had no credit when it was to be served.
        unacked: Number of its unacked messages.
        channel_id: What distinguishes its channel from the others.
    """

    tag: str
    no_ack: bool
    exclusive: bool
    priority: int
    blocked: bool
    unacked: int
    channel_id: int

    def credit(self) -> int:
        """Return the number of messages it can take now; 0 or less blocks it until unblock() of its queue."""

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to the client.

        Args:
            entries: The messages, at most as many as its credit.
            body_bytes: Sum of their body lengths.
        """

    def cancelled(self) -> None:
        """Handle the deletion of the queue."""

    def unblock(self) -> None:
        """Let the queue serve it again, if it had no credit."""

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over its unacked messages in the order in which they were delivered; see Holder."""

    def next_tag(self) -> int:
        """Return the delivery tag of the next message that it gets."""


#: Ordered set of consumers with fast removal. A plain dict finds its first key slowly once many keys before it have
#: been removed.
Consumers: TypeAlias = OrderedDict[QueueConsumer, None]


class Ring:
    """Consumers with credit: the highest priority first, round-robin within a priority."""

    __slots__ = ("_levels", "_priorities")

    def __init__(self) -> None:
        self._levels: dict[int, Consumers] = {}
        #: Priorities with at least one consumer, negated so that the highest sorts first.
        self._priorities: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, consumer: QueueConsumer) -> None:
        """Append a consumer to those of its priority."""
        level = self._levels.get(consumer.priority)
        if level is None:
            level = self._levels[consumer.priority] = OrderedDict()
            insort(self._priorities, -consumer.priority)
        level[consumer] = None

    def discard(self, consumer: QueueConsumer) -> None:
        """Remove a consumer if it is in the ring."""
        level = self._levels.get(consumer.priority)
        if level is not None and consumer in level:
            del level[consumer]
            if not level:
                del self._levels[consumer.priority]
                del self._priorities[bisect_left(self._priorities, -consumer.priority)]

    def first_level(self) -> Consumers:
        """Return the consumers of the highest priority, in the order in which they are served."""
        return self._levels[-self._priorities[0]]

    def first(self) -> QueueConsumer:
        """Return the next consumer to be served. The ring must not be empty."""
        return next(iter(self.first_level()))

    def block(self, consumer: QueueConsumer) -> None:
        """Remove a consumer that has no credit."""
        consumer.blocked = True
        self.discard(consumer)


class ConsumerGroup:
    """All consumers of one queue.

    Args:
        single_active: Whether the queue has a single active consumer.

    Attributes:
        active: The single active consumer; None if there is none.
        ring: Consumers that may have credit.
    """

    __slots__ = ("_all", "_channels", "_waiting", "active", "ring", "single_active")

    def __init__(self, single_active: bool) -> None:
        self._all: Consumers = OrderedDict()
        #: Number of consumers by channel.
        self._channels: Counter[int] = Counter()
        #: Candidates for the next single active consumer.
        self._waiting = Ring()
        self.single_active = single_active
        self.active: QueueConsumer | None = None
        self.ring = Ring()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[QueueConsumer]:
        return iter(self._all)

    @property
    def exclusive(self) -> bool:
        """Whether a consumer is exclusive."""
        return bool(self._all) and next(iter(self._all)).exclusive

    @property
    def share_channels(self) -> bool:
        """Whether a channel has two or more of the consumers."""
        return len(self._channels) < len(self._all)

    def add(self, consumer: QueueConsumer) -> None:
        """Add a consumer."""
        self._all[consumer] = None
        self._channels[consumer.channel_id] += 1
        if not self.single_active:
            self.ring.add(consumer)
        elif self.active is None:
            self._activate(consumer)
        else:
            self._waiting.add(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove a consumer. A single active one is succeeded by the waiting one of highest priority, oldest first."""
        del self._all[consumer]
        self._channels[consumer.channel_id] -= 1
        if not self._channels[consumer.channel_id]:
            del self._channels[consumer.channel_id]
        self.ring.discard(consumer)
        self._waiting.discard(consumer)
        # Settling its unacked messages later must not put it back into the ring.
        consumer.blocked = False
        if consumer is self.active:
            self.active = None
            if self._waiting:
                successor = self._waiting.first()
                self._waiting.discard(successor)
                self._activate(successor)

    def unblock(self, consumer: QueueConsumer) -> None:
        """Return a consumer that has credit again to the ring."""
        consumer.blocked = False
        self.ring.add(consumer)

    def clear(self) -> list[QueueConsumer]:
        """Remove and return all consumers."""
        removed = list(self._all)
        self._all.clear()
        self._channels.clear()
        self.ring, self._waiting = Ring(), Ring()
        self.active = None
        return removed

    def _activate(self, consumer: QueueConsumer) -> None:
        self.active = consumer
        consumer.blocked = False
        self.ring.add(consumer)
