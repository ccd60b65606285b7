"""Queues as the rest of the broker sees them, their consumers, and who holds their unacked messages.

There are two kinds behind this interface: a `ClassicQueue`, from which messages are taken, and a `StreamQueue`, from
which consumers read. A queue owns its state; all its operations are synchronous calls on the event loop.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.deduplication.header_values import QueuedValues
from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.messages import Target
from leveret.broker.core.queues.outbox import DeadLetterBatch
from leveret.broker.core.queues.traits import Limits, QueueTraits
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import TimeSlice, Turn, Work
from leveret.policies.policy import Policy
from leveret.policies.queue_settings import QueueSettings
from leveret.protocol.field_table import FieldTable, as_text, find
from leveret.storage.backings import QueueBacking, StoreFigures
from leveret.storage.interface import Entry, MessageStore

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


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """The arguments of queue.declare.

    Args:
        name: The queue name; never empty, as server-named queues already have their generated name.
        durable: The durable bit.
        auto_delete: The auto-delete bit.
        owner: If the exclusive bit is set, the object that identifies the declaring connection; else None.
        arguments: The arguments table as received.
        server_named: True if the broker has generated the name.
        release: The release of RabbitMQ that a quorum queue follows; "" for that of the broker's option.
    """

    name: str
    durable: bool
    auto_delete: bool
    owner: object | None
    arguments: FieldTable
    server_named: bool = False
    release: str = ""

    @property
    def is_durable(self) -> bool:
        """Whether the queue survives a restart. As in RabbitMQ one that is exclusive to a connection does not."""
        return self.durable and self.owner is None

    @property
    def queue_type(self) -> str:
        """The declared queue type; classic if there is none."""
        field = find(self.arguments, "x-queue-type")
        return "classic" if field is None else as_text(field)


class QueueHost(Protocol):
    """The virtual host of a queue.

    Attributes:
        name: Name of the virtual host.
        turn: Schedules deliver() for the end of the turn.
        timers: Clock and timers.
        due_work: Works on messages that wait for their retry, when they are due.
    """

    name: str
    turn: Turn
    timers: Timers
    due_work: Work

    def dead_letter(self, batch: DeadLetterBatch) -> None:
        """Publish messages to the dead-letter exchange; results are reported to DeadLetterOutbox.sent()."""

    def delete_queue(self, queue: Queue, by_broker: bool = False) -> int:
        """Delete a queue; return the number of its messages. An expired or auto-delete one is deleted by the broker."""


class Drop(NamedTuple):
    """Messages that a queue would drop at once.

    Args:
        messages: Number of messages.
        body_bytes: Sum of their body lengths in bytes; a lower bound if the number is an estimate.
        is_estimate: Whether the number is estimated from the average size, because a limit in bytes applies.
    """

    messages: int
    body_bytes: int
    is_estimate: bool = False


class Queue(Target):
    """A queue: its name and policies, its consumers and counters, and where its messages are kept.

    What a stream has none of (unacked messages that count, retries, dead letters, length limits, expiry) is 0, None or
    done already.

    Args:
        host: The virtual host.
        declaration: Its name, flags and arguments.
        backing: Where its messages are kept.
        traits: What is particular to its type.

    Attributes:
        durable: Whether it survives a restart.
        auto_delete: Whether it is deleted with its last consumer.
        owner: The connection that has declared it as exclusive; None for a shared queue.
        queue_type: Name of the type.
        counters: Counters since the declaration.
        consumers: Its consumers.
        policy: The policy in force, if any.
        operator_policy: The operator policy in force, if any.
        accepts_varied: Whether publish_varied() is equivalent to a publish() of each message. It is not if messages may
            be refused or unacked messages count, which depends on the size of each, or if message-ttl is 0.
        scheduled: Whether deliver() is scheduled for the end of the turn; maintained by Turn.
        deleted: Whether the queue is deleted; settling messages then has no effect.
    """

    __slots__ = (
        "arguments", "auto_delete", "backing", "consumers", "counters", "durable", "host", "operator_policy", "owner",
        "policy", "queue_type", "scheduled", "traits",
    )  # fmt: skip

    definition_kind: ClassVar[str] = "queue"

    def __init__(
        self,
        host: QueueHost,
        declaration: QueueDeclaration,
        backing: QueueBacking,
        traits: QueueTraits,
    ) -> None:
        super().__init__(host.name, declaration.name, backing)
        self.host = host
        self.durable = declaration.is_durable
        self.auto_delete = declaration.auto_delete
        self.owner = declaration.owner
        self.arguments = declaration.arguments
        self.backing = backing
        self.traits = traits
        self.queue_type = traits.queue_type
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        self.scheduled = False
        self.counters = QueueCounters(host.timers.seconds())
        single_active = find(self.arguments, "x-single-active-consumer")
        self.consumers = ConsumerGroup(single_active is not None and bool(single_active.value))

    # -- as a target of messages --------------------------------------------------------------------------

    def queue_names(self) -> list[str]:
        """Return its name; see Target."""
        return [self.name]

    def without(self, names: Collection[str | None]) -> Target | None:
        """Return None if it is among some queues, by their names; see Target."""
        return None if self.name in names else self

    # -- settings and limits ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def settings(self) -> QueueSettings:
        """The effective settings, merged from arguments and policies."""

    @property
    def limits(self) -> Limits | None:
        """Its length limits; None if there are none."""
        return None

    def limits_by(self, settings: QueueSettings) -> Limits | None:
        """Return the length limits that it would have with other settings; None if there were none."""
        return None

    @abstractmethod
    def excess(self, settings: QueueSettings) -> Drop:
        """Return what would be dropped at once if these were the settings."""

    @abstractmethod
    def apply_policies(self, policy: Policy | None, operator_policy: Policy | None, merged: dict[str, Any]) -> None:
        """Apply policies, and new limits immediately.

        Args:
            policy: The matching policy with the highest priority, if any.
            operator_policy: The matching operator policy with the highest priority, if any.
            merged: Their merged definitions.
        """

    def renew_expiry(self) -> None:
        """Begin to wait anew until the queue expires: it is used."""

    # -- figures ------------------------------------------------------------------------------------------

    @property
    def store(self) -> MessageStore:
        """The message store."""
        return self.backing.store

    @abstractmethod
    def ready_count(self) -> int:
        """Return the number of ready messages, after all eviction, expiry and deliveries that are due."""

    @property
    def unacked_count(self) -> int:
        """Number of messages delivered and not yet settled."""
        return 0

    @property
    def unacked_bytes(self) -> int:
        """Body bytes of messages delivered and not yet settled."""
        return 0

    @property
    def retained_count(self) -> int:
        """Number of dead letters that no queue has accepted yet (at-least-once strategy)."""
        return 0

    @property
    def retained_bytes(self) -> int:
        """Body bytes of dead letters that no queue has accepted yet."""
        return 0

    @property
    def delayed_count(self) -> int:
        """Number of messages that wait for their retry."""
        return 0

    @property
    def delayed_bytes(self) -> int:
        """Body bytes of messages that wait for their retry."""
        return 0

    @property
    def waiting(self) -> Schedule | None:
        """Messages that wait for their retry; None if there are none."""
        return None

    @property
    def values(self) -> QueuedValues | None:
        """The values of its messages, by which it drops duplicates; None if it drops none."""
        return None

    def withheld_count(self) -> int:
        """Return the number of messages that are neither ready nor unacked.

        They are dead letters that no queue has accepted yet, returned ones that wait for their retry, and those that
        the system cannot read for now.
        """
        return self.retained_count + self.delayed_count + self.backing.unreadable_count

    def withheld_bytes(self) -> int:
        """Return the body bytes of these, as far as they are known: those that cannot be read are missing."""
        return self.retained_bytes + self.delayed_bytes

    def figures(self) -> StoreFigures:
        """Return message and byte counts by location; cheap enough for thousands of queues in a row."""
        return self.backing.figures(self.unacked_count, self.unacked_bytes)

    # -- delivering and settling --------------------------------------------------------------------------

    @abstractmethod
    def deliver(self) -> None:
        """Deliver until no consumer has credit or no message is left."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver messages that the system could not read for a while."""

    def prepare(self, time_slice: TimeSlice) -> bool:
        """Apply limits and expiry while time is left; return whether the messages that are ready can be counted."""
        return True

    @property
    def is_returning(self) -> bool:
        """Whether requeued messages are not back yet, because there are very many."""
        return False

    def return_some(self, time_slice: TimeSlice) -> bool:
        """Go on with requeued messages while time is left; return whether all are back."""
        return True

    @abstractmethod
    def release(self, holder: UnackedHolder, entries: Sequence[Entry], why: Release = "settled") -> None:
        """Remove messages from their holder, before acknowledge(), reject() or requeue().

        Args:
            entries: The messages.
            why: Why they leave it.
        """

    @abstractmethod
    def acknowledge(self, entries: Sequence[Entry]) -> None:
        """Settle messages that were processed."""

    @abstractmethod
    def reject(self, entries: Sequence[Entry]) -> None:
        """Settle messages that were rejected without requeue."""

    @abstractmethod
    def requeue(self, entries: Sequence[Entry], abandoned: bool = False, failed: bool = False) -> None:
        """Take messages back.

        Args:
            entries: The messages.
            abandoned: Whether they are the messages of a closed channel, or of a consumer that has timed out.
            failed: Whether they were rejected, or their channel has ended.
        """

    # -- consumers ----------------------------------------------------------------------------------------

    @abstractmethod
    def add_consumer(self, consumer: QueueConsumer) -> None:
        """Add a consumer; it gets its first messages at the end of the turn."""

    @abstractmethod
    def remove_consumer(self, consumer: QueueConsumer) -> None:
        """Remove a consumer. Its unacked messages stay with the channel."""

    @abstractmethod
    def unblock(self, consumer: QueueConsumer) -> None:
        """Serve a consumer again that was blocked without credit."""

    def single_active(self, consumer: QueueConsumer) -> tuple[bool, QueueConsumer | None]:
        """Return whether a consumer is one of several of which only one gets messages, and which one does."""
        return self.consumers.single_active, self.consumers.active

    def cancel_delayed(self, number: int) -> bool:
        """Remove a message that waits for its retry, which is not dead-lettered; return whether it still waited."""
        return False

    def return_now(self, number: int) -> bool:
        """Make a message ready that waits for its retry; return whether it still waited."""
        return False

    def holders(self) -> list[UnackedHolder]:
        """Return all who hold unacked messages."""
        return [consumer for consumer in self.consumers if consumer.unacked]

    def returning(self) -> Iterator[Entry]:
        """Iterate over requeued messages that are not back yet."""
        return iter(())

    @abstractmethod
    def delete(self) -> int:
        """Delete the messages and cancel the consumers; return how many were ready, or waited for their retry."""


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
