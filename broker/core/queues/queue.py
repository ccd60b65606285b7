"""The queue process: the only owner of a queue's state. All its operations are plain calls on the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from broker.core.consumers import Consumer, ConsumerGroup, Holder
from broker.core.turn import Turn
from protocol.faults import access_refused
from protocol.field_table import FieldTable, find
from storage.interface import Entry, MessageStore
from storage.message import Message

#: A consumer gets at most so many messages, or so many bytes, before the next one has its chance; enough to
#: make the cost of a run vanish per message.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144


class QueueCounters:
    """What happened in a queue since it was made. They only grow."""

    __slots__ = ("acknowledged", "delivered", "got", "published", "redelivered", "requeued")

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.got = 0
        self.redelivered = 0
        self.acknowledged = 0
        self.requeued = 0


class Queue:
    """One classic queue.

    Args:
        vhost_name: Its virtual host.
        name: Its name.
        durable: Declared to survive a restart.
        auto_delete: Deleted with its last consumer.
        owner: The connection that alone may use it; None for a shared queue.
        arguments: As declared.
        store: Keeps its messages.
        turn: Calls deliver() at the end of the turn.
        on_unused: Called when the last consumer of an auto-delete queue has gone.

    Attributes:
        unacked_count: Messages delivered and not settled.
        scheduled: Whether deliver() is due at the end of the turn; kept by Turn.
        deleted: It is gone; whoever still holds its messages settles them into the void.
    """

    __slots__ = (
        "_on_unused", "_turn", "arguments", "auto_delete", "consumers", "counters", "deleted", "durable",
        "idle_since", "name", "owner", "scheduled", "store", "unacked_count", "vhost_name",
    )  # fmt: skip

    def __init__(
        self,
        vhost_name: str,
        name: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: FieldTable,
        store: MessageStore,
        turn: Turn,
        on_unused: Callable[[Queue], None],
    ) -> None:
        self.vhost_name = vhost_name
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments
        self.store = store
        self.unacked_count = 0
        self.scheduled = False
        self.deleted = False
        self.counters = QueueCounters()
        single_active = find(arguments, "x-single-active-consumer")
        self.consumers = ConsumerGroup(single_active is not None and single_active.value)
        self.idle_since = time.time()
        self._turn = turn
        self._on_unused = on_unused

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int) -> None:
        """Take messages at the tail.

        The order of steps is that of RabbitMQ: refuse, confirm, try consumers, append, evict, expire. Without
        limits only two are left, and trying consumers can wait for the end of the turn: nobody can tell.

        Args:
            messages: In order of arrival.
            body_bytes: Sum of their body lengths.
        """
        self.store.append(messages, body_bytes)
        self.counters.published += len(messages)
        if not self.scheduled and self.consumers.ring:
            self._turn.deliver_later(self)

    # -- delivering ---------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Hand ready messages to consumers until no consumer has credit or nothing is ready."""
        store, ring = self.store, self.consumers.ring
        while store.ready_count and ring:
            level = ring.first_level()
            consumer = level[0]
            credit = consumer.credit()
            if credit <= 0:
                ring.block(consumer)
                continue
            if len(level) > 1:
                level.rotate(-1)
                credit = 1
            bytes_before = store.ready_bytes
            entries = store.take(min(credit, _RUN_MESSAGES), _RUN_BYTES)
            self._count_delivery(entries)
            if consumer.no_ack:
                store.settle(entries)
            else:
                self.unacked_count += len(entries)
            consumer.deliver(entries, bytes_before - store.ready_bytes)

    def _count_delivery(self, entries: Sequence[Entry]) -> None:
        self.counters.delivered += len(entries)
        # Redelivered entries are the oldest, so they come first in a run.
        if entries[0][2]:
            self.counters.redelivered += sum(entry[2] for entry in entries)

    def get(self, holder: Holder | None) -> Entry | None:
        """Take the message at the head (basic.get).

        Args:
            holder: Who will settle it; None settles it at once.
        """
        self.deliver()
        entries = self.store.take(1, 1)
        if not entries:
            return None
        self.counters.got += 1
        self.counters.redelivered += entries[0][2]
        if holder is None:
            self.store.settle(entries)
        else:
            self.unacked_count += 1
            holder.unacked += 1
        return entries[0]

    def ready_count(self) -> int:
        """Ready messages once every consumer with credit has been served."""
        if self.store.ready_count:
            self.deliver()
        return self.store.ready_count

    # -- settling -----------------------------------------------------------------------------------------

    def acknowledge(self, holder: Holder, entries: Sequence[Entry]) -> None:
        """Forget messages that a holder has dealt with."""
        self._release(holder, len(entries))
        if not self.deleted:
            self.counters.acknowledged += len(entries)
            self.store.settle(entries)

    def reject(self, holder: Holder, entries: Sequence[Entry]) -> None:
        """Drop messages that a holder refused for good."""
        self._release(holder, len(entries))
        if not self.deleted:
            self.store.settle(entries)

    def requeue(self, holder: Holder, entries: Sequence[Entry]) -> None:
        """Put messages of a holder back to where they were."""
        self._release(holder, len(entries))
        if not self.deleted:
            self.counters.requeued += len(entries)
            self.store.requeue(entries)
            self._turn.deliver_later(self)

    def _release(self, holder: Holder, count: int) -> None:
        holder.unacked -= count
        self.unacked_count -= count

    # -- consumers ----------------------------------------------------------------------------------------

    def check_exclusive_use(self, exclusive: bool) -> None:
        """Refuse a consumer that another one keeps out, or that wants to be alone and is not.

        Raises:
            ChannelFault: ACCESS_REFUSED (403).
        """
        group = self.consumers
        if group.exclusive or (exclusive and (len(group) or group.single_active)):
            raise access_refused(f"queue '{self.name}' in vhost '{self.vhost_name}' in exclusive use")

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer join; it gets its first messages at the end of the turn."""
        self.consumers.add(consumer)
        self._turn.deliver_later(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let a consumer leave. Its unacked messages stay with its channel."""
        if self.deleted:
            return
        self.consumers.remove(consumer)
        if self.consumers.ring:
            self._turn.deliver_later(self)
        if not len(self.consumers):
            self.idle_since = time.time()
            if self.auto_delete:
                self._on_unused(self)

    def unblock(self, consumer: Consumer) -> None:
        """Serve a consumer again that had no credit when its turn came."""
        if consumer.blocked and not self.deleted:
            self.consumers.unblock(consumer)
            self._turn.deliver_later(self)

    def touch(self) -> None:
        """Note that someone has looked at the queue, which counts as use."""
        self.idle_since = time.time()

    # -- the end ------------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""
        return self.store.purge() if self.ready_count() else 0

    def delete(self) -> int:
        """End the queue: drop its messages, cancel its consumers; return how many were ready."""
        ready = self.ready_count()
        self.deleted = True
        self.store.close()
        for consumer in self.consumers.clear():
            consumer.cancelled()
        return ready
