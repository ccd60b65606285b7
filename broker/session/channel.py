"""Channels: consumers, unacknowledged messages, and confirm and transaction mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from leveret.broker.core.messages.tracing import Origin, Tracer
from leveret.broker.core.queues.consumers import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.stats.counters import ChannelCounters
from leveret.broker.session.confirms import Confirms
from leveret.broker.session.delivery import ChannelConsumer
from leveret.broker.session.shared_prefetch import SharedPrefetch
from leveret.broker.session.transaction import Transaction
from leveret.broker.session.unacked import Held, Unacked
from leveret.protocol.faults import AmqpFault, encode_reply_text, not_found
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ChannelState
from leveret.storage.interface import Entry

if TYPE_CHECKING:
    from leveret.broker.core.message_stores.registry import HasFailed
    from leveret.broker.core.vhost import VirtualHost
    from leveret.broker.session.connection import Connection
    from leveret.broker.session.direct_reply import ReplyConsumer

#: How a client settles messages; each is a method of Queue.
Outcome: TypeAlias = Literal["acknowledge", "reject", "requeue"]

_CHANNEL_CLOSE: Final = INDEX["channel.close"]


class Channel:
    """One open channel.

    Args:
        connection: The connection of the channel.
        number: Channel number, 1..65535.

    Attributes:
        output: Output buffer of the connection.
        state: OPEN, or CLOSING until the client's channel.close-ok.
        next_tag: Delivery tag of the next delivery or get.
        unacked: Unacknowledged messages.
        consumers: Consumers by consumer tag.
        default_prefetch: Prefetch count of new consumers (basic.qos, global=false); 0 for none.
        shared_prefetch: Prefetch limit of the whole channel (global=true).
        confirms: State of confirm mode; None if it is off.
        transaction: State of transaction mode; None if it is off.
        reply_consumer: The consumer of direct replies, if any.
        last_queue: Name of the queue declared last; None before the first.
        counters: Message counters of the channel.
        tracer: Copies published and delivered messages; None while tracing is off.
    """

    __slots__ = (
        "__weakref__",
        "_get_holders",
        "confirms",
        "connection",
        "consumers",
        "counters",
        "default_prefetch",
        "last_queue",
        "next_tag",
        "number",
        "output",
        "reply_consumer",
        "shared_prefetch",
        "state",
        "tracer",
        "transaction",
        "unacked",
    )

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.output = connection.output
        self.number = number
        self.state = ChannelState.OPEN
        self.next_tag = 1
        self.unacked = Unacked()
        self.consumers: dict[str, ChannelConsumer] = {}
        self.default_prefetch = 0
        self.shared_prefetch = SharedPrefetch()
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.reply_consumer: ReplyConsumer | None = None
        self.last_queue: str | None = None
        self.counters = ChannelCounters()
        self.tracer: Tracer | None = None
        self._get_holders: dict[Queue, Holder] = {}

    @property
    def vhost(self) -> VirtualHost:
        """The virtual host of the connection."""
        return self.connection.vhost

    def send(self, method: int, *arguments: Any) -> None:
        """Send a method to the client."""
        self.output.send(encode_method(self.number, method, *arguments))

    def queue_name(self, name: str) -> str:
        """Resolve a queue name: an empty one means the queue declared last.

        Raises:
            ChannelFault: NOT_FOUND (404) if none has been declared.
        """
        if name:
            return name
        if self.last_queue is None:
            raise not_found("no previously declared queue")
        return self.last_queue

    # -- statistics ---------------------------------------------------------------------------------------

    @property
    def prefetch(self) -> int:
        """Prefetch limit of the whole channel; 0 for none."""
        return self.shared_prefetch.limit

    @property
    def confirming(self) -> bool:
        """Whether the channel is in confirm mode."""
        return self.confirms is not None

    @property
    def transactional(self) -> bool:
        """Whether the channel is in transaction mode."""
        return self.transaction is not None

    @property
    def origin(self) -> Origin:
        """Connection, channel and user, as stated in traced messages."""
        return Origin(self.connection.name, self.number, self.connection.username)

    @property
    def unacked_count(self) -> int:
        """Number of unacknowledged messages."""
        return len(self.unacked)

    @property
    def unconfirmed_count(self) -> int:
        """Number of publishes that are not confirmed yet."""
        return 0 if self.confirms is None else self.confirms.unconfirmed_count

    @property
    def uncommitted(self) -> tuple[int, int]:
        """Numbers of publishes and acknowledgements that are not committed yet."""
        return (0, 0) if self.transaction is None else self.transaction.held_counts()

    def get_holder(self, queue: Queue) -> Holder:
        """Return the holder of messages from basic.get on a queue."""
        holder = self._get_holders.get(queue)
        if holder is None:
            holder = self._get_holders[queue] = Holder(queue)
        return holder

    def remove_get_holder(self, holder: Holder) -> None:
        """Remove a holder without unacked messages: a channel may use basic.get on any number of queues."""
        if not holder.unacked:
            self._get_holders.pop(holder.queue, None)

    # -- unacknowledged messages --------------------------------------------------------------------------

    def hold(self, holder: Holder, entry: Entry) -> int:
        """Add an unacknowledged message; return its delivery tag."""
        tag = self.take_tag()
        self.unacked[tag] = (holder, entry)
        return tag

    def take_tag(self) -> int:
        """Return the next delivery tag, and advance it."""
        self.next_tag += 1
        return self.next_tag - 1

    def settle(self, held: Iterable[Held], outcome: Outcome, individually: bool = False) -> None:
        """Settle messages that were removed from the unacked ones, grouped by holder.

        Args:
            held: Holder and entry of each message, in order of delivery tags.
            outcome: How to settle them.
            individually: Whether each message was acknowledged by its own method.
        """
        runs: dict[Holder, list[Entry]] = {}
        last: Holder | None = None
        entries: list[Entry] = []
        for holder, entry in held:
            if holder is not last:
                last = holder
                entries = runs.setdefault(holder, [])
            entries.append(entry)
        if outcome == "acknowledge":
            self.counters.ack += sum([len(settled) for settled in runs.values()])
        elif outcome == "requeue":
            # Deliver messages of this turn first, so that requeued messages do not overtake them.
            for holder in runs:
                if holder.queue.scheduled:
                    holder.queue.deliver()
        if individually or len(runs) == 1:
            for holder, settled in runs.items():
                self._settle_run(holder, settled, outcome)
            return
        # RabbitMQ settles holder after holder, each with all its effects.
        for holder, settled in sorted(runs.items(), key=_settling_order):
            self._settle_run(holder, settled, outcome)
            holder.queue.deliver()

    def _settle_run(self, holder: Holder, settled: list[Entry], outcome: Outcome) -> None:
        """Settle the messages of one holder."""
        settle = getattr(holder.queue, outcome)
        if type(holder) is ChannelConsumer:
            holder.queue.release(holder, settled)
            self._released(holder, len(settled))
            settle(settled)
            return
        queue = holder.queue
        # In RabbitMQ every basic.get is a separate consumer: limits and deliveries follow each one.
        # Without limits and consumers, settling all at once is equivalent.
        at_once = not queue.has_limits and not queue.consumers.ring
        runs = [settled] if at_once else [[entry] for entry in settled]
        for run in runs:
            queue.release(holder, run)
            settle(run)
            queue.deliver()
        self.remove_get_holder(holder)

    def _released(self, holder: Holder, count: int) -> None:
        """Restore the credit of a consumer after messages were settled."""
        if type(holder) is not ChannelConsumer:
            return
        self.shared_prefetch.release(count)
        if holder.prefetch and holder.blocked:
            holder.queue.unblock(holder)

    def requeue_all(self) -> None:
        """Requeue all unacknowledged messages (basic.recover)."""
        self.settle(self.unacked.take_all(), "requeue")

    # -- closing ------------------------------------------------------------------------------------------

    def fail(self, fault: AmqpFault, method: int) -> None:
        """Close the channel because of a client error.

        Args:
            fault: Reply code and text for channel.close.
            method: Index of the current method; sent in channel.close unless the fault names another.
        """
        blamed = method if fault.method is None else fault.method
        self.flush_confirms()
        deliver_due(self)
        self.close(keep_gets=True)
        self.state = ChannelState.CLOSING
        self.send(_CHANNEL_CLOSE, fault.code, encode_reply_text(fault.text), blamed >> 16, blamed & 0xFFFF)

    def cancel_consumers(self) -> set[Queue]:
        """Cancel all consumers; return their queues."""
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.queue.remove_consumer(consumer)
        return {consumer.queue for consumer in consumers.values()}

    def close(self, keep_gets: bool = False) -> None:
        """Cancel all consumers and requeue all unacknowledged messages.

        Args:
            keep_gets: Keep messages from basic.get on queues that the channel does not consume from. As in RabbitMQ,
                they are requeued at the client's channel.close-ok, by a later call.
        """
        left = self.cancel_consumers()
        if self.reply_consumer is not None:
            self.reply_consumer.cancel()
        if self.transaction is not None:
            self.transaction.rollback()
        kept = [each for each in self.unacked.items() if keep_gets and each[1][0].queue not in left]
        for tag, _ in kept:
            del self.unacked[tag]
        _return_all(self.unacked.take_all())
        self.unacked.restore(kept)
        self.shared_prefetch.clear()
        self._get_holders.clear()
        self.confirms = self.transaction = None

    def written(self, has_failed: HasFailed) -> Callable[[], None] | None:
        """Prepare confirms for publishes of this turn, which were written; return the callback for the sync."""
        confirms = self.confirms
        if confirms is None:
            return None
        gate = self.connection.server.broker.gate
        if not gate.is_open and confirms.needs_definitions(gate):
            gate.hold(self.output)
        last = confirms.written(has_failed)
        if has_failed(None):
            # Publishes may have been refused.
            self.output.confirm(self)
        return partial(self._synced, confirms, last)

    def _synced(self, confirms: Confirms, last: int) -> None:
        if self.confirms is confirms:
            confirms.synced(last)
            self.output.confirm(self)

    def flush_confirms(self) -> None:
        """Send confirms that are due."""
        if self.confirms is not None:
            self.output.parts += self.confirms.flush()


def deliver_due(channel: Channel) -> None:
    """Deliver to the consumers of a channel now, instead of at the end of the turn."""
    for consumer in channel.consumers.values():
        if consumer.queue.scheduled:
            consumer.queue.deliver()


def _settling_order(run: tuple[Holder, list[Entry]]) -> tuple[bytes, bytes]:
    """Return the sort key for several holders settled by one method: queue name, then consumer tag (gets first)."""
    holder = run[0]
    tag = holder.tag if isinstance(holder, ChannelConsumer) else ""
    return holder.queue.name.encode("utf-8", "surrogateescape"), tag.encode("utf-8", "surrogateescape")


def _return_all(held: Sequence[Held]) -> None:
    """Requeue messages of a closed channel, in one batch per queue."""
    queues: dict[Queue, list[Entry]] = {}
    for holder, run in groupby(held, key=itemgetter(0)):
        entries = [entry for _, entry in run]
        holder.queue.release(holder, entries)
        queues.setdefault(holder.queue, []).extend(entries)
    for queue, returned in queues.items():
        queue.requeue_abandoned(returned)
