"""The queue process: the only owner of a queue's state. All its operations are plain calls on the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from leveret.broker.core.consumers import Consumer, ConsumerGroup, Consumers, Holder
from leveret.broker.core.queues.contents import QueueContents
from leveret.broker.core.queues.dead_letter_batch import DeadLetterBatch
from leveret.broker.core.queues.expiry import HeadTimer, QueueExpiry
from leveret.broker.core.queues.host import QueueHost
from leveret.broker.core.queues.limits import Limits
from leveret.broker.core.queues.storage import QueueStorage, StoreFigures
from leveret.broker.core.queues.time_to_live import split_expired, time_to_live
from leveret.broker.core.time_slice import TimeSlice
from leveret.policies.dead_letter import EXPIRED, MAXLEN, REASONS, REJECTED
from leveret.policies.policy import Policy
from leveret.policies.settings import QueueSettings, effective_settings
from leveret.protocol.field_table import FieldTable, find, plain_values
from leveret.storage.event_format import DEAD_LETTERED, LETTER_REASON_SHIFT, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

#: A consumer gets at most this many messages, or this many bytes, before the next one is served; enough to
#: make the cost of a run vanish per message.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144


class Queue(QueueContents):
    """One classic queue.

    Args:
        host: Its virtual host.
        name: Its name.
        durable: Declared to survive a restart.
        auto_delete: Deleted with its last consumer.
        owner: The connection that alone may use it; None for a shared queue.
        arguments: As declared.
        storage: Keeps its messages.

    Attributes:
        policy: The policy in force, if any.
        operator_policy: The operator policy in force, if any.
        unacked_count: Messages delivered and not settled.
        unacked_bytes: Their body bytes.
        retained_count: Dead letters that nobody has taken yet.
    """

    __slots__ = (
        "_head_timer",
        "_is_plain",
        "arguments",
        "auto_delete",
        "consumers",
        "deleted",
        "durable",
        "lease",
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
    #: Makes its limits of its settings.
    make_limits: Callable[[QueueSettings], Limits] = staticmethod(Limits)
    #: Whether its consumers may share one prefetch limit (basic.qos with global=true).
    shares_prefetch: bool = True
    #: Whether queue.delete may ask for it to be unused or empty.
    deletes_conditionally: bool = True
    #: Whether a single active consumer that takes over gets nothing before something else happens, so that what the one
    #: before it still held may come back in order.
    successor_waits: bool = True
    #: Whether basic.get goes beside a single active consumer.
    gets_beside_single_active: bool = True
    #: Whether a consumer may have it to itself (basic.consume with exclusive=true).
    knows_exclusive_consumers: bool = True
    #: Whether consumers that wait for the single active one to go count in queue.declare-ok.
    counts_waiting_consumers: bool = True

    def __init__(
        self,
        host: QueueHost,
        name: str,
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: FieldTable,
        storage: QueueStorage,
    ) -> None:
        super().__init__(host, storage)
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
        self.lease = QueueExpiry(host.timers, partial(host.delete_queue, self))
        self._head_timer = HeadTimer(host.timers, self.deliver)
        #: Neither limits nor a time to live are in force.
        self._is_plain = True

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int) -> int:
        """Take messages at the tail.

        The order of steps is RabbitMQ's: refuse, try consumers, append, evict, expire. Messages of a run have
        one size, so what fits is a prefix of it, and evicting after the run leaves what evicting after each
        message would; as long as the queue is within its limits, trying consumers waits for the end of the turn.

        Args:
            messages: In order of arrival, with one envelope.
            body_bytes: Sum of their body lengths.
        Returns:
            How many were taken; the others were refused.
        """
        taken = len(messages)
        limits = self._limits
        if self._is_plain and messages[0].envelope.expiration_ms is None:
            self.store.append(messages, body_bytes)
            self.counters.published += taken
            if self._timed:
                self._untimed_since += taken
            if not self.scheduled and (self.consumers.ring or self._timed):
                self.host.turn.deliver_later(self)
            return taken
        ttl = time_to_live(messages[0], self.settings)
        if ttl == 0:
            return self._publish_at_once(messages)
        if limits is not None and limits.refuses:
            taken = self._append_what_fits(messages, ttl, limits)
        else:
            self._append(messages, body_bytes, ttl)
            if limits is not None and limits.exceeded(self.store):
                self._serve_consumers()
                self._evict_now()
        if not self.scheduled and (self.consumers.ring or self._timed):
            self.host.turn.deliver_later(self)
        return taken

    @property
    def takes_varied(self) -> bool:
        """Whether publish_varied() means the same as one publish() for each message.

        It does not where the size of each decides whether it is refused, or where messages expire as they arrive.
        """
        return self._is_plain or ((self._limits is None or not self._limits.refuses) and self.settings.message_ttl != 0)

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Take messages at the tail whose headers and sizes differ; only if takes_varied.

        Args:
            messages: In order of arrival, with one priority and one delivery mode, and without an expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """
        self._append(messages, body_bytes, self.settings.message_ttl, longest)
        limits = self._limits
        if limits is not None and limits.exceeded(self.store):
            self._serve_consumers()
            self._evict_now()
        if not self.scheduled and (self.consumers.ring or self._timed):
            self.host.turn.deliver_later(self)

    def _append_what_fits(self, messages: Sequence[Message], ttl: int | None, limits: Limits) -> int:
        """Append the messages of a run up to the first that does not fit; what consumers take makes room."""
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

    def _publish_at_once(self, messages: Sequence[Message]) -> int:
        """Take messages with a time to live of 0: who has credit gets them now, nobody else ever does.

        They come one by one, so that none of them takes the room of another.
        """
        limits, size = self._limits, len(messages[0].body)
        leaves_no_trace = self.settings.message_ttl == 0 and self.settings.dead_letter_exchange is None
        for taken, message in enumerate(messages):
            self._serve_consumers()
            if limits is not None and limits.refuses and limits.room(self.store, size) <= 0:
                return taken + self._append_what_fits(messages[taken:], 0, limits)
            if self.store.ready_count and leaves_no_trace:
                # Nobody has credit, and RabbitMQ evicts nothing for a message that it would forget.
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
        """Drop what must go, then hand ready messages to consumers until none has credit or nothing is ready."""
        if self.deleted:
            return
        if not self.tidy(self.host.turn.slice()):
            self.host.turn.deliver_later(self)
            return
        self._serve_consumers()
        if self._timed:
            self._find_timed()
            head = self.store.peek()
            if head is not None:
                self._head_timer.arm(head.expires_at)

    def _serve_consumers(self, expired_too: bool = False) -> None:
        """Hand out messages as long as someone has credit.

        Args:
            expired_too: Also those that expire the moment they come.
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
            if self._timed and not expired_too:
                entries, expired = split_expired(entries, self.host.timers.now())
                if expired:
                    # They may come back as dead letters and go to this very consumer: it has to have the rest.
                    body_bytes -= sum(len(entry[1].body) for entry in expired)
                    self._hand_out(level, consumer, entries, body_bytes)
                    self._drop(expired, EXPIRED, EventKind.EXPIRED)
                    continue
            self._hand_out(level, consumer, entries, body_bytes)

    def _hand_out(self, level: Consumers, consumer: Consumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages, if there are any, to the first consumer of a level; it is the last one then."""
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
            holder: Who will settle it; None settles it at once.
        """
        self.lease.renew()
        # Those that are left may all be damaged.
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
        if self._timed:
            # The message behind it may expire sooner than it would have.
            self.host.turn.deliver_later(self)
        return entries[0]

    def ready_count(self) -> int:
        """Ready messages once all that is due has been done: eviction, expiry, deliveries."""
        if self.store.ready_count:
            while not self.tidy(TimeSlice(self.host.timers.monotonic)):
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
        """Learn which dead letters have arrived; the others are lost, as dead-lettering is at-most-once here.

        Args:
            messages: As they were dead-lettered.
            taken: How many of them, from the first on, all their queues have taken.
            arrived: How many of them, from the first on, any queue has taken.
            reason: Why they were.
        """
        self.counters.dead_letters_arrived += arrived
        if arrived < len(messages):
            self.counters.dead_letters_lost[reason] += len(messages) - arrived
            if not self.deleted:
                body_bytes = sum([len(message.body) for message in messages[arrived:]])
                why = (REASONS.index(reason) + 1) << LETTER_REASON_SHIFT
                self.store.note(EventKind.DEAD_LETTER_LOST, len(messages) - arrived, body_bytes, why)

    def figures(self) -> StoreFigures:
        """Where its messages are; cheap enough to be asked of ten thousand queues in a row."""
        return self.storage.figures(self.unacked_count, self.unacked_bytes)

    # -- settling -----------------------------------------------------------------------------------------

    def release(self, holder: Holder, entries: Sequence[Entry]) -> None:
        """A holder gives up messages; acknowledge(), reject() or requeue() says what becomes of them."""
        holder.unacked -= len(entries)
        self.unacked_count -= len(entries)
        self.unacked_bytes -= sum([len(entry[1].body) for entry in entries])
        if self.consumers.single_active and not holder.unacked:
            self.host.turn.deliver_later(self)

    def acknowledge(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK) -> None:
        """Forget messages that have been dealt with.

        Args:
            entries: The messages.
            kind: How, as the event log says it.
        """
        if not self.deleted:
            self.counters.acknowledged += len(entries)
            self.store.settle(entries, kind)

    def reject(self, entries: Sequence[Entry]) -> None:
        """Drop messages that were refused for good."""
        if not self.deleted:
            if self.store.ready_count and self.consumers.ring:
                # The room that they leave is not for those of their dead letters that come back here.
                self.deliver()
            self._drop(entries, REJECTED, EventKind.REJECT)

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Put messages back to where they were; then limits and expiry apply, and only then deliveries."""
        if not self.deleted:
            self.counters.requeued += len(entries)
            self.put_back(entries)
            self._evict_now()
            self.host.turn.deliver_later(self)

    def requeue_abandoned(self, entries: Sequence[Entry]) -> None:
        """Put messages back whose channel has ended."""
        self.requeue(entries)

    # -- consumers ----------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """Let a consumer join; it gets its first messages at the end of the turn."""
        self.consumers.add(consumer)
        self.lease.hold(True)
        self.host.turn.deliver_later(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let a consumer leave. Its unacked messages stay with its channel."""
        if self.deleted:
            return
        self.consumers.remove(consumer)
        if self.consumers.ring and not (self.successor_waits and self.consumers.single_active and consumer.unacked):
            self.host.turn.deliver_later(self)
        if not len(self.consumers):
            self.lease.hold(False)
            if self.auto_delete:
                self.host.delete_queue(self)

    def unblock(self, consumer: Consumer) -> None:
        """Serve a consumer again that had no credit when its turn came."""
        if consumer.blocked and not self.deleted:
            self.consumers.unblock(consumer)
            self.host.turn.deliver_later(self)

    # -- settings -----------------------------------------------------------------------------------------

    def apply_policies(self, policy: Policy | None, operator_policy: Policy | None, merged: dict[str, Any]) -> None:
        """Put policies in force, shrinking the queue at once where they demand it.

        RabbitMQ applies the keys one after another, and limits under the overflow that was in force before.

        Args:
            policy: The policy that has won, if any.
            operator_policy: The operator policy that has won, if any.
            merged: Their definitions, taken together.
        """
        if (policy, operator_policy) != (self.policy, self.operator_policy):
            self.policy, self.operator_policy = policy, operator_policy
            # As with RabbitMQ, whatever it is that changes.
            self.lease.renew()
        new = effective_settings(self.queue_type, plain_values(self.arguments), merged)
        if new == self.settings:
            return
        # What consumers could have had by now is not to be dropped.
        self._serve_consumers()
        self.lease.set(new.expires)
        overflow = self.settings.overflow
        self._is_plain = new.max_length is None and new.max_length_bytes is None and new.message_ttl is None
        limited = new.max_length is not None or new.max_length_bytes is not None
        self._is_shrinking = False
        for settings in (replace(new, overflow=overflow), new):
            self.settings = settings
            self._limits = self.make_limits(settings) if limited else None
            # What the overflow of before would have dropped goes, though the new one may refuse instead.
            self._is_shrinking |= self._limits is not None and not self._limits.refuses
        self._set_lazy(new.queue_mode == "lazy")
        self._evict_now()
        self.host.turn.deliver_later(self)

    # -- the end ------------------------------------------------------------------------------------------

    def purge(self) -> int:
        """Forget all ready messages; return how many they were."""
        if not self.ready_count():
            return 0
        purged = self.store.purge()
        self.counters.dropped["purged"] += purged
        return purged

    def delete(self) -> int:
        """End the queue: drop its messages, cancel its consumers; return how many were ready."""
        ready = self.ready_count()
        self.deleted = True
        self.lease.cancel()
        self._head_timer.end()
        self.storage.delete()
        for consumer in self.consumers.clear():
            consumer.cancelled()
        return ready
