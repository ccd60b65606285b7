"""The messages of a queue, with its length limits and their expiry, and their delivery to its consumers.

Sources: https://www.rabbitmq.com/docs/maxlength, https://www.rabbitmq.com/docs/ttl
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from leveret.broker.core.counters.counters import QueueCounters
from leveret.broker.core.delays.schedule import Schedule
from leveret.broker.core.messages import PublishDetails, Publisher
from leveret.broker.core.queues.outbox import DeadLetterOutbox
from leveret.broker.core.queues.queue import ConsumerGroup, Consumers, QueueConsumer, UnackedHolder
from leveret.broker.core.queues.returns import RETURN_STEP, DelayedReturns, PutBack, Returning, ReturnRules, unstored
from leveret.broker.core.queues.traits import Limits, QueueTraits, UnackedTotal
from leveret.broker.core.scheduling.timers import Timers
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.policies.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN
from leveret.policies.queue_settings import DEFAULT_SETTINGS, QueueSettings
from leveret.storage.backings import QueueBacking
from leveret.storage.event_format import AUTO_ACK, DEAD_LETTERED, TOLD, EventKind
from leveret.storage.interface import Entry
from leveret.storage.message import Message, TimedMessage
from leveret.storage.stores.priority_store import PriorityStore, ReturnsStore

#: Messages dropped or expired between two checks of the time slice: less than a millisecond, without dead letters.
_DROP_STEP: Final = 512
_ALL_BYTES: Final = 1 << 62

#: Upper bound of expiry times, in microseconds since 1970: message-ttl has no upper bound.
_LATEST: Final = (1 << 63) - 2


class Contents:
    """The messages of a queue, without consumers.

    Attributes:
        backing: Where they are kept.
        counters: Those of the queue.
        outbox: Gets the messages that are dropped, and the same settings.
        settings: Effective settings of the queue.
        limits: Its length limits; None if there are none.
        delayed: Messages that wait for their retry; None if there never were any.
        unacked: Number and size of its unacked messages; maintained by Delivery.
        is_shrinking: Whether new limits require eviction, even if overflow is now reject-publish; of a queue whose
            limits count unacked messages, whether a publish does: what comes back is not dropped.
        may_have_timed: Whether a ready message may have an expiry time.
    """

    __slots__ = (
        "_timers", "_untimed_since", "backing", "counters", "delayed", "is_shrinking", "limits", "may_have_timed",
        "outbox", "settings", "unacked",
    )  # fmt: skip

    def __init__(
        self, backing: QueueBacking, timers: Timers, counters: QueueCounters, outbox: DeadLetterOutbox
    ) -> None:
        self.backing = backing
        self._timers = timers
        self.counters = counters
        self.outbox = outbox
        self.settings = DEFAULT_SETTINGS
        self.limits: Limits | None = None
        self.delayed: DelayedReturns | None = None
        self.unacked = UnackedTotal()
        self.is_shrinking = False
        self.may_have_timed = backing.store.ready_count > 0
        #: Messages without an expiry time appended since the last message with one.
        self._untimed_since = 0

    def apply(self, settings: QueueSettings, traits: QueueTraits) -> None:
        """Apply new settings; the caller evicts.

        As in RabbitMQ, new limits apply with the previous overflow behaviour first: what drop-head would have dropped
        is dropped, even if overflow is now reject-publish.
        """
        previous = traits.limits(replace(settings, overflow=self.settings.overflow), self.unacked, self.waiting)
        self.limits = traits.limits(settings, self.unacked, self.waiting)
        self.is_shrinking = any(each is not None and not each.refuses for each in (previous, self.limits))
        self.settings = settings
        self.outbox.apply(settings)

    def let_wait(self, delayed: DelayedReturns, traits: QueueTraits) -> None:
        """Set where messages wait for their retry; from now on they count for the limits."""
        self.delayed = delayed
        self.limits = traits.limits(self.settings, self.unacked, delayed.schedule)

    @property
    def waiting(self) -> Schedule | None:
        """The messages that wait for their retry; None if there never were any."""
        delayed = self.delayed
        return None if delayed is None else delayed.schedule

    @property
    def delayed_count(self) -> int:
        """Number of these."""
        delayed = self.delayed
        return 0 if delayed is None else delayed.schedule.left_count

    @property
    def delayed_bytes(self) -> int:
        """Body bytes of these."""
        delayed = self.delayed
        return 0 if delayed is None else delayed.schedule.body_bytes

    # -- adding -------------------------------------------------------------------------------------------

    def append(
        self, messages: Sequence[Message], body_bytes: int, ttl: int | None = None, longest: int | None = None
    ) -> None:
        """Append messages.

        Args:
            body_bytes: Sum of their body lengths.
            ttl: Their time to live in milliseconds; None for no limit.
            longest: Length of the longest body; None if all have the same length.
        """
        if ttl is None:
            if self.may_have_timed:
                self._untimed_since += len(messages)
            self.backing.store.append(messages, body_bytes, longest)
        else:
            timed = [TimedMessage(message.envelope, message.body, _LATEST) for message in messages]
            self._note_timed_message()
            self.backing.store.append(timed, body_bytes, longest)
            # The store has noted when they arrived. The time is read after that: no message is to leave before its time
            # to live is over.
            expires_at = min(self._timers.now() + ttl * 1000, _LATEST)
            for each in timed:
                each.expires_at = expires_at
        self.counters.published += len(messages)

    def append_until_full(
        self,
        messages: Sequence[Message],
        ttl: int | None,
        limits: Limits,
        make_room: Callable[[], None],
        publisher: Publisher | None,
    ) -> int:
        """Append messages of one size until the limit is reached, and refuse the remaining ones; see append_fitting().

        Args:
            ttl: Their time to live in milliseconds.
            make_room: Called when there is no room for all messages.
            publisher: Who publishes them; None for the broker itself.
        Returns:
            Number of messages appended.
        """
        taken = self.append_fitting(messages, ttl, limits, make_room)
        if taken < len(messages):
            self._refuse(messages[taken:], limits, publisher)
        return taken

    def append_fitting(
        self, messages: Sequence[Message], ttl: int | None, limits: Limits, make_room: Callable[[], None]
    ) -> int:
        """Append messages of one size until the limit is reached.

        Args:
            ttl: Their time to live in milliseconds; None for no limit.
            make_room: Called when there is no room for all messages; may deliver some.
        Returns:
            Number of messages appended.
        """
        store, size = self.backing.store, len(messages[0].body)
        taken = 0
        while taken < len(messages):
            room = limits.room(store, size)
            if room < len(messages) - taken:
                make_room()
                room = limits.room(store, size)
            if room <= 0:
                break
            fitting = messages[taken : taken + room]
            self.append(fitting, size * len(fitting), ttl)
            taken += len(fitting)
        return taken

    def append_beyond(
        self, messages: Sequence[Message], ttl: int | None, limits: Limits, make_room: Callable[[], None]
    ) -> None:
        """Append messages of one size where unacked ones count, too; the caller evicts what exceeds the limit.

        It is evicted before consumers get more: what was delivered cannot be dropped. So if unacked messages alone fill
        the queue, the new ones are dropped. For the arguments see append_fitting().
        """
        taken = 0 if self.is_shrinking else self.append_fitting(messages, ttl, limits, make_room)
        if taken < len(messages):
            self.append(messages[taken:], len(messages[0].body) * (len(messages) - taken), ttl)
            self.is_shrinking = True

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Return messages to their positions in the store, without any further effect."""
        self.backing.store.requeue(entries)
        self._note_returned(entries)

    def requeue(self, entries: Sequence[Entry]) -> None:
        """Return messages that a client has requeued to their positions in the store."""
        self.counters.requeued += len(entries)
        self.put_back(entries)

    def append_returned(self, entries: Sequence[Entry], rules: ReturnRules, to_tail: bool, failed: bool) -> None:
        """Append returned messages with higher counts, drop those that exceed a limit, and let some wait.

        Args:
            entries: The messages.
            rules: Counts, limits and delays.
            to_tail: Whether they follow all ready messages; if not, they precede those not delivered yet.
            failed: Whether they were rejected, or their channel has ended.
        """
        # Messages of two priorities may have one number.
        over_limit: list[Entry] = []
        returned: list[Entry] = []
        for entry in entries:
            (over_limit if rules.is_over_limit(entry[1], failed) else returned).append(entry)
        if over_limit:
            self.outbox.drop(over_limit, DELIVERY_LIMIT, EventKind.DELIVERY_LIMIT)
        self.counters.requeued += len(returned)
        store, delayed = self.backing.store, self.delayed
        assert isinstance(store, ReturnsStore)
        append = store.append if to_tail else store.append_returned
        for _, message, _ in returned:
            counted, delay = rules.counted(message, failed)
            if delay and delayed is not None:
                delayed.add(counted, delay)
                continue
            if not self.backing.persists_transient:
                # One that does not survive a restart would be looked for on disk.
                counted = unstored(counted)
            append([counted], len(counted.body))
        self._note_returned(returned)
        if self.outbox.values.is_active:
            self.outbox.values.note_copies(store, returned)
        store.settle(returned, EventKind.RETURNED)

    def append_due(self, messages: Sequence[Message]) -> None:
        """Append messages that have waited for their retry, before those not delivered yet."""
        store = self.backing.store
        assert isinstance(store, ReturnsStore)
        for message in messages:
            store.append_returned([message], len(message.body))
            if message.expires_at:
                self._note_timed_message()

    def _note_returned(self, entries: Sequence[Entry]) -> None:
        """Note whether messages that were added again have expiry times."""
        if any(entry[1].expires_at for entry in entries):
            self._note_timed_message()

    def _refuse(self, messages: Sequence[Message], limits: Limits, publisher: Publisher | None) -> None:
        """Count messages that do not fit, and dead-letter them if overflow is reject-publish-dlx."""
        count = len(messages)
        # Dead letters that are lost are counted by the queue that they come from.
        is_told = messages[0].envelope.dead or (publisher is not None and publisher.is_told)
        is_letter = limits.dead_letters_refused and self.settings.dead_letter_exchange is not None
        self.counters.refused += count
        if is_told and not is_letter:
            self.counters.refused_told += count
        flags = (DEAD_LETTERED if is_letter else 0) | (TOLD if is_told else 0)
        details = PublishDetails("", messages[0].envelope, publisher)
        self.backing.store.note(EventKind.REFUSED, count, len(messages[0].body) * count, flags, details)
        if is_letter:
            self.outbox.send(messages, MAXLEN, is_told=is_told)

    # -- expiry times -------------------------------------------------------------------------------------

    def time_to_live(self, message: Message) -> int | None:
        """Return the TTL of a new message in milliseconds: the lower of its expiration and the queue's message-ttl."""
        own, common = message.envelope.expiration_ms, self.settings.message_ttl
        if own is None or common is None:
            return common if own is None else own
        return min(own, common)

    def split_expired(self, entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Split entries taken from the store into those that are deliverable and those that have expired."""
        now = self._timers.now()
        expired = [entry for entry in entries if 0 < entry[1].expires_at <= now]
        return [entry for entry in entries if not 0 < entry[1].expires_at <= now] if expired else entries, expired

    def next_expiry(self) -> int:
        """Update may_have_timed; return when the message at the head expires, in microseconds since 1970, 0 for never.

        No ready message has an expiry time if at most as many are ready as have arrived since the last one with an
        expiry time. With priorities that does not follow, as later messages may leave first; then none has one only if
        none is ready.
        """
        store = self.backing.store
        has_priorities = isinstance(store, PriorityStore) and store.max_priority > 0
        self.may_have_timed = store.ready_count > (0 if has_priorities else self._untimed_since)
        head = store.peek()
        return 0 if head is None else head.expires_at

    def _note_timed_message(self) -> None:
        """Note that a message with an expiry time was added. Messages in front of it may still be ready, too."""
        self.may_have_timed = True
        self._untimed_since = 0

    # -- dropping -----------------------------------------------------------------------------------------

    def evict_and_expire(self, time_slice: TimeSlice) -> bool:
        """Apply limits and expiry while time is left; return whether both are finished."""
        if self.limits is not None and not self.evict(time_slice):
            return False
        return not self.may_have_timed or self.expire(time_slice)

    def evict(self, time_slice: TimeSlice) -> bool:
        """Drop the oldest messages while a limit is exceeded and time is left; return whether it is finished."""
        limits, store = self.limits, self.backing.store
        if limits is None or ((limits.refuses or limits.counts_unacked) and not self.is_shrinking):
            return True
        while limits.exceeded(store):
            if time_slice.is_over():
                return False
            excess = limits.excess_messages(store)
            if excess > 0:
                letters = self._drop_oldest(min(excess, _DROP_STEP), _ALL_BYTES, EventKind.MAXLEN)
            else:
                letters = self._drop_oldest(_DROP_STEP, limits.excess_bytes(store), EventKind.MAXLEN_BYTES)
            time_slice.count_published(letters)
        self.is_shrinking = False
        return True

    def expire(self, time_slice: TimeSlice) -> bool:
        """Drop expired messages from the head while time is left; return whether it is finished."""
        now = self._timers.now()
        while not time_slice.is_over():
            expired = self._expire_step(now)
            if expired < _DROP_STEP:
                return True
            if self.settings.dead_letter_exchange is not None:
                time_slice.count_published(expired)
        head = self.backing.store.peek()
        return head is None or not 0 < head.expires_at <= now

    def _drop_oldest(self, count: int, body_bytes: int, kind: EventKind) -> int:
        """Drop excess messages from the head; return how many were read: only for dead letters, and to free values."""
        if self.settings.dead_letter_exchange is None and not self.outbox.values.is_active:
            dropped, _ = self.backing.store.drop(count, body_bytes, kind)
            self.counters.dropped[MAXLEN] += dropped
            return 0
        entries, _ = self.backing.store.take(count, body_bytes)
        self.outbox.drop(entries, MAXLEN, kind)
        return len(entries)

    def _expire_step(self, now: int) -> int:
        """Drop a batch of expired messages from the head; return their number."""
        if self.settings.dead_letter_exchange is None and not self.outbox.values.is_active:
            expired, _ = self.backing.store.drop(_DROP_STEP, _ALL_BYTES, EventKind.EXPIRED, now)
            self.counters.dropped[EXPIRED] += expired
            return expired
        entries = self.backing.store.take_expired(now, _DROP_STEP)
        if entries:
            self.outbox.drop(entries, EXPIRED, EventKind.EXPIRED)
        return len(entries)


#: Batch limits per consumer: large enough to amortise the cost per batch, small enough to stay fair.
_RUN_MESSAGES: Final = 256
_RUN_BYTES: Final = 262_144
#: Messages that are taken at once for consumers that take turns, unless there are more of these.
_SHARED_RUN_MESSAGES: Final = 1024


class Delivery:
    """Delivers the ready messages of a queue, and counts those that are unacked.

    Args:
        contents: The messages of the queue.
        consumers: Consumers of the queue.

    Attributes:
        returning: Requeued messages that are not back yet, because there are very many. They count as unacked. Until
            all are back nothing is delivered, so that newer messages do not overtake them.
        others: Holders of unacked messages that are not consumers of the queue (any more): its gets, and consumers
            that were cancelled.
    """

    __slots__ = (
        "_backing", "_consumers", "_contents", "_counters", "_counts_deliveries", "_outbox", "_unacked", "others",
        "returning",
    )  # fmt: skip

    def __init__(self, contents: Contents, consumers: ConsumerGroup, traits: QueueTraits) -> None:
        self._contents = contents
        self._backing = contents.backing
        self._consumers = consumers
        self._counters = contents.counters
        self._outbox = contents.outbox
        self._counts_deliveries = traits.counts_deliveries
        self._unacked = contents.unacked
        self.returning = Returning()
        self.others: dict[UnackedHolder, None] = {}

    def serve(self, expired_too: bool = False) -> None:
        """Deliver messages while a consumer has credit.

        Args:
            expired_too: Also deliver messages that have expired: one with a TTL of 0 is delivered if a consumer has
                credit when it is published.
        """
        if self.returning.batches:
            return
        store, ring, contents = self._backing.store, self._consumers.ring, self._contents
        while store.ready_count and ring:
            level = ring.first_level()
            if len(level) > 1 and not (contents.may_have_timed or self._consumers.share_channels):
                self._serve_in_turns(level)
                continue
            consumer = next(iter(level))
            credit = consumer.credit()
            if credit <= 0:
                ring.block(consumer)
                continue
            if len(level) > 1:
                # Consumers of the same priority take turns.
                credit = 1
            entries, body_bytes = store.take(min(credit, _RUN_MESSAGES), _RUN_BYTES)
            if contents.may_have_timed and not expired_too:
                entries, expired = contents.split_expired(entries)
                if expired:
                    # Their dead letters may be routed back to this consumer: deliver the older messages first.
                    body_bytes -= sum(len(entry[1].body) for entry in expired)
                    self._deliver_first(level, consumer, entries, body_bytes)
                    self._outbox.drop(expired, EXPIRED, EventKind.EXPIRED)
                    continue
            self._deliver_first(level, consumer, entries, body_bytes)

    def _serve_in_turns(self, level: Consumers) -> None:
        """Deliver messages to consumers of one priority, which take turns; each gets all of its messages at once.

        The consumers are on different channels: within a channel messages stay in order, and each has its own credit.
        """
        store = self._backing.store
        served, credit = self._find_credit(level)
        if not served:
            return
        turn_length = len(served)
        entries, _ = store.take(min(credit * turn_length, max(_SHARED_RUN_MESSAGES, turn_length)), _RUN_BYTES)
        # The consumers that had the last messages are the last ones now.
        taken = len(entries)
        for consumer in served[: taken % turn_length if turn_length == len(level) else taken]:
            level.move_to_end(consumer)
        for position, consumer in enumerate(served[:taken]):
            own = entries[position::turn_length]
            self._deliver(consumer, own, sum([len(entry[1].body) for entry in own]))

    def _find_credit(self, level: Consumers) -> tuple[list[QueueConsumer], int]:
        """Return the consumers that are served next, as many as there are messages for, and what all have credit for.

        If some have none, these are blocked, and none are returned.
        """
        served: list[QueueConsumer] = []
        blocked: list[QueueConsumer] = []
        least = _RUN_MESSAGES
        for consumer in islice(level, self._backing.store.ready_count):
            credit = consumer.credit()
            if credit <= 0:
                blocked.append(consumer)
            else:
                served.append(consumer)
                least = min(least, credit)
        for consumer in blocked:
            self._consumers.ring.block(consumer)
        return ([], 0) if blocked else (served, least)

    def add_unacked(self, count: int, body_bytes: int) -> None:
        """Count messages that were taken from the store as unacked."""
        self._unacked.count += count
        self._unacked.body_bytes += body_bytes

    def hold(self, holder: UnackedHolder, count: int, body_bytes: int) -> None:
        """Count messages that were taken from the store as unacked ones of a holder that is not a consumer."""
        self.others[holder] = None
        self.add_unacked(count, body_bytes)
        holder.unacked += count

    def remove_unacked(self, entries: Sequence[Entry]) -> None:
        """Stop counting messages as unacked."""
        count = len(entries)
        self._unacked.count -= count
        if count == 1:
            self._unacked.body_bytes -= len(entries[0][1].body)
        else:
            self._unacked.body_bytes -= sum([len(entry[1].body) for entry in entries])

    def put_back(self, entries: Sequence[Entry], put_back: PutBack) -> None:
        """Put requeued messages back: at once, or by return_some() if there are very many.

        Args:
            entries: The messages, which no longer count as unacked.
            put_back: Called with all of them, or with some at a time.
        """
        if len(entries) <= RETURN_STEP and not self.returning.batches:
            put_back(entries)
            return
        self.add_unacked(len(entries), sum([len(entry[1].body) for entry in entries]))
        self.returning.add(entries, put_back)

    def return_some(self, time_slice: TimeSlice) -> bool:
        """Put requeued messages back while time is left; return whether all are back."""
        returning = self.returning
        if not returning.batches:
            return True
        while returning.batches:
            if time_slice.is_over():
                return False
            part, put_back = returning.take_part()
            self.remove_unacked(part)
            put_back(part)
        if self._counts_deliveries:
            self.serve_returned(time_slice)
        return True

    def serve_returned(self, time_slice: TimeSlice) -> None:
        """Deliver returned messages: unlike classic queues, quorum queues do so before they apply limits."""
        if not self._contents.may_have_timed or self._contents.expire(time_slice):
            self.serve()

    def prepare(self, time_slice: TimeSlice) -> bool:
        """Finish requeues, then apply limits and expiry while time is left; return whether all is finished."""
        return self.return_some(time_slice) and self._contents.evict_and_expire(time_slice)

    def _deliver_first(self, level: Consumers, consumer: QueueConsumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages, if any, to the first consumer of a priority level, and move it to the end."""
        if not entries:
            return
        if len(level) > 1:
            level.move_to_end(consumer)
        self._deliver(consumer, entries, body_bytes)

    def _deliver(self, consumer: QueueConsumer, entries: list[Entry], body_bytes: int) -> None:
        """Deliver taken messages to a consumer."""
        self._counters.count_delivery(entries)
        if consumer.no_ack:
            self._counters.delivered_no_ack += len(entries)
            if self._outbox.values.is_active:
                self._outbox.values.release(self._backing.store, entries)
            self._backing.store.settle(entries, AUTO_ACK)
        else:
            self.add_unacked(len(entries), body_bytes)
        consumer.deliver(entries, body_bytes)
