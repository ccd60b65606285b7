"""Consumers of a queue, and in which order they get its messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from leveret.storage.interface import Entry

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue


class Holder:
    """Who holds unacked messages of a queue: a consumer, or the gets of a channel.

    Args:
        queue: The queue they belong to.

    Attributes:
        unacked: How many it holds.
    """

    __slots__ = ("queue", "unacked")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.unacked = 0


class Consumer(Holder, ABC):
    """Someone who takes messages from a queue as they come.

    Args:
        queue: The queue consumed from.
        tag: Its consumer tag.
        no_ack: Messages count as settled once sent.
        exclusive: No other consumer beside it.
        priority: The x-priority argument; higher ones are served first.

    Attributes:
        blocked: It had no credit when its turn came, and waits outside the ring.
    """

    __slots__ = ("blocked", "exclusive", "no_ack", "priority", "tag")

    def __init__(self, queue: Queue, tag: str, no_ack: bool, exclusive: bool, priority: int) -> None:
        super().__init__(queue)
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.blocked = False

    @abstractmethod
    def credit(self) -> int:
        """How many messages it can take now; 0 or less blocks it until unblock() of its queue."""

    @abstractmethod
    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to it.

        Args:
            entries: At most as many as its credit.
            body_bytes: Sum of their body lengths.
        """

    @abstractmethod
    def cancelled(self) -> None:
        """Learn that the queue is gone."""


#: Consumers in order, each of which can leave without a search. A dict is not enough: finding its first key means
#: walking over all that have left before.
Consumers: TypeAlias = OrderedDict[Consumer, None]


class Ring:
    """The consumers that may take messages: the highest priority first, in rotation within it."""

    __slots__ = ("_levels", "_priorities")

    def __init__(self) -> None:
        self._levels: dict[int, Consumers] = {}
        #: Priorities with at least one consumer, negated, so that the highest is the first.
        self._priorities: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, consumer: Consumer) -> None:
        """Put a consumer behind those of its priority."""
        level = self._levels.get(consumer.priority)
        if level is None:
            level = self._levels[consumer.priority] = OrderedDict()
            insort(self._priorities, -consumer.priority)
        level[consumer] = None

    def discard(self, consumer: Consumer) -> None:
        """Take a consumer out, if it is in."""
        level = self._levels.get(consumer.priority)
        if level is not None and consumer in level:
            del level[consumer]
            if not level:
                del self._levels[consumer.priority]
                del self._priorities[bisect_left(self._priorities, -consumer.priority)]

    def first_level(self) -> Consumers:
        """The consumers of the highest priority; the next to be served first."""
        return self._levels[-self._priorities[0]]

    def first(self) -> Consumer:
        """The next consumer to be served; there is one."""
        return next(iter(self.first_level()))

    def block(self, consumer: Consumer) -> None:
        """Take out a consumer that has no credit."""
        consumer.blocked = True
        self.discard(consumer)


class ConsumerGroup:
    """All consumers of one queue.

    Args:
        single_active: Only one consumer gets messages; the others wait to take over.
    """

    __slots__ = ("_all", "_waiting", "active", "ring", "single_active")

    def __init__(self, single_active: bool) -> None:
        self._all: Consumers = OrderedDict()
        #: Those that may take over from the single active one.
        self._waiting = Ring()
        self.single_active = single_active
        self.active: Consumer | None = None
        self.ring = Ring()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all)

    @property
    def exclusive(self) -> bool:
        """Whether a consumer keeps all others out."""
        return bool(self._all) and next(iter(self._all)).exclusive

    def add(self, consumer: Consumer) -> None:
        """Let a consumer join."""
        self._all[consumer] = None
        if not self.single_active:
            self.ring.add(consumer)
        elif self.active is None:
            self._activate(consumer)
        else:
            self._waiting.add(consumer)

    def remove(self, consumer: Consumer) -> None:
        """Let a consumer leave; of those that wait, the one of highest priority and longest wait takes over."""
        del self._all[consumer]
        self.ring.discard(consumer)
        self._waiting.discard(consumer)
        # Its unacked messages are still to be settled, which must not bring it back into the ring.
        consumer.blocked = False
        if consumer is self.active:
            self.active = None
            if self._waiting:
                successor = self._waiting.first()
                self._waiting.discard(successor)
                self._activate(successor)

    def unblock(self, consumer: Consumer) -> None:
        """Put a consumer that has credit again back into the ring."""
        consumer.blocked = False
        self.ring.add(consumer)

    def clear(self) -> list[Consumer]:
        """Remove all consumers; return them."""
        gone = list(self._all)
        self._all.clear()
        self.ring, self._waiting = Ring(), Ring()
        self.active = None
        return gone

    def _activate(self, consumer: Consumer) -> None:
        self.active = consumer
        consumer.blocked = False
        self.ring.add(consumer)
