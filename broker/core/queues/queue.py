"""Classic queues. A queue owns its state; all its operations are synchronous calls on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from leveret.broker.core.message_stores.backing import QueueBacking, StoreFigures
from leveret.broker.core.queues.consumers import Consumer, ConsumerGroup, Consumers, Holder
from leveret.broker.core.queues.contents import QueueContents
from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.queues.expiry import HeadTimer, QueueExpiry
from leveret.broker.core.queues.host import QueueHost
from leveret.broker.core.queues.limits import Limits
from leveret.broker.core.queues.time_to_live import split_expired, time_to_live
from leveret.broker.core.scheduling.time_slice import TimeSlice
from leveret.policies.dead_letter import EXPIRED, MAXLEN, REASONS, REJECTED
from leveret.policies.policy import Policy
from leveret.policies.settings import QueueSettings, effective_settings
from leveret.protocol.field_table import FieldTable, find, plain_values
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

#: Batch limits per consumer: large enough to amortise the cost per batch, small enough to stay fair.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144


class Queue(QueueContents):
    """A classic queue.

    Args:
        host: The virtual host.
        name: Name of the queue.
        durable: Whether the queue survives a restart.
        auto_delete: Whether the queue is deleted with its last consumer.
        owner: The connection that has declared it as exclusive; None for a shared queue.
        arguments: Arguments of the declaration.
        backing: Where its messages are kept.

    Attributes:
        policy: The policy in force, if any.
        operator_policy: The operator policy in force, if any.
        unacked_count: Number of messages delivered and not yet settled.
        unacked_bytes: Body bytes of these.
        retained_count: Number of dead letters that no queue has accepted yet (at-least-once strategy).
    """

    __slots__ = (
        "_head_timer",
        "_is_plain",
        "arguments",
        "auto_delete",
        "consumers",
        "deleted",
        "durable",
        "expiry",
        "name",
        "operator_policy",
        "owner",
        "policy",
        "retained_count",
        "scheduled",
        "unacked_bytes",
        "unacked_count",
        "vhost_name",
    )

    queue_type: Literal["classic", "quorum"] = "classic"
    #: Builds the limits from the settings.
    make_limits: Callable[[QueueSettings], Limits] = staticmethod(Limits)
    #: Whether basic.qos with global=true is supported.
    supports_global_prefetch: bool = True
    #: Whether queue.delete with if-unused or if-empty is supported.
    supports_conditional_delete: bool = True
    #: Whether a new single active consumer is served only at the next event on the queue, so that unacked messages of
    #: the previous one may be requeued first.
    delays_next_single_active: bool = True
    #: Whether basic.get is allowed with a single active consumer.
    allows_get_with_single_active: bool = True
    #: Whether basic.consume with exclusive=true is supported.
    supports_exclusive_consumers: bool = True
    #: Whether inactive consumers of a single-active queue count in queue.declare-ok.
    counts_waiting_consumers: bool = True

    def __init__(
        self,
        host: QueueHost,
        name: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: FieldTable,
        backing: QueueBacking,
    ) -> None:
        super().__init__(host, backing)
        self.vhost_name = host.name
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments
        self.policy: Policy | None = None
        self.operator_policy: Policy | None = None
        self.unacked_count = 0
        self.unacked_bytes = 0
        self.retained_count = 0
        self.scheduled = False
        self.deleted = False
        single_active = find(arguments, "x-single-active-consumer")
        self.consumers = ConsumerGroup(single_active is not None and single_active.value)
        self.expiry = QueueExpiry(host.timers, partial(host.delete_queue, self))
        self._head_timer = HeadTimer(host.timers, self.deliver)
        #: True if neither limits nor message-ttl are in force.
        self._is_plain = True

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Append messages.

        The order of steps is RabbitMQ's: refuse, deliver, append, evict, expire. Messages of a run have one size. So
        the messages that fit are a prefix of the run, and one eviction after the run has the same result as one after
        each message. While the queue is within its limits, deliveries wait for the end of the turn.

        Args:
            messages: Messages in order of arrival, with one envelope.
            body_bytes: Sum of their body lengths.
        Returns:
            Number of messages accepted from the front; the remaining ones were refused.
        """
        taken = len(messages)
        limits = self._limits
        if self._is_plain and messages[0].envelope.expiration_ms is None:
            self.store.append(messages, body_bytes)
            self.counters.published += taken
            if self._may_have_timed:
                self._untimed_since += taken
            if not self.scheduled and (self.consumers.ring or self._may_have_timed):
                self.host.turn.deliver_later(self)
            return taken
        ttl = time_to_live(messages[0], self.settings)
        if ttl == 0:
            return self._publish_with_zero_ttl(messages)
        if limits is not None and limits.refuses:
            taken = self._append_until_full(messages, ttl, limits)
        else:
            self._append(messages, body_bytes, ttl)
            if limits is not None and limits.exceeded(self.store):
                self._serve_consumers()
                self._evict_now()
        if not self.scheduled and (self.consumers.ring or self._may_have_timed):
            self.host.turn.deliver_later(self)
        return taken

    @property
    def accepts_varied(self) -> bool:
        """Whether publish_varied() is equivalent to a publish() of each message.

        It is not if messages may be refused, which depends on the size of each, or if message-ttl is 0.
        """
        return self._is_plain or ((self._limits is None or not self._limits.refuses) and self.settings.message_ttl != 0)

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages with different headers and sizes; requires accepts_varied.

        Args:
            messages: Messages in order of arrival, with one priority and one delivery mode, and without expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """
        self._append(messages, body_bytes, self.settings.message_ttl, longest)
        limits = self._limits
        if limits is not None and limits.exceeded(self.store):
            self._serve_consumers()
            self._evict_now()
        if not self.scheduled and (self.consumers.ring or self._may_have_timed):
            self.host.turn.deliver_later(self)

    def _append_until_full(self, messages: Sequence[Message], ttl: int | None, limits: Limits) -> int:
        """Append messages of a run until the queue is full, delivering to make room; return the number appended."""
        size = len(messages[0].body)
        taken = 0
        while taken < len(messages):
            room = limits.room(self.store, size)
            if room < len(messages) - taken:
                self._serve_consumers()
                room = limits.room(self.store, size)
            if room <= 0:
                break
            fitting = messages[taken : taken + room]
            self._append(fitting, size * len(fitting), ttl)
            taken += len(fitting)
        if taken < len(messages):
            refused = messages[taken:]
            self.counters.refused += len(refused)
            dead = limits.dead_letters_refused and self.settings.dead_letter_exchange is not None
            self.store.note(EventKind.REFUSED, len(refused), size * len(refused), DEAD_LETTERED if dead else 0)
            if limits.dead_letters_refused:
                self._dead_letter(refused, MAXLEN)
        return taken

    def _publish_with_zero_ttl(self, messages: Sequence[Message]) -> int:
        """Deliver messages with a TTL of 0 to consumers with credit; without one they expire.

        Messages are appended one by one, so that none fills the queue for the next one.
        """
        limits, size = self._limits, len(messages[0].body)
        leaves_no_trace = self.settings.message_ttl == 0 and self.settings.dead_letter_exchange is None
        for taken, message in enumerate(messages):
            self._serve_consumers()
            if limits is not None and limits.refuses and limits.room(self.store, size) <= 0:
                return taken + self._append_until_full(messages[taken:], 0, limits)
            if self.store.ready_count and leaves_no_trace:
                # No consumer has credit. RabbitMQ evicts no other message for one that expires immediately.
                self.counters.published += 1
                self.counters.dropped[EXPIRED] += 1
                continue
            self._append([message], size, 0)
            self._serve_consumers(expired_too=True)
            if leaves_no_trace:
                self._expire(self.host.turn.slice())
            self.deliver()
        return len(messages)

    # -- delivering ---------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Apply limits and expiry, then deliver until no consumer has credit or no message is ready."""
        if self.deleted:
            return
        if not self.evict_and_expire(self.host.turn.slice()):
            self.host.turn.deliver_later(self)
            return
        self._serve_consumers()
        if self._may_have_timed:
            self._update_may_have_timed()
            head = self.store.peek()
            if head is not None:
                self._head_timer.arm(head.expires_at)

    def _serve_consumers(self, expired_too: bool = False) -> None:
        """Deliver messages while a consumer has credit.

        Args:
            expired_too: Also deliver expired messages, for a TTL of 0.
        """
        store, ring = self.store, self.consumers.ring
        while store.ready_count and ring:
            level = ring.first_level()
            consumer = next(iter(level))
            credit = consumer.credit()
            if credit <= 0:
                ring.block(consumer)
                continue
            if len(level) > 1:
                credit = 1
            entries, body_bytes = store.take(min(credit, _RUN_MESSAGES), _RUN_BYTES)
            if self._may_have_timed and not expired_too:
                entries, expired = split_expired(entries, self.host.timers.now())
                if expired:
                    # Their dead letters may be routed back to this consumer: deliver the older messages first.
                    body_bytes -= sum(len(entry[1].body) for entry in expired)
                    self._deliver_taken(level, consumer, entries, body_bytes)
                    self._drop(expired, EXPIRED, EventKind.EXPIRED)
                    continue
            self._deliver_taken(level, consumer, entries, body_bytes)

    def _deliver_taken(self, level: Consumers, consumer: Consumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages, if any, to the first consumer of a priority level, and move it to the end."""
        if not entries:
            return
        if len(level) > 1:
            level.move_to_end(consumer)
        self.counters.count_delivery(entries)
        if consumer.no_ack:
            self.counters.delivered_no_ack += len(entries)
            self.store.settle(entries, EventKind.AUTO_ACK)
        else:
            self.unacked_count += len(entries)
            self.unacked_bytes += body_bytes
        consumer.deliver(entries, body_bytes)

    def get(self, holder: Holder | None) -> Entry | None:
        """Take the message at the head (basic.get).

        Args:
            holder: The holder of the unacked message; None settles it immediately (no-ack).
        """
        self.expiry.renew()
        # take() may return nothing if all remaining messages are damaged.
        entries, body_bytes = self.store.take(1, 1) if self.ready_count() else ([], 0)
        if not entries:
            self.counters.got_empty += 1
            return None
        self.counters.got += 1
        self.counters.redelivered += entries[0][2]
        if holder is None:
            self.counters.got_no_ack += 1
            self.store.settle(entries, EventKind.AUTO_ACK)
        else:
            self.unacked_count += 1
            self.unacked_bytes += body_bytes
            holder.unacked += 1
        if self._may_have_timed:
            # The next message may expire sooner.
            self.host.turn.deliver_later(self)
        return entries[0]

    def ready_count(self) -> int:
        """Return the number of ready messages, after all eviction, expiry and deliveries that are due."""
        if self.store.ready_count:
            while not self.evict_and_expire(TimeSlice(self.host.timers.monotonic)):
                pass
            self.deliver()
        return self.store.ready_count

    def _dead_letter(
        self, letters: Sequence[Message], reason: str, entries: Sequence[Entry] = (), kind: EventKind = EventKind.MAXLEN
    ) -> None:
        """Publish messages to the dead-letter exchange, if there is one."""
        if self.settings.dead_letter_exchange is not None:
            self.host.dead_letter(DeadLetterBatch(self, letters, reason, self.settings, entries, kind))

    def dead_lettered(self, messages: Sequence[Message], taken: int, arrived: int, reason: str) -> None:
        """Count dead letters that were published; the remaining ones are lost, as the strategy is at-most-once.

        Args:
            messages: The dead letters.
            taken: Number of messages, from the first, that all target queues accepted.
            arrived: Number of messages, from the first, that at least one target queue accepted.
            reason: The reason of dead-lettering.
        """
        self.counters.dead_letters_arrived += arrived
        if arrived < len(messages):
            self.counters.dead_letters_lost[reason] += len(messages) - arrived
            if not self.deleted:
                body_bytes = sum([len(message.body) for message in messages[arrived:]])
                why = (REASONS.index(reason) + 1) << LETTER_REASON_SHIFT
                self.store.note(EventKind.DEAD_LETTER_LOST, len(messages) - arrived, body_bytes, why)

    def figures(self) -> StoreFigures:
        """Return message and byte counts by location; cheap enough for thousands of queues in a row."""
        return self.backing.figures(self.unacked_count, self.unacked_bytes)

    # -- settling -----------------------------------------------------------------------------------------

    def release(self, holder: Holder, entries: Sequence[Entry]) -> None:
        """Remove messages from their holder, before acknowledge(), reject() or requeue()."""
        holder.unacked -= len(entries)
        self.unacked_count -= len(entries)
        self.unacked_bytes -= sum([len(entry[1].body) for entry in entries])
        if self.consumers.single_active and not holder.unacked:
            self.host.turn.deliver_later(self)

    def acknowledge(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK) -> None:
        """Settle messages that were processed.

        Args:
            entries: The messages.
            kind: The event in the event log.
        """
        if not self.deleted:
            self.counters.acknowledged += len(entries)
            self.store.settle(entries, kind)

    def reject(self, entries: Sequence[Entry]) -> None:
        """Drop messages that were rejected without requeue, or dead-letter them."""
        if not self.deleted:
            if self.store.ready_count and self.consumers.ring:
                # Deliver first: dead letters that are routed back to this queue must not overtake ready messages.
                self.deliver()
            self._drop(entries, REJECTED, EventKind.REJECT)

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Requeue messages to their positions, then apply limits and expiry, then deliver."""
        if not self.deleted:
            self.counters.requeued += len(entries)
            self.put_back(entries)
            self._evict_now()
            self.host.turn.deliver_later(self)

    def requeue_abandoned(self, entries: Sequence[Entry]) -> None:
        """Requeue messages of a closed channel."""
        self.requeue(entries)

    # -- consumers ----------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Add a consumer; it gets its first messages at the end of the turn."""
        self.consumers.add(consumer)
        self.expiry.set_in_use(True)
        self.host.turn.deliver_later(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer. Its unacked messages stay with the channel."""
        if self.deleted:
            return
        self.consumers.remove(consumer)
        if self.consumers.ring and not (
            self.delays_next_single_active and self.consumers.single_active and consumer.unacked
        ):
            self.host.turn.deliver_later(self)
        if not len(self.consumers):
            self.expiry.set_in_use(False)
            if self.auto_delete:
                self.host.delete_queue(self)

    def unblock(self, consumer: Consumer) -> None:
        """Return a consumer that was blocked without credit to the ring."""
        if consumer.blocked and not self.deleted:
            self.consumers.unblock(consumer)
            self.host.turn.deliver_later(self)

    # -- settings -----------------------------------------------------------------------------------------

    def apply_policies(self, policy: Policy | None, operator_policy: Policy | None, merged: dict[str, Any]) -> None:
        """Apply policies, and evict immediately if new limits require it.

        RabbitMQ applies the keys one after another, and limits with the previous overflow behaviour.

        Args:
            policy: The matching policy with the highest priority, if any.
            operator_policy: The matching operator policy with the highest priority, if any.
            merged: Their merged definitions.
        """
        if (policy, operator_policy) != (self.policy, self.operator_policy):
            self.policy, self.operator_policy = policy, operator_policy
            # As in RabbitMQ, any change of policy restarts the expiry timer.
            self.expiry.renew()
        new = effective_settings(self.queue_type, plain_values(self.arguments), merged)
        if new == self.settings:
            return
        # Deliver first, so that new limits do not drop messages that are deliverable now.
        self._serve_consumers()
        self.expiry.set(new.expires)
        overflow = self.settings.overflow
        self._is_plain = new.max_length is None and new.max_length_bytes is None and new.message_ttl is None
        limited = new.max_length is not None or new.max_length_bytes is not None
        self._is_shrinking = False
        for settings in (replace(new, overflow=overflow), new):
            self.settings = settings
            self._limits = self.make_limits(settings) if limited else None
            # Evict what drop-head would have dropped before the change, even if overflow is now reject-publish.
            self._is_shrinking |= self._limits is not None and not self._limits.refuses
        self._set_lazy(new.queue_mode == "lazy")
        self._evict_now()
        self.host.turn.deliver_later(self)

    # -- purging and deleting ------------------------------------------------------------------------------

    def purge(self) -> int:
        """Drop all ready messages; return their number."""
        if not self.ready_count():
            return 0
        purged = self.store.purge()
        self.counters.dropped["purged"] += purged
        return purged

    def delete(self) -> int:
        """Delete the messages and cancel the consumers; return the number of ready messages."""
        ready = self.ready_count()
        self.deleted = True
        self.expiry.close()
        self._head_timer.close()
        self.backing.delete()
        for consumer in self.consumers.clear():
            consumer.cancelled()
        return ready
