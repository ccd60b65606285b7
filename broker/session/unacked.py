"""Unacknowledged messages of one channel, how clients settle them, and the limit of basic.qos with global=true."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, Literal, Protocol, TypeAlias, final

from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.queues.queue import Consumer, Holder, Queue, QueueConsumer
from leveret.protocol.faults import precondition_failed
from leveret.storage.interface import Entry

#: Credit of a consumer without limits.
UNLIMITED: Final = 1 << 30


class SharedPrefetch:
    """Prefetch limit shared by all consumers of a channel.

    Consumers without credit wait in a queue, in order of arrival, until they are served. They may consume from
    different queues.

    Attributes:
        limit: Maximum number of unacked messages; 0 for no limit.
        unacked: Number of unacked messages of all consumers; those with no_ack have none.
    """

    __slots__ = ("_waiting", "limit", "unacked")

    def __init__(self) -> None:
        self.limit = 0
        self.unacked = 0
        # A dict used as an ordered set.
        self._waiting: dict[QueueConsumer, None] = {}

    def credit(self, consumer: QueueConsumer) -> int:
        """Return the credit of a consumer; at 0 it waits until it is unblocked."""
        if not self.limit:
            return UNLIMITED
        room = self.limit - self.unacked
        if room <= 0:
            self._waiting.setdefault(consumer)
            return 0
        # As in RabbitMQ, no_ack consumers wait while the limit is reached, but their messages do not count.
        return UNLIMITED if consumer.no_ack else room

    def count_delivered(self, consumer: QueueConsumer, count: int) -> None:
        """Count delivered messages, and remove the consumer from the waiting ones.

        Args:
            count: Number of new unacked messages.
        """
        self.unacked += count
        if self._waiting:
            self._waiting.pop(consumer, None)

    def release(self, count: int) -> None:
        """Count settled messages; if the limit is no longer reached, unblock all waiting consumers in order."""
        was_full = self.unacked >= self.limit
        self.unacked -= count
        if self.limit and was_full and self.unacked < self.limit:
            self._unblock_waiting()

    def set_limit(self, limit: int) -> None:
        """Change the limit; 0 for none."""
        self.limit = limit
        if not limit or self.unacked < limit:
            self._unblock_waiting()

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove a cancelled consumer."""
        self._waiting.pop(consumer, None)

    def clear(self) -> None:
        """Remove all consumers, and reset the count."""
        self._waiting.clear()
        self.unacked = 0

    def _unblock_waiting(self) -> None:
        for consumer in self._waiting:
            consumer.unblock()
        if not self.limit:
            self._waiting.clear()


