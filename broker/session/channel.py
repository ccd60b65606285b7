"""One channel of a connection: its consumers, its unacknowledged messages, its modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from leveret.broker.core.consumers import Holder
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.stats.counters import ChannelCounters
from leveret.broker.core.tracing import Origin, Tracer
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
    from leveret.broker.core.message_storage import HasFailed
    from leveret.broker.core.vhost import VirtualHost
    from leveret.broker.session.connection import Connection
    from leveret.broker.session.direct_reply import ReplyConsumer

#: What becomes of messages that a client settles; each is a method of Queue.
Outcome: TypeAlias = Literal["acknowledge", "reject", "requeue"]

_CHANNEL_CLOSE: Final = INDEX["channel.close"]


class Channel:
    """One open channel.

    Args:
        connection: The connection it belongs to.
        number: Its channel number, 1..65535.

    Attributes:
        output: The outgoing half of its connection.
        state: Open, or waiting for the client's channel.close-ok.
        next_tag: Delivery tag of the next delivery or get.
        unacked: The messages that the client has yet to acknowledge.
        consumers: By consumer tag.
        default_prefetch: Limit of consumers to come (basic.qos, global=false); 0 for none.
        shared_prefetch: Limit of all consumers together (global=true), and how much they hold.
        confirms: Set once the channel is in confirm mode.
        transaction: Set once the channel is in transaction mode.
        reply_consumer: Set while it consumes direct replies.
        last_queue: Name of the queue declared last, None before the first.
        counters: What has happened on it.
        tracer: Copies what is published and delivered; None while tracing is off.
    """

    __slots__ = (
        "__weakref__",
        "_getters",
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
        self._getters: dict[Queue, Holder] = {}

    @property
    def vhost(self) -> VirtualHost:
        """The virtual host of its connection."""
        return self.connection.vhost

    def send(self, method: int, *arguments: Any) -> None:
        """Send a method to the client."""
        self.output.send(encode_method(self.number, method, *arguments))

    def queue_name(self, name: str) -> str:
        """The queue that a method means: an empty name means the one declared last.

        Raises:
            ChannelFault: NOT_FOUND (404) if none has been declared.
        """
        if name:
            return name
        if self.last_queue is None:
            raise not_found("no previously declared queue")
        return self.last_queue

    # -- what others see ----------------------------------------------------------------------------------

    @property
    def prefetch(self) -> int:
        """Limit of all consumers together; 0 for none."""
        return self.shared_prefetch.limit

    @property
    def confirming(self) -> bool:
        """Whether it is in confirm mode."""
        return self.confirms is not None

    @property
    def transactional(self) -> bool:
        """Whether it is in transaction mode."""
        return self.transaction is not None

    @property
    def origin(self) -> Origin:
        """Who publishes and takes messages on it, as traced messages say it."""
        return Origin(self.connection.name, self.number, self.connection.username)

    @property
    def unacked_count(self) -> int:
        """Messages that the client has yet to acknowledge."""
        return len(self.unacked)

    @property
    def unconfirmed_count(self) -> int:
        """Publishes that are to be confirmed."""
        return 0 if self.confirms is None else self.confirms.unconfirmed_count

    @property
    def uncommitted(self) -> tuple[int, int]:
        """Publishes and acknowledgements that wait for commit."""
        return (0, 0) if self.transaction is None else self.transaction.held_counts()

    def getter(self, queue: Queue) -> Holder:
        """Who holds the messages that this channel got by basic.get from a queue."""
        holder = self._getters.get(queue)
        if holder is None:
            holder = self._getters[queue] = Holder(queue)
        return holder

    def forget_getter(self, holder: Holder) -> None:
        """Forget who holds nothing any more: a channel may get from any number of queues."""
        if not holder.unacked:
            self._getters.pop(holder.queue, None)

    # -- unacknowledged messages --------------------------------------------------------------------------

    def hold(self, holder: Holder, entry: Entry) -> int:
        """Number a message that the client has yet to acknowledge; return its delivery tag."""
        tag = self.take_tag()
        self.unacked[tag] = (holder, entry)
        return tag

    def take_tag(self) -> int:
        """The next delivery tag."""
        self.next_tag += 1
        return self.next_tag - 1

    def settle(self, held: Iterable[Held], outcome: Outcome, in_turn: bool = False) -> None:
        """Give up messages that are no longer outstanding; those of one consumer at once.

        Args:
            held: Who held which message, in order of the delivery tags.
            outcome: What becomes of them.
            in_turn: The client has named each of them by itself.
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
            # What came earlier in this turn has been delivered by now: it is neither overtaken nor counted as ready.
            for holder in runs:
                if holder.queue.scheduled:
                    holder.queue.deliver()
        if in_turn or len(runs) == 1:
            for holder, settled in runs.items():
                self._settle_run(holder, settled, outcome)
            return
        # To RabbitMQ they are one after the other, and so is what follows from them.
        for holder, settled in sorted(runs.items(), key=_settling_order):
            self._settle_run(holder, settled, outcome)
            holder.queue.deliver()

    def _settle_run(self, holder: Holder, settled: list[Entry], outcome: Outcome) -> None:
        """Give up the messages of one holder."""
        settle = getattr(holder.queue, outcome)
        if type(holder) is ChannelConsumer:
            holder.queue.release(holder, settled)
            self._released(holder, len(settled))
            settle(settled)
            return
        queue = holder.queue
        # To RabbitMQ every basic.get is a consumer of its own: limits and deliveries follow each one.
        # All at once comes to the same where there are no limits, and nobody to deliver to.
        at_once = not queue.has_limits and not queue.consumers.ring
        runs = [settled] if at_once else [[entry] for entry in settled]
        for run in runs:
            queue.release(holder, run)
            settle(run)
            queue.deliver()
        self.forget_getter(holder)

    def _released(self, holder: Holder, count: int) -> None:
        """Give credit back: messages of a holder are no longer unacknowledged."""
        if type(holder) is not ChannelConsumer:
            return
        self.shared_prefetch.release(count)
        if holder.prefetch and holder.blocked:
            holder.queue.unblock(holder)

    def requeue_all(self) -> None:
        """Put all unacknowledged messages back into their queues (basic.recover)."""
        self.settle(self.unacked.take_all(), "requeue")

    # -- the end ------------------------------------------------------------------------------------------

    def fail(self, fault: AmqpFault, method: int) -> None:
        """Close the channel because of a fault of the client.

        Args:
            fault: What the client is told.
            method: The method in hand, blamed unless the fault blames another.
        """
        blamed = method if fault.method is None else fault.method
        self.flush_confirms()
        deliver_due(self)
        self.end(keep_got=True)
        self.state = ChannelState.CLOSING
        self.send(_CHANNEL_CLOSE, fault.code, encode_reply_text(fault.text), blamed >> 16, blamed & 0xFFFF)

    def leave_queues(self) -> set[Queue]:
        """Withdraw its consumers; return the queues that they have left."""
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.queue.remove_consumer(consumer)
        return {consumer.queue for consumer in consumers.values()}

    def end(self, keep_got: bool = False) -> None:
        """Leave nothing behind: consumers go, unacknowledged messages return to their queues.

        Args:
            keep_got: Leave what came by basic.get from queues that it has no consumers of, for a later call: RabbitMQ
                returns it with the client's channel.close-ok only.
        """
        left = self.leave_queues()
        if self.reply_consumer is not None:
            self.reply_consumer.cancel()
        if self.transaction is not None:
            self.transaction.rollback()
        kept = [each for each in self.unacked.items() if keep_got and each[1][0].queue not in left]
        for tag, _ in kept:
            del self.unacked[tag]
        _return_all(self.unacked.take_all())
        self.unacked.restore(kept)
        self.shared_prefetch.clear()
        self._getters.clear()
        self.confirms = self.transaction = None

    def written(self, has_failed: HasFailed) -> Callable[[], None] | None:
        """Learn that the messages of this turn have been written: confirm them once they are synced."""
        confirms = self.confirms
        if confirms is None:
            return None
        gate = self.connection.server.broker.gate
        if not gate.is_open and confirms.rely_on(gate):
            gate.hold(self.output)
        last = confirms.written(has_failed)
        if has_failed(None):
            # Some may have been refused.
            self.output.confirm(self)
        return partial(self._synced, confirms, last)

    def _synced(self, confirms: Confirms, last: int) -> None:
        if self.confirms is confirms:
            confirms.synced(last)
            self.output.confirm(self)

    def flush_confirms(self) -> None:
        """Send the confirms that are due."""
        if self.confirms is not None:
            self.output.parts += self.confirms.flush()


def deliver_due(channel: Channel) -> None:
    """Let a channel's consumers have now what they would get at the end of the turn."""
    for consumer in channel.consumers.values():
        if consumer.queue.scheduled:
            consumer.queue.deliver()


def _settling_order(run: tuple[Holder, list[Entry]]) -> tuple[bytes, bytes]:
    """RabbitMQ's order where one method settles messages of several holders: by queue, gets first, then by tag."""
    holder = run[0]
    tag = holder.tag if isinstance(holder, ChannelConsumer) else ""
    return holder.queue.name.encode("utf-8", "surrogateescape"), tag.encode("utf-8", "surrogateescape")


def _return_all(held: Sequence[Held]) -> None:
    """Put messages of a channel that ends back into their queues, to each queue all at once."""
    queues: dict[Queue, list[Entry]] = {}
    for holder, run in groupby(held, key=itemgetter(0)):
        entries = [entry for _, entry in run]
        holder.queue.release(holder, entries)
        queues.setdefault(holder.queue, []).extend(entries)
    for queue, returned in queues.items():
        queue.requeue_abandoned(returned)
