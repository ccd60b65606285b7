"""A virtual host: exchanges, bindings and queues of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.core.dead_letter import DeadLetters
from broker.core.durable import DurableRecorder
from broker.core.policies import VirtualHostPolicies
from broker.core.queues.declaration import (
    QueueDeclaration,
    check_arguments,
    check_equivalent,
    check_locked,
)
from broker.core.queues.queue import Queue
from broker.core.queues.quorum import QuorumQueue, QuorumStore
from broker.core.timers import Timers
from broker.core.topology import Topology
from broker.core.turn import Turn
from protocol.faults import not_found, precondition_failed
from protocol.field_table import FieldTable, find
from storage.definitions import NoJournal
from storage.interface import MessageStore
from storage.memory_store import MemoryStore
from storage.message import Message
from storage.priority_store import PriorityStore


class ReplyReceiver(Protocol):
    """A channel that consumes from its direct reply-to pseudo-queue."""

    def deliver_reply(self, message: Message) -> None:
        """Send it a reply."""


class VirtualHost:
    """One virtual host.

    Args:
        name: Its name.
        turn: The turn its queues deliver in.
        timers: The clock.
        trust_publishers: See DeadLetters.

    Attributes:
        queues: By name.
        policies: Its policies.
        recorder: Writes what is durable into a journal.
        replies: Channels that consume direct replies, by the name that their requests carry.
        max_connections: Connections allowed at once; None for any number.
        max_queues: Queues allowed at once; None for any number.
        connection_count: Connections open now.
    """

    def __init__(self, name: str, turn: Turn, timers: Timers, trust_publishers: bool = False) -> None:
        self.name = name
        self.turn = turn
        self.timers = timers
        self.queues: dict[str, Queue] = {}
        self.recorder = DurableRecorder(name, NoJournal())
        self.topology = Topology(name, self.recorder)
        self.replies: dict[str, ReplyReceiver] = {}
        self.max_connections: int | None = None
        self.max_queues: int | None = None
        self.connection_count = 0
        self.policies = VirtualHostPolicies(self.topology, self.recorder)
        self._dead_letters = DeadLetters(self, trust_publishers)
        self._owned: dict[int, list[Queue]] = {}

    # -- queues -------------------------------------------------------------------------------------------

    def queue(self, name: str, user: object) -> Queue:
        """Find a queue that a connection may use.

        Args:
            name: Its name.
            user: The connection.
        Raises:
            ChannelFault: NOT_FOUND (404); RESOURCE_LOCKED (405) if it is exclusive to another connection.
        """
        queue = self.queues.get(name)
        if queue is None:
            raise not_found(f"no queue '{name}' in vhost '{self.name}'")
        check_locked(queue, user)
        return queue

    def declare_queue(self, declaration: QueueDeclaration, check_dead_letter_exchange: Callable[[str], None]) -> Queue:
        """Declare a queue: check an existing one for equivalence, or create it.

        Args:
            declaration: What is asked for.
            check_dead_letter_exchange: Raises if the user may not dead-letter to the exchange of that name;
                only called when the queue is new.
        Raises:
            ChannelFault: RESOURCE_LOCKED (405), PRECONDITION_FAILED (406).
        """
        existing = self.queues.get(declaration.name)
        if existing is not None:
            check_equivalent(existing, declaration)
            return existing
        self._check_queue_limit(declaration.name)
        check_arguments(declaration, self.name, check_dead_letter_exchange)
        return self._create_queue(declaration)

    def restore_queue(self, declaration: QueueDeclaration) -> None:
        """Make a queue again that an earlier run has kept."""
        self._create_queue(declaration)

    def declare_exchange(
        self, name: str, type_name: str, durable: bool, auto_delete: bool, internal: bool, arguments: FieldTable
    ) -> None:
        """Declare an exchange and put its policy in force.

        Raises:
            ChannelFault: See Topology.declare_exchange.
        """
        is_new = name not in self.topology.exchanges
        exchange = self.topology.declare_exchange(name, type_name, durable, auto_delete, internal, arguments)
        if is_new:
            self.policies.apply_to_exchange(exchange)

    def delete_queue(self, queue: Queue) -> int:
        """Delete a queue; return how many messages were ready in it."""
        if queue.deleted:
            return 0
        del self.queues[queue.name]
        if queue.owner is not None:
            self._owned[id(queue.owner)].remove(queue)
        self.topology.remove_queue(queue)
        self.recorder.queue_deleted(queue)
        return queue.delete()

    def delete_queues_of(self, owner: object) -> None:
        """Delete the exclusive queues of a connection that has ended."""
        for queue in list(self._owned.get(id(owner), ())):
            self.delete_queue(queue)
        self._owned.pop(id(owner), None)

    def _check_queue_limit(self, name: str) -> None:
        if self.max_queues is not None and len(self.queues) >= self.max_queues:
            raise precondition_failed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({self.max_queues}) is reached"
            )

    def _create_queue(self, declaration: QueueDeclaration) -> Queue:
        queue_class, store = _queue_kind(declaration)
        queue = queue_class(
            self,
            declaration.name,
            # An exclusive queue cannot outlive its connection, so RabbitMQ makes it transient.
            declaration.durable and declaration.owner is None,
            declaration.auto_delete,
            declaration.owner,
            declaration.arguments,
            store,
        )
        self.queues[queue.name] = queue
        self.topology.add_queue(queue)
        self.recorder.queue_declared(queue)
        self.policies.apply_to_queue(queue)
        if queue.owner is not None:
            self._owned.setdefault(id(queue.owner), []).append(queue)
        return queue

    def end(self) -> None:
        """Delete everything in it."""
        for queue in list(self.queues.values()):
            self.delete_queue(queue)
        for operator in (False, True):
            for name in list(self.policies.table(operator)):
                self.policies.clear(name, operator)
        for name in list(self.topology.exchanges):
            if name and not name.startswith("amq."):
                self.topology.delete_exchange(name, if_unused=False)

    def dead_letter(self, queue: Queue, messages: Sequence[Message], reason: str) -> None:
        """Publish messages to the queue's dead-letter exchange, if it has one."""
        self._dead_letters.publish(queue, messages, reason)


def _queue_kind(declaration: QueueDeclaration) -> tuple[type[Queue], MessageStore]:
    """The class of a new queue and its store."""
    if declaration.queue_type == "quorum":
        return QuorumQueue, QuorumStore()
    priorities = find(declaration.arguments, "x-max-priority")
    if priorities is not None and priorities.value:
        return Queue, PriorityStore(priorities.value, MemoryStore)
    return Queue, MemoryStore()