@final
class GetHolder(Holder):
    """Owner of the unacknowledged messages that a channel has taken from one queue with basic.get.

    Args:
        queue: The queue of the messages.
    """

    __slots__ = ("_unacked",)

    def __init__(self, queue: Queue, unacked: Unacked) -> None:
        super().__init__(queue)
        self._unacked = unacked

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over the unacked messages in the order in which they were delivered; see Holder."""
        return self._unacked.entries_of(self, from_tag)

    def next_tag(self) -> int:
        """Return the delivery tag of the next message of the channel."""
        return self._unacked.next_tag


#: Holder and store entry of an unacknowledged message.
Held: TypeAlias = tuple[Consumer | GetHolder, Entry]

#: How a client settles messages. Those that it rejects with requeue have failed, unlike others that are requeued.
Outcome: TypeAlias = Literal["acknowledge", "reject", "requeue", "return_failed"]


class Deadline(Protocol):
    """The timeout of one holder; see ack_timeout.py."""

    timeout_ms: int

    def close(self) -> None:
        """Stop watching."""


class Unacked:
    """Unacknowledged messages of a channel.

    Attributes:
        held: Holder and store entry by delivery tag, in any order.
        next_tag: Delivery tag of the next delivery or get.
        set_aside: Batches of messages, with their tags, that a transaction has taken out of `held` and not settled yet;
            None on a channel without transactions.
        deadlines: Timeouts of holders that have one of their own.
    """

    __slots__ = (
        "_counters", "_expired", "_get_holders", "_lowest", "_marks", "_shared_prefetch", "deadlines", "held",
        "next_tag", "set_aside",
    )  # fmt: skip

    def __init__(self, counters: ChannelCounters, shared_prefetch: SharedPrefetch) -> None:
        self.held: dict[int, Held] = {}
        self._counters = counters
        self._shared_prefetch = shared_prefetch
        #: No tag below this one is outstanding.
        self._lowest = 1
        self._get_holders: dict[Queue, GetHolder] = {}
        #: Earlier calls of is_overdue(): time and next delivery tag; None before the first.
        self._marks: deque[tuple[float, int]] | None = None
        self.next_tag = 1
        # An empty deque takes 760 bytes.
        self.set_aside: deque[tuple[list[tuple[int, Held]], Outcome]] | None = None
        self.deadlines: dict[Consumer | GetHolder, Deadline] = {}
        #: Tags of messages that have been returned because of a timeout, until the client settles them. A dict, because
        #: an empty set takes 216 bytes.
        self._expired: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.held)

    # -- delivery tags ------------------------------------------------------------------------------------

    def hold(self, holder: Consumer | GetHolder, entry: Entry) -> int:
        """Add an unacknowledged message; return its delivery tag."""
        tag = self.take_tag()
        self.held[tag] = (holder, entry)
        return tag

    def take_tag(self) -> int:
        """Return the next delivery tag, and advance it."""
        self.next_tag += 1
        return self.next_tag - 1

    def resolve(self, tag: int, multiple: bool) -> list[int]:
        """Return the delivery tags of an acknowledgement, in order; the caller removes them.

        Args:
            tag: A delivery tag; 0 with multiple means all.
            multiple: Whether all tags up to and including this one are meant.
        Raises:
            ChannelFault: PRECONDITION_FAILED (406): the tag is not outstanding.
        """
        if tag == 0 and multiple:
            self._expired.clear()
            return sorted(self.held)
        if tag not in self.held and tag not in self._expired:
            raise precondition_failed(f"unknown delivery tag {tag}")
        if not multiple:
            return [] if self.forget_expired(tag) else [tag]
        if self._expired:
            self._expired = {each: None for each in self._expired if each > tag}
        # Iterating from the first key would be slow: a dict scans the slots of deleted keys each time.
        lowest, self._lowest = self._lowest, tag + 1
        held = self.held
        if tag - lowest < 2 * len(held):
            return [candidate for candidate in range(lowest, tag + 1) if candidate in held]
        return sorted([candidate for candidate in held if candidate <= tag])

    def restore(self, held: Sequence[tuple[int, Held]]) -> None:
        """Make removed messages outstanding again."""
        self.held.update(held)
        self._lowest = min([self._lowest, *[tag for tag, _ in held]])

    def take_all(self) -> list[Held]:
        """Remove and return all messages, in order of delivery tags."""
        held = self.held
        taken = [held[tag] for tag in sorted(held)]
        held.clear()
        return taken

    def is_overdue(self, now: float, seconds: float) -> bool:
        """Check whether a message is unacknowledged for too long. To be called periodically.

        Messages whose holders have timeouts of their own do not count. Messages have no delivery times. Each call
        records the next delivery tag with the time (a mark). A message is overdue if its tag is below a mark that is
        old enough.

        Args:
            now: Monotonic time in seconds.
            seconds: Maximum time in seconds.
        """
        tags: Iterable[int] = self.held
        if self.deadlines:
            tags = [tag for tag, (holder, _) in self.held.items() if holder not in self.deadlines]
        oldest = min(tags, default=0)
        if not oldest:
            self._marks = None
            return False
        marks = self._marks = self._marks or deque()
        while marks and marks[0][1] <= oldest:
            marks.popleft()
        if marks and now - marks[0][0] >= seconds:
            return True
        marks.append((now, self.next_tag))
        return False

    # -- timeouts of holders ------------------------------------------------------------------------------

    def oldest_of(self, holder: Consumer | GetHolder) -> int | None:
        """Return the delivery tag that a holder has had for the longest time; None if it has none."""
        return next((tag for tag, (each, _) in self.held.items() if each is holder), None)

    def entries_of(self, holder: Consumer | GetHolder, from_tag: int) -> Iterator[Entry]:
        """Iterate over the messages of a holder in order of delivery tags, while messages come and go.

        Args:
            from_tag: Leave out lower delivery tags.
        """
        for batch, _ in [*(self.set_aside or ())]:
            for tag, (each, entry) in batch:
                if each is holder and tag >= from_tag:
                    yield entry
        first, end = max(from_tag, self._lowest), self.next_tag
        held = self.held
        tags: Iterable[int] = range(first, end)
        if end - first > 2 * len(held):
            tags = sorted([tag for tag in held if tag >= first])
        for tag in tags:
            found = held.get(tag)
            if found is not None and found[0] is holder:
                yield found[1]

    def take_expired(self, holder: Consumer | GetHolder) -> list[Entry]:
        """Remove and return all messages of a holder; settling them later has no effect."""
        tags = sorted([tag for tag, (each, _) in self.held.items() if each is holder])
        self._expired |= dict.fromkeys(tags)
        return [self.held.pop(tag)[1] for tag in tags]

    def forget_expired(self, tag: int) -> bool:
        """Return whether a tag is that of a message that has been returned because of a timeout, and forget it."""
        if tag in self._expired:
            del self._expired[tag]
            return True
        return False

    def remove_deadline(self, holder: Consumer | GetHolder) -> None:
        """Remove the timeout of a holder, if it has one."""
        deadline = self.deadlines.pop(holder, None)
        if deadline is not None:
            deadline.close()

    def close_deadlines(self) -> None:
        """Remove all timeouts, because the channel is closed."""
        for holder in list(self.deadlines):
            self.remove_deadline(holder)

    # -- basic.get ----------------------------------------------------------------------------------------

    def get_holder(self, queue: Queue) -> GetHolder:
        """Return the holder of messages from basic.get on a queue."""
        holder = self._get_holders.get(queue)
        if holder is None:
            holder = self._get_holders[queue] = GetHolder(queue, self)
        return holder

    def remove_get_holder(self, holder: GetHolder) -> None:
        """Remove a holder without unacked messages: a channel may use basic.get on any number of queues."""
        if not holder.unacked:
            self._get_holders.pop(holder.queue, None)
            self.remove_deadline(holder)

    # -- settling -----------------------------------------------------------------------------------------

    def settle_tags(self, tags: list[int], outcome: Outcome, individually: bool = False) -> list[Queue]:
        """Remove outstanding messages and settle them; see settle().

        Args:
            tags: Their delivery tags, in order.
            outcome: How to settle them.
            individually: Whether each message was acknowledged by its own method.
        """
        held = self.held
        if len(tags) == 1 and outcome == "acknowledge":
            holder, entry = held.pop(tags[0])
            self._counters.ack += 1
            self._settle_run(holder, [entry], outcome)
            return [holder.queue] if holder.queue.is_returning else []
        return self.settle([held.pop(tag) for tag in tags], outcome, individually)

    def settle(self, held: Iterable[Held], outcome: Outcome, individually: bool = False) -> list[Queue]:
        """Settle removed messages, grouped by holder.

        Args:
            held: Holder and entry of each message, in order of delivery tags.
            outcome: How to settle them.
            individually: Whether each message was acknowledged by its own method.
        Returns:
            Queues that take longer than a time slice to requeue their messages.
        """
        runs: dict[Consumer | GetHolder, list[Entry]] = {}
        last: Consumer | GetHolder | None = None
        entries: list[Entry] = []
        for holder, entry in held:
            if holder is not last:
                last = holder
                entries = runs.setdefault(holder, [])
            entries.append(entry)
        if outcome == "acknowledge":
            self._counters.ack += sum([len(settled) for settled in runs.values()])
        elif outcome != "reject":
            # Deliver messages of this turn first, so that requeued messages do not overtake them.
            for holder in runs:
                if holder.queue.scheduled:
                    holder.queue.deliver()
        if individually or len(runs) == 1:
            for holder, settled in runs.items():
                self._settle_run(holder, settled, outcome)
        else:
            # RabbitMQ settles holder after holder, each with all its effects.
            for holder, settled in sorted(runs.items(), key=_settling_order):
                self._settle_run(holder, settled, outcome)
                holder.queue.deliver()
        return [holder.queue for holder in runs if holder.queue.is_returning]

    def _settle_run(self, holder: Consumer | GetHolder, settled: list[Entry], outcome: Outcome) -> None:
        """Settle the messages of one holder."""
        queue = holder.queue
        if type(holder) is not GetHolder:
            queue.release(holder, settled, "returned" if outcome in ("requeue", "return_failed") else "settled")
            self._shared_prefetch.release(len(settled))
            if holder.prefetch and holder.blocked:
                queue.unblock(holder)
            _settle(queue, settled, outcome)
            return
        # In RabbitMQ every basic.get is a separate consumer: limits and deliveries follow each one.
        # Without limits and consumers, settling all at once is equivalent.
        at_once = queue.limits is None and not queue.consumers.ring
        for run in [settled] if at_once else [[entry] for entry in settled]:
            queue.release(holder, run)
            _settle(queue, run, outcome)
            queue.deliver()
        self.remove_get_holder(holder)

    def has_kept(self) -> bool:
        """Return whether some are messages of streams, which cannot be requeued."""
        return any(holder.queue.traits.keeps_messages for holder, _ in self.held.values())

    def requeue_all(self) -> list[Queue]:
        """Requeue all messages (basic.recover); see settle()."""
        return self.settle(self.take_all(), "requeue")

    def return_all(self, queues: set[Queue] | None = None) -> None:
        """Requeue messages of a closed channel, in one batch per queue.

        Args:
            queues: Queues whose messages are requeued, the others stay outstanding; None for all queues.
        """
        kept = [] if queues is None else [each for each in self.held.items() if each[1][0].queue not in queues]
        for tag, _ in kept:
            del self.held[tag]
        returned: dict[Queue, list[Entry]] = {}
        for holder, run in groupby(self.take_all(), key=itemgetter(0)):
            entries = [entry for _, entry in run]
            holder.queue.release(holder, entries, "abandoned")
            returned.setdefault(holder.queue, []).extend(entries)
        for queue, entries in returned.items():
            queue.requeue(entries, abandoned=True, failed=True)
        self.restore(kept)
        self._shared_prefetch.clear()
        self._get_holders.clear()


def _settle(queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
    if outcome == "acknowledge":
        queue.acknowledge(entries)
    elif outcome == "reject":
        queue.reject(entries)
    elif outcome == "return_failed":
        queue.requeue(entries, failed=True)
    else:
        queue.requeue(entries)


def _settling_order(run: tuple[Consumer | GetHolder, list[Entry]]) -> tuple[bytes, bytes]:
    """Return the sort key for several holders settled by one method: queue name, then consumer tag (gets first)."""
    holder = run[0]
    tag = "" if type(holder) is GetHolder else holder.tag
    return holder.queue.name.encode("utf-8", "surrogateescape"), tag.encode("utf-8", "surrogateescape")
