"""Virtual hosts: each has its own exchanges, queues and bindings, and policies that apply to them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from leveret.broker.core.counters.counters import ExchangeCounters, QueueCounters, VirtualHostStatistics
from leveret.broker.core.counters.history import STEP, LossCounters
from leveret.broker.core.deduplication.filter import DuplicateFilter
from leveret.broker.core.definitions_gate import ALWAYS_OPEN
from leveret.broker.core.delays.waiting_messages import WaitingMessages
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.types import DISK, DeduplicatingExchange, DelayedExchange
from leveret.broker.core.message_stores import MessageStores
from leveret.broker.core.messages import PublishDetails, Publisher
from leveret.broker.core.queues.classic_queue import ClassicQueue
from leveret.broker.core.queues.declaration_checks import (
    check_arguments,
    check_equivalent,
    check_not_locked,
    stream_segment_bytes,
)
from leveret.broker.core.queues.outbox import DeadLetterBatch
from leveret.broker.core.queues.queue import Queue, QueueDeclaration
from leveret.broker.core.queues.stream_queue import StreamQueue, StreamUpkeep
from leveret.broker.core.queues.traits import CLASSIC, DEFAULT_RELEASE, PRIORITY, QUORUM_RELEASES
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import Turn, Work
from leveret.broker.core.vhosts.dead_letters import DeadLetters
from leveret.broker.core.vhosts.due_messages import DueMessages
from leveret.broker.core.vhosts.event_fields import counted_fields
from leveret.broker.core.vhosts.metadata import VirtualHostMetadata
from leveret.broker.core.vhosts.recorder import DurableRecorder, Unrestored
from leveret.broker.core.vhosts.topology import Topology
from leveret.broker.core.vhosts.tracing import Tracer
from leveret.policies.policy import Policy, find_policy, merge_operator
from leveret.protocol.faults import ConnectionFault, not_found, precondition_failed
from leveret.protocol.field_table import FieldTable, find
from leveret.storage.backings import StoreRequest
from leveret.storage.event_format import TOLD
from leveret.storage.message import Message

log = logging.getLogger("leveret.exchange")


class VirtualHostPolicies:
    """The policies and operator policies of one virtual host.

    At most one of each applies to a queue; several policies are never merged.

    Args:
        topology: The queues and exchanges of the virtual host.
        recorder: Records policies durably.
        keep_values: Keeps what an exchange remembers where its policy says; returns whether that has changed.

    Attributes:
        policies: Policies by name.
        operator_policies: Operator policies by name.
    """

    def __init__(
        self,
        topology: Topology,
        recorder: DurableRecorder,
        keep_values: Callable[[Exchange], bool] = lambda exchange: False,
    ) -> None:
        self._topology = topology
        self._recorder = recorder
        self._keep_values = keep_values
        self.policies: dict[str, Policy] = {}
        self.operator_policies: dict[str, Policy] = {}

    def table(self, operator: bool) -> dict[str, Policy]:
        """Return the policies of one kind by name."""
        return self.operator_policies if operator else self.policies

    def set(self, policy: Policy, operator: bool) -> bool:
        """Add or replace a policy, and apply it at once.

        Args:
            operator: Whether it is an operator policy.
        Returns:
            Whether it is new.
        """
        is_new, steps = self.set_in_steps(policy, operator)
        _exhaust(steps)
        return is_new

    def set_in_steps(self, policy: Policy, operator: bool) -> tuple[bool, Iterator[None]]:
        """Like set(), but existing queues and exchanges get the policy step by step; new ones get it at once.

        Returns:
            Whether it is new, and the steps, one per queue or exchange.
        """
        table = self.table(operator)
        known = table.get(policy.name)
        table[policy.name] = policy
        if known == policy:
            return False, iter(())
        self._recorder.policy_set(policy, operator)
        return known is None, self._apply([policy] if known is None else [known, policy])

    def clear(self, name: str, operator: bool) -> bool:
        """Remove a policy; return whether it existed."""
        steps = self.clear_in_steps(name, operator)
        if steps is None:
            return False
        _exhaust(steps)
        return True

    def clear_in_steps(self, name: str, operator: bool) -> Iterator[None] | None:
        """Like clear(), in steps as with set_in_steps(); return None if the policy does not exist."""
        known = self.table(operator).pop(name, None)
        if known is None:
            return None
        self._recorder.policy_cleared(name, operator)
        return self._apply([known])

    def apply_to_queue(self, queue: Queue) -> None:
        """Find and apply the policies of a queue."""
        policy = find_policy(self.policies.values(), queue.name, queue.queue_type)
        operator_policy = find_policy(self.operator_policies.values(), queue.name, queue.queue_type)
        queue.apply_policies(policy, operator_policy, effective_definition(policy, operator_policy))

    def apply_to_exchange(self, exchange: Exchange) -> None:
        """Find and apply the policy of an exchange: its keys are those that exchanges read."""
        policy = exchange.policy = self._policy_of(exchange)
        alternate = None if policy is None else policy.definition.get("alternate-exchange")
        # Policies match the default exchange, but it never has an alternate exchange.
        if exchange.name:
            self._topology.set_alternate(exchange, alternate)
        exchange.apply_policy({} if policy is None else policy.definition)
        self._move_values(exchange)

    def missing_letter_exchange(self, queue: Queue) -> str | None:
        """Return the dead-letter exchange in the settings of a queue if it does not exist, so that letters are lost."""
        name = queue.settings.dead_letter_exchange
        return None if name is None or name in self._topology.exchanges else name

    def definition_of(self, exchange: Exchange) -> Mapping[str, Any]:
        """Return the definition of the policy of an exchange, which need not be in force yet; empty without one."""
        policy = self._policy_of(exchange)
        return {} if policy is None else policy.definition

    def _policy_of(self, exchange: Exchange) -> Policy | None:
        return find_policy(self.policies.values(), exchange.name, "exchange")

    def _move_values(self, exchange: Exchange) -> None:
        """Keep what an exchange remembers where its policy says."""
        try:
            has_moved = self._keep_values(exchange)
        except ConnectionFault as fault:
            # The policy is in force nevertheless; the next start tries again.
            log.error("%s", fault.explanation)
            return
        if has_moved:
            self._recorder.exchange_declared(exchange)

    def _apply(self, changed: Sequence[Policy]) -> Iterator[None]:
        """Reapply policies to all queues and exchanges that the changed policies match."""
        for queue in list(self._topology.queues.values()):
            if not queue.deleted and any(policy.matches(queue.name, queue.queue_type) for policy in changed):
                self.apply_to_queue(queue)
            yield
        exchanges = self._topology.exchanges
        for exchange in list(exchanges.values()):
            exists = exchanges.get(exchange.name) is exchange
            if exists and any(policy.matches(exchange.name, "exchange") for policy in changed):
                self.apply_to_exchange(exchange)
            yield


def effective_definition(policy: Policy | None, operator_policy: Policy | None) -> dict[str, object]:
    """Merge the definitions of a policy and an operator policy; empty if there is neither."""
    user = {} if policy is None else policy.definition
    return merge_operator(user, {} if operator_policy is None else operator_policy.definition)


def _exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


class ReplyReceiver(Protocol):
    """A channel that consumes from its direct reply-to pseudo-queue."""

    def deliver_reply(self, message: Message) -> None:
        """Send a reply to the client."""


#: Longest time window in seconds; the names of deleted objects are kept for as long.
DAY: Final = 86_400
#: Deleted objects of a virtual host and kind whose names are kept.
_DELETED_MAX: Final = 200

Counters = TypeVar("Counters", bound=LossCounters)


@dataclass(frozen=True, slots=True)
class Deleted(Generic[Counters]):
    """A deleted queue or exchange.

    Args:
        deleted_at: Time of the deletion, in seconds since 1970.
    """

    name: str
    counters: Counters
    deleted_at: int


class DeletedObjects(Generic[Counters]):
    """Losses of deleted queues, or of deleted exchanges, of a virtual host.

    Objects deleted within the last day are kept by name, up to a limit; of all others only sums are kept.

    Args:
        earlier: Receives the sums of objects deleted more than a day ago.
        others: Receives the sums of objects that are not kept by name.

    Attributes:
        recent: Objects kept by name, oldest first.
        earlier: Sums of objects deleted more than a day ago.
        others: Sums of objects that are not kept by name, with a history.
    """

    def __init__(self, earlier: Counters, others: Counters) -> None:
        self.recent: deque[Deleted[Counters]] = deque()
        self.earlier = earlier
        self.others = others

    def add(self, name: str, counters: Counters, now: int, by_name: bool = True) -> None:
        """Add an object that is being deleted.

        Args:
            now: Seconds since 1970.
            by_name: Whether to keep it by name.
        """
        if not counters.has_losses:
            return
        if not by_name:
            self.others.absorb(counters)
            return
        counters.sample_losses(now // STEP * STEP + STEP, detailed=False)
        self.restore(name, counters, now)

    def restore(self, name: str, counters: Counters, deleted_at: int) -> None:
        """Add an object as the newest one; see add()."""
        self.recent.append(Deleted(name, counters, deleted_at))
        if len(self.recent) > _DELETED_MAX:
            self.others.absorb(self.recent.popleft().counters)

    def sample(self, now: int) -> None:
        """Take a sample, and drop the names of objects deleted more than a day ago."""
        while self.recent and self.recent[0].deleted_at < now - DAY:
            self.earlier.absorb(self.recent.popleft().counters)
        if self.others.has_losses:
            self.others.sample_losses(now, detailed=True)


class VirtualHost:
    """One virtual host.

    Args:
        turn: Runs deliveries at the end of each turn.
        trust_publishers: See DeadLetters.
        stores: The message stores of queues; by default in memory.
        recorder: Records durable definitions; None to record nothing.

    Attributes:
        queues: Queues by name; kept by the topology.
        events: Who is told of changes.
        quorum_release: The release of RabbitMQ that new quorum queues follow.
        policies: Policies and operator policies.
        dead_letters: Republishes messages that queues drop.
        due_work: Works on messages that are due, of exchanges and queues.
        due_messages: Routes delayed messages that are due.
        streams: Applies the limits of streams now and then.
        unrestored: Definitions that could not be restored at start.
        replies: Channels that consume direct replies, by reply-to name.
        max_connections: Limit of open connections; None or a negative number for no limit.
        max_queues: Limit of queues; None or a negative number for no limit.
        has_limits: Whether limits have been set; RabbitMQ also lists them when the last one has been removed.
        metadata: Description, tags and defaults; changed by Broker.set_metadata.
        tracer: Copies published and delivered messages; None while tracing is off.
        statistics: Counters of the virtual host.
        deleted_queues: Losses of deleted queues.
        deleted_exchanges: Losses of deleted exchanges.
    """

    def __init__(
        self,
        name: str,
        turn: Turn,
        timers: Timers,
        stores: MessageStores,
        trust_publishers: bool = False,
        recorder: DurableRecorder | None = None,
        quorum_release: str = DEFAULT_RELEASE,
    ) -> None:
        self._stores = stores
        self.quorum_release = quorum_release
        self.name = name
        self.turn = turn
        self.timers = timers
        self.recorder = recorder or DurableRecorder(name)
        self.events = self.recorder.events
        self.topology = Topology(name, self.recorder, timers, self._on_exchange_deleted)
        self.queues: Mapping[str, Queue] = self.topology.queues
        self.replies: dict[str, ReplyReceiver] = {}
        self.max_connections: int | None = None
        self.max_queues: int | None = None
        self.has_limits = False
        self.metadata = VirtualHostMetadata()
        self.tracer: Tracer | None = None
        self.statistics = VirtualHostStatistics()
        now = timers.seconds()
        self.deleted_queues = DeletedObjects(QueueCounters(now), QueueCounters(now))
        self.deleted_exchanges = DeletedObjects(ExchangeCounters(now), ExchangeCounters(now))
        self.policies = VirtualHostPolicies(self.topology, self.recorder, self._keep_values)
        self.dead_letters = DeadLetters(self.topology, turn, timers, trust_publishers)
        self.due_work = Work(turn)
        self.due_messages = DueMessages(self.topology, self.due_work)
        self.streams = StreamUpkeep(timers)
        self.unrestored = Unrestored(name, self.recorder, self._stores)
        self._owned: dict[int, dict[Queue, None]] = {}

    # -- limits -------------------------------------------------------------------------------------------

    def set_limits(self, max_connections: int | None, max_queues: int | None) -> None:
        """Set both limits; None or a negative number means no limit."""
        self.max_connections, self.max_queues = max_connections, max_queues
        self.has_limits = True

    def clear_limits(self) -> None:
        """Remove both limits, as if they had never been set."""
        self.set_limits(None, None)
        self.has_limits = False

    def note_unroutable(self, message: Message, publisher: Publisher, mandatory: bool = True) -> None:
        """Record an unroutable message.

        Args:
            mandatory: Whether its publisher is told.
        """
        details = PublishDetails(self.name, message.envelope, publisher)
        self._stores.engine.note_unroutable(1, len(message.body), TOLD if mandatory else 0, details)

    # -- queues -------------------------------------------------------------------------------------------

    def queue(self, name: str, owner: object | None) -> Queue:
        """Find a queue that a connection may use.

        Args:
            name: Name of the queue.
            owner: The object that identifies the requesting connection; None over HTTP.
        Raises:
            ChannelFault: NOT_FOUND (404); RESOURCE_LOCKED (405) if it is exclusive to another connection.
        """
        queue = self.queues.get(name)
        if queue is None:
            raise not_found(f"no queue '{name}' in vhost '{self.name}'")
        check_not_locked(queue, owner)
        self.recorder.rely_on("queue", name)
        return queue

    def declare_queue(
        self,
        declaration: QueueDeclaration,
        check_dead_letter_exchange: Callable[[str], None],
        is_import: bool = False,
    ) -> Queue:
        """Declare a queue: check an existing one for equivalence, or create it.

        Args:
            declaration: Name, flags and arguments.
            check_dead_letter_exchange: Raises if the user may not dead-letter to an exchange, by its name;
                called for new queues only.
            is_import: Whether it comes from a definitions document, for which the default queue type does not count.
        Raises:
            ChannelFault: RESOURCE_LOCKED (405), PRECONDITION_FAILED (406); NOT_FOUND (404) if it is on disk but could
                not be restored.
        """
        temporary = declaration.auto_delete or declaration.owner is not None
        if not is_import:
            arguments = self.metadata.add_default_queue_type(declaration.arguments, declaration.durable, temporary)
            declaration = replace(declaration, arguments=arguments)
        self.statistics.queue_declared += 1
        existing = self.queues.get(declaration.name)
        if existing is not None:
            check_equivalent(existing, declaration)
            self.recorder.rely_on("queue", declaration.name)
            return existing
        self.unrestored.refuse("queue", declaration.name)
        declaration = replace(declaration, release=self.quorum_release)
        self._check_queue_limit(declaration.name)
        check_arguments(declaration, self.name, check_dead_letter_exchange)
        if declaration.durable and declaration.owner is None:
            self.recorder.refuse_if_failing("queue", declaration.name)
        self.statistics.queue_created += 1
        return self._create_queue(declaration)

    def restore_queue(self, declaration: QueueDeclaration, qid: int | None) -> None:
        """Restore a durable queue.

        Args:
            declaration: Its original declaration.
            qid: Queue number on disk; None if it is unknown.
        Raises:
            AmqpFault: The declaration is no longer valid.
        """
        check_arguments(declaration, self.name, lambda _: None)
        try:
            queue = self._create_queue(declaration, qid)
        except Exception:
            half_made = self.queues.get(declaration.name)
            if half_made is not None:
                self.topology.remove_queue(half_made)
            raise
        if queue.store.ready_count:
            self.turn.deliver_later(queue)

    def declare_exchange(
        self,
        name: str,
        type_name: str,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: FieldTable,
        qid: int | None = None,
        values_qid: int | None = None,
    ) -> None:
        """Declare an exchange and apply its policy.

        Args:
            name: Name of the exchange.
            durable: The durable bit.
            auto_delete: The auto-delete bit.
            internal: The internal bit.
            arguments: Arguments as received.
            qid: Number on disk of its delayed messages, if it is restored; None if it has none, or they are unknown.
            values_qid: The same of the values that it remembers.
        Raises:
            ChannelFault: See Topology.declare_exchange.
            ConnectionFault: RESOURCE_ERROR (506): the files of its delayed messages cannot be created.
        """
        is_new = name not in self.topology.exchanges
        if is_new:
            self.unrestored.refuse("exchange", name)
            if durable:
                self.recorder.refuse_if_failing("exchange", name)
        exchange = self.topology.declare_exchange(
            name,
            type_name,
            durable,
            auto_delete,
            internal,
            arguments,
            partial(self._prepare_exchange, qid=qid, values_qid=values_qid),
        )
        if is_new:
            self.policies.apply_to_exchange(exchange)

    def delete_queue(self, queue: Queue, by_broker: bool = False) -> int:
        """Delete a queue; return its number of ready messages.

        Args:
            by_broker: Whether nobody has asked for it: it has expired, or goes with its last consumer or connection.
        """
        if queue.deleted:
            return 0
        if queue.owner is not None:
            self._owned.get(id(queue.owner), {}).pop(queue, None)
        self.topology.remove_queue(queue)
        self.streams.remove(queue)
        self.recorder.queue_deleted(queue)
        self.unrestored.delete_bindings("queue", queue.name)
        self.dead_letters.clear_cache()
        self.due_messages.clear_cache()
        deleted = queue.delete()
        self.events.tell("queue.deleted", counted_fields, queue, deleted, by_broker=by_broker)
        counters = queue.counters
        counters.deleted = deleted
        self.statistics.deleted(queue.queue_type, counters)
        self.deleted_queues.add(queue.name, counters, self.timers.seconds(), queue.owner is None)
        return deleted

    def delete_queues_of(self, owner: object) -> None:
        """Delete the exclusive queues of a closed connection, in time slices if there are very many."""
        self._delete_in_slices(deque(self._owned.pop(id(owner), ())))

    def _delete_in_slices(self, queues: deque[Queue]) -> None:
        time_slice = self.turn.slice()
        while queues:
            # Messages of the closed connection may still be on their way back.
            if queues[0].return_some(time_slice):
                self.delete_queue(queues.popleft(), by_broker=True)
            if queues and time_slice.is_over():
                self.timers.call_later(0, partial(self._delete_in_slices, queues))
                return

    def _check_queue_limit(self, name: str) -> None:
        if self.max_queues is not None and 0 <= self.max_queues <= len(self.queues):
            raise precondition_failed(
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({self.max_queues}) is reached"
            )

    def _create_queue(self, declaration: QueueDeclaration, qid: int | None = None) -> Queue:
        if declaration.queue_type == "stream":
            return self._create_stream(declaration, qid)
        is_quorum = declaration.queue_type == "quorum"
        if is_quorum:
            traits = QUORUM_RELEASES[declaration.release or DEFAULT_RELEASE]
            max_priority = traits.max_priority
        else:
            priorities = find(declaration.arguments, "x-max-priority")
            max_priority = priorities.value if priorities is not None else 0
            traits = PRIORITY if max_priority else CLASSIC
        request = StoreRequest(
            self.name, declaration.name, declaration.is_durable, max_priority, persists_transient=is_quorum
        )
        queue = ClassicQueue(self, declaration, self._stores.open(request, qid), traits)
        self._add_queue(queue)
        if queue.owner is not None:
            self._owned.setdefault(id(queue.owner), {})[queue] = None
        return queue

    def _create_stream(self, declaration: QueueDeclaration, qid: int | None) -> Queue:
        size = stream_segment_bytes(declaration.arguments)
        policy = find_policy(self.policies.policies.values(), declaration.name, "stream")
        if policy is not None:
            # As in RabbitMQ a policy comes before the argument, and counts for new streams only.
            size = int(policy.definition.get("stream-max-segment-size-bytes", size))
        request = StoreRequest(self.name, declaration.name, True, persists_transient=True, stream_segment_bytes=size)
        backing = self._stores.open(request, qid)
        names = StoreRequest(
            self.name, declaration.name, True, persists_transient=True, kind="offsets", owner=backing.qid
        )
        stream = StreamQueue(
            self,
            declaration,
            backing,
            self._stores.await_sync,
            lambda creates: self._stores.open_level(names) if creates else self._stores.open_if_found(names),
        )
        self._add_queue(stream)
        self.streams.add(stream)
        return stream

    def _add_queue(self, queue: Queue) -> None:
        self.topology.add_queue(queue)
        self.recorder.queue_declared(queue)
        self.policies.apply_to_queue(queue)

    def delete_contents(self) -> None:
        """Delete all queues, policies, exchanges and bindings. Later changes are not recorded."""
        for queue in list(self.queues.values()):
            self.delete_queue(queue)
        for operator in (False, True):
            for name in list(self.policies.table(operator)):
                self.policies.clear(name, operator)
        self.topology.delete_all()
        self.unrestored.delete_all()
        # A pending request may still use it: its declarations must not appear in a later virtual host of the same name.
        self.recorder.journal = ALWAYS_OPEN

    @property
    def delayed_count(self) -> int:
        """Number of messages that wait in exchanges until they are due."""
        return sum(
            exchange.waiting.count
            for exchange in self.topology.exchanges.values()
            if isinstance(exchange, DelayedExchange) and exchange.waiting is not None
        )

    def _prepare_exchange(self, exchange: Exchange, qid: int | None, values_qid: int | None) -> None:
        """Open the store of an exchange that delays messages, and make the filter of one that drops duplicates."""
        deduplicating = exchange.router()
        if isinstance(deduplicating, DeduplicatingExchange):
            deduplicating.duplicates = DuplicateFilter(exchange.counters, self.timers, self.due_work)
            deduplicating.apply_policy(self.policies.definition_of(exchange))
            self._keep_values(exchange, values_qid)
        if isinstance(exchange, DelayedExchange):
            # As in RabbitMQ, all messages survive a restart, whatever their delivery mode.
            request = StoreRequest(
                self.name, exchange.name, exchange.durable, persists_transient=exchange.durable, kind="exchange"
            )
            backing = self._stores.open_level(request, qid)
            clocks = self.timers, self.turn
            exchange.waiting = WaitingMessages(
                self.name, exchange.name, backing, exchange.counters, *clocks, self.due_messages
            )

    def _keep_values(self, exchange: Exchange, qid: int | None = None) -> bool:
        """Keep what an exchange remembers on disk or in memory, as its arguments and policy say.

        Returns:
            Whether that has changed, so that its definition is another one.
        """
        deduplicating = exchange.router()
        if not isinstance(deduplicating, DeduplicatingExchange) or deduplicating.duplicates is None:
            return False
        duplicates = deduplicating.duplicates
        is_on_disk = exchange.durable and deduplicating.persistence == DISK
        if is_on_disk is (duplicates.log is not None):
            return False
        if not is_on_disk:
            duplicates.keep_in_memory()
            return True
        request = StoreRequest(self.name, exchange.name, durable=True, persists_transient=True, kind="deduplication")
        duplicates.keep_on_disk(self._stores.open_level(request, qid), self._stores)
        return True

    def _on_exchange_deleted(self, exchange: Exchange) -> None:
        exchange.close()
        self.due_messages.clear_cache()
        self.unrestored.delete_bindings("exchange", exchange.name)
        self.deleted_exchanges.add(exchange.name, exchange.counters, self.timers.seconds())

    def dead_letter(self, batch: DeadLetterBatch) -> None:
        """Publish messages to their queue's dead-letter exchange; DeadLetterOutbox.sent() is called for each step."""
        self.dead_letters.publish(batch)
