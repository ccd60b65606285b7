"""Queues from which messages are taken: classic, priority and quorum queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from leveret.broker.core.deduplication.header_values import QueuedValues, read_key
from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.messages import Publisher
from leveret.broker.core.queues.browsing import note_values
from leveret.broker.core.queues.contents import Contents, Delivery
from leveret.broker.core.queues.outbox import DeadLetterOutbox
from leveret.broker.core.queues.queue import (
    Drop,
    Queue,
    QueueConsumer,
    QueueDeclaration,
    QueueHost,
    Release,
    UnackedHolder,
)
from leveret.broker.core.queues.returns import RETURN_STEP, DelayedReturns, DeliveryCounter, ReturnRules
from leveret.broker.core.queues.traits import CLASSIC, Limits, QueueTraits
from leveret.broker.core.scheduling.timers import Timer, Timers
from leveret.broker.core.scheduling.turn import UNLIMITED, TimeSlice
from leveret.policies.dead_letter import EXPIRED, REJECTED
from leveret.policies.policy import Policy
from leveret.policies.queue_settings import QueueSettings, effective_settings
from leveret.protocol.field_table import plain_values
from leveret.storage.backings import QueueBacking
from leveret.storage.callbacks import call_each
from leveret.storage.event_format import AUTO_ACK, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message

#: Longest delay of a timer, in microseconds; a timer that fires too early is armed again. TTLs have no upper bound.
_LONGEST: Final = 86_400_000_000


class HeadTimer:
    """Timer for the expiry of the message at the head of a queue.

    Args:
        expire: Called at or after the expiry time.
    """

    __slots__ = ("_at", "_expire", "_timer", "_timers")

    def __init__(self, timers: Timers, expire: Callable[[], None]) -> None:
        self._timers = timers
        self._expire = expire
        self._timer: Timer | None = None
        self._at = 0

    def arm(self, expires_at: int) -> None:
        """Set the timer, unless it is set to an earlier time already.

        Args:
            expires_at: Expiry time in microseconds since 1970; 0 for none.
        """
        if not expires_at or (self._timer is not None and self._at <= expires_at):
            return
        self.cancel()
        self._at = expires_at
        self._timer = self._timers.call_later(_seconds(expires_at - self._timers.now()), self._fire)

    def close(self) -> None:
        """Cancel the timer of a deleted queue."""
        self.cancel()
        # Breaks the reference cycle with the queue, so that it is freed without the garbage collector.
        self._expire = _do_nothing

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._expire()


class QueueExpiry:
    """Timer for the expiry of an unused queue (x-expires).

    A queue is in use while it has consumers; declaring it and basic.get restart the timer.

    Args:
        on_expired: Called once when the queue has expired.
    """

    __slots__ = ("_in_use", "_milliseconds", "_on_expired", "_since", "_timer", "_timers")

    def __init__(self, timers: Timers, on_expired: Callable[[], object]) -> None:
        self._timers = timers
        self._on_expired = on_expired
        self._milliseconds: int | None = None
        self._since = timers.monotonic()
        self._in_use = False
        self._timer: Timer | None = None

    def set(self, milliseconds: int | None) -> None:
        """Set x-expires in milliseconds; None disables it. A changed value restarts the timer."""
        if milliseconds != self._milliseconds:
            # The timer of a longer value would fire too late.
            self._stop()
            self._milliseconds = milliseconds
            self.renew()

    def set_in_use(self, in_use: bool) -> None:
        """Set whether the queue has consumers; removing the last one restarts the timer."""
        self._in_use = in_use
        self.renew()

    def renew(self) -> None:
        """Restart the timer: the queue has been used."""
        self._since = self._timers.monotonic()
        if self._timer is None:
            self._arm()

    def close(self) -> None:
        """Cancel the timer of a deleted queue."""
        self._stop()
        self._milliseconds = None
        self._on_expired = _do_nothing

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._milliseconds is not None and not self._in_use:
            left = self._since + self._milliseconds * 1000 - self._timers.monotonic()
            self._timer = self._timers.call_later(_seconds(left), self._check)

    def _check(self) -> None:
        self._timer = None
        if self._milliseconds is None or self._in_use:
            return
        if self._timers.monotonic() - self._since >= self._milliseconds * 1000:
            self._on_expired()
        else:
            self._arm()


def _do_nothing() -> None:
    """Do nothing: the callback after the queue is deleted."""


def _seconds(microseconds: int) -> float:
    return min(max(0, microseconds), _LONGEST) / 1_000_000


#: Milliseconds that no turn takes, even where other programs have the processor.
_LONGEST_TURN: Final = 1000


class ClassicQueue(Queue):
    """A queue from which messages are taken, composed of parts.

    Classic, priority and quorum queues are of this kind; they differ by their traits. For the arguments see Queue.

    Attributes:
        contents: Its messages, with limits and expiry.
        outbox: Its dead letters.
        delivery: Delivers messages to the consumers.
        expiry: Timer of x-expires.
    """

    __slots__ = (
        "_counter", "_head_timer", "_is_plain", "_return_rules", "contents", "delivery", "expiry", "outbox",
    )  # fmt: skip

    def __init__(
        self,
        host: QueueHost,
        declaration: QueueDeclaration,
        backing: QueueBacking,
        traits: QueueTraits = CLASSIC,
    ) -> None:
        super().__init__(host, declaration, backing, traits)
        counters = self.counters
        outbox = self.outbox = DeadLetterOutbox(self.name, backing, counters, host.timers, host.dead_letter)
        contents = self.contents = Contents(backing, host.timers, counters, outbox)
        self.delivery = Delivery(contents, self.consumers, traits)
        self.expiry = QueueExpiry(host.timers, self._expire)
        self._head_timer = HeadTimer(host.timers, self.deliver)
        self._counter = DeliveryCounter()
        #: What happens to returned messages; None if they go back to where they were.
        self._return_rules: ReturnRules | None = None
        if traits.counts_deliveries:
            self._return_rules = ReturnRules(self.settings, traits, self._counter)
        if backing.has_waiting:
            self._open_waiting()
        #: Whether neither limits nor message-ttl nor priorities have to be considered for new messages.
        self._is_plain = not traits.delivers_each_run

    @property
    def settings(self) -> QueueSettings:
        """The effective settings, merged from arguments and policies."""
        return self.contents.settings

    @property
    def limits(self) -> Limits | None:
        """Its length limits; None if there are none."""
        return self.contents.limits

    def limits_by(self, settings: QueueSettings) -> Limits | None:
        """Return the length limits that it would have with other settings; None if there were none."""
        return self.traits.limits(settings, self.contents.unacked, self.contents.waiting)

    # -- figures ------------------------------------------------------------------------------------------

    @property
    def unacked_count(self) -> int:
        """Number of messages delivered and not yet settled."""
        return self.contents.unacked.count

    @property
    def unacked_bytes(self) -> int:
        """Body bytes of messages delivered and not yet settled."""
        return self.contents.unacked.body_bytes

    @property
    def retained_count(self) -> int:
        """Number of dead letters that no queue has accepted yet (at-least-once strategy)."""
        return self.outbox.retained_count

    @property
    def retained_bytes(self) -> int:
        """Body bytes of dead letters that no queue has accepted yet."""
        return self.outbox.retained_bytes

    @property
    def delayed_count(self) -> int:
        """Number of messages that wait for their retry."""
        return self.contents.delayed_count

    @property
    def delayed_bytes(self) -> int:
        """Body bytes of messages that wait for their retry."""
        return self.contents.delayed_bytes

    @property
    def waiting(self) -> Schedule | None:
        """Messages that wait for their retry; None if there are none."""
        return self.contents.waiting

    @property
    def values(self) -> QueuedValues | None:
        """The values of its messages, by which it drops duplicates; None if it drops none."""
        return self.outbox.values if self.outbox.values.is_active else None

    def ready_count(self) -> int:
        """Return the number of ready messages, after all eviction, expiry and deliveries that are due."""
        if self.store.ready_count or self.delivery.returning.batches:
            self.delivery.prepare(UNLIMITED)
            self.deliver()
        return self.store.ready_count

    def excess(self, settings: QueueSettings) -> Drop:
        """Predict drops. As in RabbitMQ, new limits apply with the current overflow behaviour, or else the new one."""
        both = [self.limits_by(each) for each in (replace(settings, overflow=self.settings.overflow), settings)]
        limits = next((made for made in both if made is not None and not made.refuses), None)
        if limits is None or settings == self.settings:
            return Drop(0, 0)
        ready = self.ready_count()
        size = self.store.ready_bytes / ready if ready else 0.0
        by_count, excess = max(0, limits.excess_messages(self.store)), max(0, limits.excess_bytes(self.store))
        by_bytes = min(ready, -int(-excess // size)) if size else 0
        if by_bytes > by_count:
            return Drop(by_bytes, excess, True)
        return Drop(by_count, round(by_count * size))

    # -- publishing ---------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None = None) -> int:
        """Append messages.

        The order of steps is RabbitMQ's: refuse, deliver, append, evict, expire. Messages of a run have one size. So
        the messages that fit are a prefix of the run, and one eviction after the run has the same result as one after
        each message. While the queue is within its limits, deliveries wait for the end of the turn, unless the messages
        might expire before it: what a consumer has credit for is delivered, as in RabbitMQ, however busy the broker is.

        Args:
            messages: Messages in order of arrival, with one envelope.
            body_bytes: Sum of their body lengths.
            publisher: Who publishes them; None for the broker itself.
        Returns:
            Number of messages accepted from the front; the remaining ones were refused.
        """
        contents = self.contents
        if self._is_plain and messages[0].envelope.expiration_ms is None and not contents.may_have_timed:
            # The short way: there is nothing to check, and nothing to note about expiry.
            self.backing.store.append(messages, body_bytes)
            self.counters.published += len(messages)
            if not self.scheduled and self.consumers.ring:
                self.host.turn.deliver_later(self)
            return len(messages)
        if self.outbox.values.is_active:
            return self._publish_unique(messages, body_bytes, publisher)
        return self._publish(messages, body_bytes, publisher)

    def _publish(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None) -> int:
        """Append messages that are no duplicates; see publish()."""
        contents = self.contents
        ttl = contents.time_to_live(messages[0])
        at_once = self._deliver_before(ttl)
        taken, limits = len(messages), contents.limits
        if messages[0].envelope.dead and not self.traits.refuses_dead_letters and limits is not None and limits.refuses:
            limits = None
        if limits is not None and (limits.refuses or limits.counts_unacked) and self.delivery.returning.batches:
            # What fits, or is dropped, depends on the ready messages.
            self.delivery.return_some(UNLIMITED)
        if ttl == 0:
            taken = self._publish_with_zero_ttl(messages, limits, publisher)
        elif limits is not None and limits.refuses:
            taken = contents.append_until_full(messages, ttl, limits, self.delivery.serve, publisher)
        elif limits is not None and limits.counts_unacked:
            contents.append_beyond(messages, ttl, limits, self.delivery.serve)
            self._evict()
        else:
            contents.append(messages, body_bytes, ttl)
            if limits is not None:
                self._shrink(limits)
        self._deliver_new(at_once)
        return taken

    def publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages with different headers and sizes; requires accepts_varied.

        Args:
            messages: Messages in order of arrival, with one priority and one delivery mode, and without expiration.
            body_bytes: Sum of their body lengths.
            longest: Length of the longest body.
        """
        if self.outbox.values.is_active:
            self._publish_varied_unique(messages)
        else:
            self._publish_varied(messages, body_bytes, longest)

    def _publish_varied(self, messages: Sequence[Message], body_bytes: int, longest: int) -> None:
        """Append messages that are no duplicates; see publish_varied()."""
        ttl = self.contents.settings.message_ttl
        at_once = self._deliver_before(ttl)
        self.contents.append(messages, body_bytes, ttl, longest)
        if self.contents.limits is not None:
            self._shrink(self.contents.limits)
        self._deliver_new(at_once)

    def _publish_unique(self, messages: Sequence[Message], body_bytes: int, publisher: Publisher | None) -> int:
        """Publish messages of one envelope, but drop duplicates, which count as accepted; see publish()."""
        key, values = read_key(messages[0].envelope.header), self.outbox.values
        if key is None:
            return self._publish(messages, body_bytes, publisher)
        size = len(messages[0].body)
        for taken, message in enumerate(messages):
            if self._has_duplicate(key):
                self.counters.deduplicated += 1
                continue
            values.add(key)
            if not self._publish([message], size, publisher):
                values.discard(key)
                rest = messages[taken + 1 :]
                if rest:
                    # They are refused for the same reason.
                    self._publish(rest, size * len(rest), publisher)
                return taken
        return len(messages)

    def _publish_varied_unique(self, messages: Sequence[Message]) -> None:
        """Publish messages with different headers, but drop duplicates; see publish_varied()."""
        values = self.outbox.values
        waiting: list[Message] = []
        for message in messages:
            key = read_key(message.envelope.header)
            if key is not None:
                if values.has(key) and waiting and self.consumers.ring:
                    # The duplicate may be of one of them, which may be delivered for good.
                    self._publish_sized(waiting)
                    waiting = []
                if self._has_duplicate(key):
                    self.counters.deduplicated += 1
                    continue
                values.add(key)
            waiting.append(message)
        if waiting:
            self._publish_sized(waiting)

    def _publish_sized(self, messages: Sequence[Message]) -> None:
        sizes = [len(message.body) for message in messages]
        self._publish_varied(messages, sum(sizes), max(sizes))

    def _has_duplicate(self, key: bytes) -> bool:
        """Return whether a message in the queue has a value, after deliveries and expiry that are due."""
        values = self.outbox.values
        if not values.has(key):
            return False
        if self.store.ready_count and (self.consumers.ring or self.contents.may_have_timed):
            self.deliver()
        return values.has(key)

    def _deliver_before(self, ttl: int | None) -> bool:
        """Deliver what is due before messages are appended that are not to wait for the end of the turn.

        Args:
            ttl: Time to live of the messages in milliseconds; None for no limit.
        Returns:
            Whether they are to be delivered at once, although they may have expired by then: consumers wait for them.
        """
        is_short = ttl is not None and 0 < ttl < _LONGEST_TURN and bool(self.consumers.ring)
        if self.scheduled and (is_short or self.traits.delivers_each_run):
            self.deliver()
        # What is still ready, or returning, comes before them, and must not be delivered if it has expired.
        return is_short and not self.store.ready_count and not self.delivery.returning.batches

    def _publish_with_zero_ttl(
        self, messages: Sequence[Message], limits: Limits | None, publisher: Publisher | None
    ) -> int:
        """Deliver messages with a TTL of 0 to consumers with credit; without one they expire.

        Messages are appended one by one, so that none fills the queue for the next one.
        """
        contents, size = self.contents, len(messages[0].body)
        leaves_no_trace = (
            self.settings.message_ttl == 0
            and self.settings.dead_letter_exchange is None
            and not self.outbox.values.is_active
        )
        for taken, message in enumerate(messages):
            self.delivery.serve()
            if limits is not None and limits.refuses and limits.room(self.store, size) <= 0:
                rest = messages[taken:]
                return taken + contents.append_until_full(rest, 0, limits, self.delivery.serve, publisher)
            if self.store.ready_count and leaves_no_trace:
                # No consumer has credit. RabbitMQ evicts no other message for one that expires immediately.
                self.counters.published += 1
                self.counters.dropped[EXPIRED] += 1
                continue
            contents.append([message], size, 0)
            if limits is not None and limits.counts_unacked and limits.exceeded(self.store):
                # What is beyond the limit is dropped before a consumer takes it.
                contents.is_shrinking = True
                self._evict()
            self.delivery.serve(expired_too=True)
            if leaves_no_trace:
                contents.expire(self.host.turn.slice())
            self.deliver()
        return len(messages)

    def _shrink(self, limits: Limits) -> None:
        """Deliver, then evict, if the queue exceeds its limits."""
        if limits.exceeded(self.store):
            self.delivery.serve()
            self._evict()

    def _evict(self) -> None:
        """Drop the oldest messages while a limit is exceeded; continue in the next turn if it takes too long."""
        time_slice = self.host.turn.slice()
        if not (self.delivery.return_some(time_slice) and self.contents.evict(time_slice)):
            self.host.turn.deliver_later(self)

    def _deliver_new(self, at_once: bool) -> None:
        """Deliver new messages at the end of the turn, or at once if that, or the type of the queue, demands it."""
        if not self.scheduled and (self.consumers.ring or self.contents.may_have_timed):
            self.host.turn.deliver_later(self)
        # Not while evictions for a new limit are pending.
        if (at_once or self.traits.delivers_each_run) and not self.contents.is_shrinking:
            self.delivery.serve(expired_too=at_once)

    # -- delivering ---------------------------------------------------------------------------------------

    def deliver(self) -> None:
        """Apply limits and expiry, then deliver until no consumer has credit or no message is ready."""
        if self.deleted:
            return
        if not self.delivery.prepare(self.host.turn.slice()):
            self.host.turn.deliver_later(self)
            return
        self.delivery.serve()
        if self.contents.may_have_timed:
            self._head_timer.arm(self.contents.next_expiry())

    def prepare(self, time_slice: TimeSlice) -> bool:
        """Apply limits and expiry while time is left; see Queue."""
        return self.delivery.prepare(time_slice)

    @property
    def is_returning(self) -> bool:
        """Whether requeued messages are not back yet, because there are very many."""
        return bool(self.delivery.returning.batches)

    def return_some(self, time_slice: TimeSlice) -> bool:
        """Go on with requeued messages while time is left; return whether all are back."""
        return self.delivery.return_some(time_slice)

    def returning(self) -> Iterator[Entry]:
        """Iterate over requeued messages that are not back yet."""
        for entries, _ in self.delivery.returning.batches:
            yield from entries

    def holders(self) -> list[UnackedHolder]:
        """Return all who hold unacked messages, also those that are consumers no more."""
        return [each for each in [*self.consumers, *self.delivery.others] if each.unacked]

    def renew_expiry(self) -> None:
        """Begin to wait anew until the queue expires: it is used."""
        self.expiry.renew()

    def resume(self) -> None:
        """Deliver messages that the system could not read for a while."""
        self.backing.look_again()
        self.host.turn.deliver_later(self)

    def get(self, holder: UnackedHolder | None) -> Entry | None:
        """Take the message at the head (basic.get). Those of a quorum queue always have a delivery count.

        Args:
            holder: The holder of the unacked message; None settles it immediately (no-ack).
        """
        self.expiry.renew()
        # take() may return nothing if all remaining messages are damaged.
        entries, body_bytes = self.store.take(1, 1) if self.ready_count() else ([], 0)
        if not entries:
            self.counters.got_empty += 1
            return None
        seq, message, redelivered = entries[0]
        self.counters.got += 1
        self.counters.redelivered += redelivered
        if holder is None:
            self.counters.got_no_ack += 1
            if self.outbox.values.is_active:
                self.outbox.values.release(self.store, entries)
            self.store.settle(entries, AUTO_ACK)
        else:
            self.delivery.hold(holder, 1, body_bytes)
        if self.contents.may_have_timed:
            # The next message may expire sooner.
            self.host.turn.deliver_later(self)
        if not self.traits.counts_deliveries or message.envelope.delivery_count is not None:
            return entries[0]
        return seq, self._counter.with_count(message, 0), redelivered

    # -- settling -----------------------------------------------------------------------------------------

    def release(self, holder: UnackedHolder, entries: Sequence[Entry], why: Release = "settled") -> None:
        """Remove messages from their holder; see Queue."""
        holder.unacked -= len(entries)
        self.delivery.remove_unacked(entries)
        if self.delivery.others and not holder.unacked:
            self.delivery.others.pop(holder, None)

    def acknowledge(self, entries: Sequence[Entry], kind: EventKind = EventKind.ACK) -> None:
        """Settle messages that were processed.

        Args:
            entries: The messages.
            kind: The event in the event log.
        """
        if not self.deleted:
            self.counters.acknowledged += len(entries)
            if self.outbox.values.is_active:
                self.outbox.values.release(self.store, entries)
            self.store.settle(entries, kind)

    def reject(self, entries: Sequence[Entry]) -> None:
        """Drop messages that were rejected without requeue, or dead-letter them."""
        if not self.deleted:
            if self.store.ready_count and self.consumers.ring:
                # Deliver first: dead letters that are routed back to this queue must not overtake ready messages.
                self.deliver()
            self.outbox.drop(entries, REJECTED, EventKind.REJECT)

    def requeue(self, entries: Sequence[Entry], abandoned: bool = False, failed: bool = False) -> None:
        """Requeue messages to their positions, then apply limits and expiry, then deliver.

        Limits that count unacked messages drop nothing here.

        Quorum queues, and classic ones with redelivery-limit, drop messages that exceed it. With delayed retries
        messages wait first. Then they precede all that have not been delivered yet. As in RabbitMQ those that return to
        a quorum queue without delay are appended at the tail instead, unless delivery-limit is set, they are abandoned,
        or it follows 4.3.
        """
        if self.deleted:
            return
        limits = self.contents.limits
        never_drops = limits is not None and limits.counts_unacked
        if never_drops and self.contents.is_shrinking:
            # What is to be dropped is there already. These messages still count.
            self.delivery.add_unacked(len(entries), sum([len(entry[1].body) for entry in entries]))
            self.contents.evict(UNLIMITED)
            self.delivery.remove_unacked(entries)
        rules = self._return_rules
        if rules is None:
            if len(entries) > RETURN_STEP:
                # Newest first: then each part stands before those that are back already.
                entries = sorted(entries, key=_number, reverse=True)
            self.delivery.put_back(entries, self.contents.requeue)
        else:
            is_quorum = self.traits.counts_deliveries
            to_tail = is_quorum and self.settings.delivery_limit is None and not abandoned
            if self.traits.counts_failures_only:
                to_tail = False
            if rules.delays and self.contents.delayed is None:
                self._open_waiting()
            append = partial(self.contents.append_returned, rules=rules, to_tail=to_tail, failed=failed)
            self.delivery.put_back(entries, append)
            if is_quorum:
                self.delivery.serve_returned(self.host.turn.slice())
        if not never_drops:
            self._evict()
        self.host.turn.deliver_later(self)

    def _open_waiting(self) -> None:
        """Open the store of messages that wait for their retry."""
        host = self.host
        store = self.backing.open_waiting()
        self.backing.keep_returns()
        clocks = host.timers, host.turn
        delayed = DelayedReturns(store, self.name, clocks, host.due_work, self._append_due)
        self.contents.let_wait(delayed, self.traits)

    def cancel_delayed(self, number: int) -> bool:
        """Remove a message that waits for its retry, which is not dead-lettered; return whether it still waited."""
        delayed, values = self.contents.delayed, self.outbox.values
        message = None if delayed is None else delayed.cancel(number)
        if message is not None and values.is_active:
            values.release_waiting(message)
        return message is not None

    def return_now(self, number: int) -> bool:
        """Make a message ready that waits for its retry; return whether it still waited."""
        delayed = self.contents.delayed
        return delayed is not None and delayed.return_now(number)

    def _append_due(self, messages: Sequence[Message]) -> None:
        self.contents.append_due(messages)
        self.host.turn.deliver_later(self)

    # -- consumers ----------------------------------------------------------------------------------------

    def add_consumer(self, consumer: QueueConsumer) -> None:
        """Add a consumer; it gets its first messages at the end of the turn."""
        self.consumers.add(consumer)
        self.expiry.set_in_use(True)
        self.host.turn.deliver_later(self)

    def remove_consumer(self, consumer: QueueConsumer) -> None:
        """Remove a consumer. Its unacked messages stay with the channel.

        The next single active consumer is served at the end of the turn: after them, if the channel returns them now.
        """
        if self.deleted:
            return
        self.consumers.remove(consumer)
        if consumer.unacked:
            self.delivery.others[consumer] = None
        if self.consumers.ring:
            self.host.turn.deliver_later(self)
        if not len(self.consumers):
            self.expiry.set_in_use(False)
            if self.auto_delete:
                self.host.delete_queue(self, by_broker=True)

    def unblock(self, consumer: QueueConsumer) -> None:
        """Return a consumer that was blocked without credit to the ring."""
        if consumer.blocked and not self.deleted:
            self.consumers.unblock(consumer)
            self.host.turn.deliver_later(self)

    # -- settings -----------------------------------------------------------------------------------------

    def apply_policies(self, policy: Policy | None, operator_policy: Policy | None, merged: dict[str, Any]) -> None:
        """Apply policies, and evict immediately if new limits require it.

        RabbitMQ applies the keys one after another, and limits with the previous overflow behaviour.
        """
        if (policy, operator_policy) != (self.policy, self.operator_policy):
            self.policy, self.operator_policy = policy, operator_policy
            # As in RabbitMQ, any change of policy restarts the expiry timer.
            self.expiry.renew()
        new = effective_settings(self.queue_type, plain_values(self.arguments), merged)
        if new == self.settings:
            return
        # Deliver first, so that new limits do not drop messages that are deliverable now.
        self.delivery.serve()
        self.expiry.set(new.expires)
        self.contents.apply(new, self.traits)
        limits = self.contents.limits
        is_unique = new.drops_duplicates
        self._is_plain = (
            limits is None and new.message_ttl is None and not self.traits.delivers_each_run and not is_unique
        )
        values = self.outbox.values
        if is_unique and not values.is_active:
            values.activate(self.store.ready_count + self.unacked_count + self.contents.delayed_count > 0)
        elif values.is_active and not is_unique:
            values.deactivate()
        drops_ready = limits is None or not (limits.refuses or limits.counts_unacked)
        # A message that is dropped because of a limit makes its value free for the next one.
        self.accepts_varied = drops_ready and new.message_ttl != 0 and (limits is None or not is_unique)
        self.backing.set_lazy(new.queue_mode == "lazy")
        rules = ReturnRules(new, self.traits, self._counter)
        is_needed = self.traits.counts_deliveries or (rules.is_needed and self.backing.keep_returns())
        self._return_rules = rules if is_needed else None
        self._evict()
        if values.is_incomplete:
            note_values(self, values)
        self.host.turn.deliver_later(self)

    # -- purging and deleting ------------------------------------------------------------------------------

    def purge(self) -> int:
        """Drop all ready messages, also what cannot be read for now or waits for its retry; return their number."""
        purged = self.store.purge() if self.ready_count() or self.backing.unreadable_count else 0
        waiting = self.contents.waiting
        if waiting is not None:
            purged += waiting.purge()
        if purged:
            self.counters.dropped["purged"] += purged
        if self.outbox.values.is_active:
            self.outbox.values.clear({level: store.next_seq for level, store in self.store.ordered_levels()})
        return purged

    def _expire(self) -> None:
        self.host.delete_queue(self, by_broker=True)

    def delete(self) -> int:
        """Delete the messages and cancel the consumers; return how many were ready, or waited for their retry."""
        ready = self.ready_count() + self.contents.delayed_count
        self.deleted = True
        self.expiry.close()
        self._head_timer.close()
        self.outbox.close()
        delayed, self.contents.delayed = self.contents.delayed, None
        if delayed is not None:
            delayed.close()
        self.delivery.returning.clear()
        self.delivery.others.clear()
        self.backing.delete()
        call_each([consumer.cancelled for consumer in self.consumers.clear()], "after a queue was deleted")
        return ready


def _number(entry: Entry) -> int:
    return entry[0]
