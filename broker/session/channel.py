"""A channel of a connection, its consumers, and its transaction: publishes and acknowledgements held until commit."""

from __future__ import annotations

import base64
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

from leveret.broker.core.clients import consumer_fields, ended_consumer_fields
from leveret.broker.core.counters.counters import ChannelCounters
from leveret.broker.core.message_stores import WriteFailures
from leveret.broker.core.messages import Origin
from leveret.broker.core.queues.queue import Consumer, Queue
from leveret.broker.core.scheduling.turn import UNLIMITED as UNTIMED
from leveret.broker.core.scheduling.turn import TimeSlice
from leveret.broker.core.vhosts.tracing import Tracer
from leveret.broker.session.delivery_frames import DeliveryFrames, StreamFrames, send_message
from leveret.broker.session.output import Confirms
from leveret.broker.session.shared_state import ChannelHost
from leveret.broker.session.unacked import UNLIMITED, Held, Outcome, SharedPrefetch, Unacked
from leveret.protocol.faults import AmqpFault, encode_reply_text, not_found
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.states import ChannelState
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

#: Acknowledgements applied between two checks of the time slice.
_SLICE_ACKNOWLEDGEMENTS: Final = 8192


class HeldPublish(Protocol):
    """Messages that passed all checks.

    Attributes:
        count: Their number.
        taken: Number of those that no queue has refused.
    """

    count: int
    taken: int

    def run(self, time_slice: TimeSlice) -> bool:
        """Enqueue them while time is left; return whether all queues have them."""


class Transaction:
    """Publishes and acknowledgements of a channel since the last commit or rollback."""

    __slots__ = ("_is_committing", "_is_refused", "_publishes", "_returning", "_settlements", "_unacked")

    def __init__(self, unacked: Unacked) -> None:
        self._unacked = unacked
        self._publishes: deque[HeldPublish] = deque()
        self._settlements: deque[tuple[list[tuple[int, Held]], Outcome]] = deque()
        unacked.set_aside = self._settlements
        #: Queues that have not requeued all messages of the commit yet.
        self._returning: list[Queue] = []
        self._is_committing = False
        self._is_refused = False

    def hold_publish(self, publish: HeldPublish) -> None:
        """Hold publishes that have passed all checks."""
        self._publishes.append(publish)

    def hold_settlement(self, tags: list[int], outcome: Outcome) -> None:
        """Hold acknowledgements; their delivery tags are no longer outstanding.

        Args:
            tags: Outstanding delivery tags.
            outcome: How to settle the messages at commit.
        """
        unacked, settlements = self._unacked, self._settlements
        held = [(tag, unacked.held.pop(tag)) for tag in tags]
        if settlements and outcome == "acknowledge" == settlements[-1][1]:
            settlements[-1][0].extend(held)
        else:
            settlements.append((held, outcome))

    def held_counts(self) -> tuple[int, int]:
        """Return the numbers of held publishes and acknowledgements."""
        publishes = sum(publish.count for publish in self._publishes)
        return publishes, sum(len(held) for held, _ in self._settlements)

    def commit(self, time_slice: TimeSlice) -> bool:
        """Apply held publishes, then acknowledgements, while time is left.

        Returns:
            Whether it is finished, so that end_commit() can be called; otherwise call it again.
        """
        self._is_committing = True
        published = 0
        while self._publishes:
            if published and time_slice.is_over():
                return False
            publish = self._publishes[0]
            if not publish.run(time_slice):
                return False
            del self._publishes[0]
            self._is_refused |= publish.taken < publish.count
            published += publish.count
            time_slice.count_published(publish.count)
        while self._settlements:
            if published and time_slice.is_over():
                return False
            published += self._settle_some()
        self._returning = [queue for queue in self._returning if not queue.return_some(time_slice)]
        return not self._returning

    def end_commit(self) -> bool:
        """End a finished commit; return whether all publishes were accepted."""
        is_refused, self._is_refused, self._is_committing = self._is_refused, False, False
        return not is_refused

    def _settle_some(self) -> int:
        """Apply acknowledgements; return their number."""
        held, outcome = self._settlements.popleft()
        if outcome == "acknowledge" and len(held) > _SLICE_ACKNOWLEDGEMENTS:
            self._settlements.appendleft((held[_SLICE_ACKNOWLEDGEMENTS:], outcome))
            del held[_SLICE_ACKNOWLEDGEMENTS:]
        self._returning += self._unacked.settle([each for _, each in held], outcome)
        return len(held)

    def abandon(self) -> None:
        """End the transaction with its channel: roll it back, or finish a commit that has begun."""
        if self._is_committing:
            while not self.commit(UNTIMED):
                pass
        self.rollback()

    def rollback(self) -> None:
        """Discard held publishes, and make acknowledged messages outstanding again."""
        self._publishes.clear()
        while self._settlements:
            self._unacked.restore(self._settlements.popleft()[0])


_CHANNEL_CLOSE: Final = INDEX["channel.close"]
_CANCEL: Final = INDEX["basic.cancel"]
_DELIVER: Final = INDEX["basic.deliver"]

#: The pseudo-queue that clients consume direct replies from, and set as reply-to of requests.
REPLY_QUEUE: Final = "amq.rabbitmq.reply-to"

#: Approximate size of frame headers, method and content header of a delivery, in bytes.
_DELIVERY_OVERHEAD: Final = 100
_STREAM_DELIVERY_OVERHEAD: Final = 130
#: Stands for all unacknowledged messages of streams: they are not needed any more.
_NO_MESSAGE: Final = Message(Envelope(b"\x00\x00", b""), b"")


class ReplyConsumer:
    """The direct reply-to consumer of a channel: it gets replies to requests without a reply queue.

    Source: https://www.rabbitmq.com/docs/direct-reply-to, and RabbitMQ 3.10.8 observed.

    Args:
        host: What the channels of the connection share.

    Attributes:
        name: Routing key for replies to this consumer; unique and not guessable.
    """

    __slots__ = ("_host", "_number", "_unacked", "name", "tag")

    def __init__(self, host: ChannelHost, number: int, unacked: Unacked, tag: str) -> None:
        self._host = host
        self._number = number
        self._unacked = unacked
        self.tag = tag
        parts = (base64.b64encode(secrets.token_bytes(size)).decode("ascii") for size in (33, 16))
        self.name = f"{REPLY_QUEUE}.{'.'.join(parts)}"
        host.vhost.replies[self.name] = self

    def deliver_reply(self, message: Message) -> None:
        """Send a reply. As in RabbitMQ 3.10.8, its delivery tag is the channel's next one, which is not advanced."""
        send_message(self._host, self._number, _DELIVER, (self.tag, self._unacked.next_tag, False), message)

    def cancel(self) -> None:
        """Cancel the consumer."""
        self._host.vhost.replies.pop(self.name, None)


class UnfinishedPublish(Protocol):
    """Messages that have reached some of their queues."""

    def go_on_alone(self) -> None:
        """Go on without the channel."""


class Channel:
    """One open channel.

    Args:
        host: What the channels of the connection share.
        number: Channel number, 1..65535.
        state: OPEN, or CLOSING for a channel that will be refused.

    Attributes:
        output: Output buffer of the connection.
        vhost: The virtual host of the connection.
        state: OPEN, or CLOSING until the client's channel.close-ok.
        unacked: Unacknowledged messages.
        consumers: Consumers by consumer tag.
        default_prefetch: Prefetch count of new consumers (basic.qos, global=false); 0 for none.
        shared_prefetch: Prefetch limit of the whole channel (global=true).
        confirms: State of confirm mode; None if it is off.
        transaction: State of transaction mode; None if it is off.
        publishing: Messages of this channel that have reached some of their queues, if any.
        reply_consumer: The consumer of direct replies, if any.
        last_queue: Name of the queue declared last; None before the first.
        counters: Message counters of the channel.
        tracer: Copies published and delivered messages; None while tracing is off.
    """

    __slots__ = (
        "confirms",
        "consumers",
        "counters",
        "default_prefetch",
        "host",
        "last_queue",
        "number",
        "output",
        "publishing",
        "reply_consumer",
        "shared_prefetch",
        "state",
        "tracer",
        "transaction",
        "unacked",
        "vhost",
    )

    def __init__(self, host: ChannelHost, number: int, state: ChannelState = ChannelState.OPEN) -> None:
        self.host = host
        self.output = host.output
        self.vhost = host.vhost
        self.number = number
        self.state = state
        self.counters = ChannelCounters()
        self.shared_prefetch = SharedPrefetch()
        self.unacked = Unacked(self.counters, self.shared_prefetch)
        self.consumers: dict[str, ChannelConsumer] = {}
        self.default_prefetch = 0
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        self.publishing: UnfinishedPublish | None = None
        self.reply_consumer: ReplyConsumer | None = None
        self.last_queue: str | None = None
        self.tracer: Tracer | None = host.vhost.tracer

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
    def client(self) -> ChannelHost:
        """The connection and user of the channel."""
        return self.host

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
        return Origin(self.host.name, self.number, self.host.username)

    @property
    def is_told(self) -> bool:
        """Whether the client learns that a message is refused: from a basic.nack, or the failure of its transaction."""
        return self.confirms is not None or self.transaction is not None

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

    # -- consumers ----------------------------------------------------------------------------------------

    def deliver_due(self) -> None:
        """Deliver to the consumers of the channel now, instead of at the end of the turn."""
        for consumer in self.consumers.values():
            if consumer.queue.scheduled:
                consumer.queue.deliver()

    def cancel_consumers(self) -> set[Queue]:
        """Cancel all consumers; return their queues."""
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            tell_ended(consumer, by_broker=True)
            consumer.queue.remove_consumer(consumer)
        return {consumer.queue for consumer in consumers.values()}

    def cancel_replies(self) -> None:
        """Cancel the consumer of direct replies, if any."""
        if self.reply_consumer is not None:
            self.reply_consumer.cancel()
            self.reply_consumer = None

    # -- closing ------------------------------------------------------------------------------------------

    def fail(self, fault: AmqpFault, method: int) -> None:
        """Close the channel because of a client error.

        Args:
            method: Index of the current method; sent in channel.close unless the fault names another.
        """
        blamed = method if fault.method is None else fault.method
        self.flush_confirms()
        self.deliver_due()
        self.close(keep_gets=True)
        self.state = ChannelState.CLOSING
        self.send(_CHANNEL_CLOSE, fault.code, encode_reply_text(fault.text), blamed >> 16, blamed & 0xFFFF)

    def close(self, keep_gets: bool = False) -> None:
        """Cancel all consumers and requeue all unacknowledged messages.

        Args:
            keep_gets: Keep messages from basic.get on queues that the channel does not consume from. As in RabbitMQ,
                they are requeued at the client's channel.close-ok, by a later call.
        """
        left = self.cancel_consumers()
        self.cancel_replies()
        self.unacked.close_deadlines()
        if self.transaction is not None:
            self.transaction.abandon()
        self.unacked.return_all(left if keep_gets else None)
        self.confirms = self.transaction = None
        if self.publishing is not None:
            self.publishing.go_on_alone()

    # -- confirms -----------------------------------------------------------------------------------------

    def written(self, failures: WriteFailures) -> Callable[[], None] | None:
        """Prepare confirms for publishes of this turn, which were written; return the callback for the sync."""
        confirms = self.confirms
        if confirms is None:
            return None
        gate = self.host.gate
        if not gate.is_open and confirms.needs_definitions(gate):
            gate.hold(self.output)
        last = confirms.written(failures)
        if failures.any:
            # Publishes may have been refused.
            self.output.confirm(confirms)
        return _HeldConfirms(self, confirms, last)

    def refuse_held(self) -> None:
        """Nack publishes that wait for copies on other machines."""
        if self.confirms is not None and self.confirms.refuse_held():
            self.output.confirm(self.confirms)

    def flush_confirms(self) -> None:
        """Send confirms that are due."""
        if self.confirms is not None:
            self.output.parts += self.confirms.flush()


class _HeldConfirms:
    """Confirms publishes when it is called, after the sync, unless their channel has been closed.

    Args:
        last: The last sequence number of the publishes.
    """

    __slots__ = ("_channel", "_confirms", "_last")

    def __init__(self, channel: Channel, confirms: Confirms, last: int) -> None:
        self._channel: Final = channel
        self._confirms: Final = confirms
        self._last: Final = last

    def __call__(self) -> None:
        confirms = self._confirms
        if self._channel.confirms is confirms:
            confirms.synced(self._last)
            self._channel.output.confirm_synced(confirms)


class ChannelConsumer(Consumer):
    """A consumer on a channel.

    Args:
        no_ack: Whether messages are settled when they are sent.
        prefetch: Maximum number of unacked messages; 0 for no limit.

    Attributes:
        is_held: Whether it gets nothing for now, because a test says so.
    """

    __slots__ = ("_frames", "arguments", "channel", "is_held")

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        prefetch: int,
        arguments: FieldTable = (),
    ) -> None:
        super().__init__(queue, tag, no_ack, exclusive, priority, prefetch, id(channel))
        self.channel = channel
        self.arguments = arguments
        self.is_held = False
        self._frames = DeliveryFrames(channel.number, tag, channel.host.frame_max)

    def credit(self) -> int:
        """Return how many messages can be delivered now."""
        channel = self.channel
        output = channel.output
        if output.congested:
            output.stalled.append(self)
            return 0
        if self.is_held:
            return 0
        shared = channel.shared_prefetch
        credit = shared.credit(self) if shared.limit else UNLIMITED
        if self.prefetch and not self.no_ack:
            credit = min(credit, self.prefetch - self.unacked)
        return credit

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to the client."""
        channel = self.channel
        output, unacked, counters = channel.output, channel.unacked, channel.counters
        first = unacked.next_tag
        unacked.next_tag = end = self._frames.append(output.parts, entries, first)
        if self.queue.counters.requeued:
            counters.redeliver += sum([entry[2] for entry in entries])
        if self.no_ack:
            counters.deliver_no_ack += len(entries)
            channel.shared_prefetch.count_delivered(self, 0)
        else:
            counters.deliver += len(entries)
            if len(entries) == 1:
                unacked.held[first] = self, entries[0]
            else:
                unacked.held.update(zip(range(first, end), [(self, entry) for entry in entries], strict=True))
            self.unacked += len(entries)
            channel.shared_prefetch.count_delivered(self, len(entries))
        output.sent(body_bytes + len(entries) * _DELIVERY_OVERHEAD)
        if channel.tracer is not None:
            channel.tracer.delivered(channel.origin, self.queue.name, entries)

    def unacked_entries(self, from_tag: int = 0) -> Iterator[Entry]:
        """Iterate over its unacked messages in the order in which they were delivered; see Holder."""
        return self.channel.unacked.entries_of(self, from_tag)

    def next_tag(self) -> int:
        """Return the delivery tag of the next message of the channel."""
        return self.channel.unacked.next_tag

    @property
    def timeout_ms(self) -> int | None:
        """Its own acknowledgement timeout in milliseconds; None if the option consumer_timeout applies."""
        deadline = self.channel.unacked.deadlines.get(self)
        return None if deadline is None else deadline.timeout_ms

    def cancelled(self) -> None:
        """Remove the consumer of a deleted queue, and notify the client if it supports consumer_cancel_notify."""
        channel = self.channel
        channel.consumers.pop(self.tag, None)
        channel.shared_prefetch.remove(self)
        tell_ended(self, by_broker=True)
        if channel.host.notifies_cancel:
            channel.send(_CANCEL, self.tag, True)


def tell_started(consumer: ChannelConsumer) -> None:
    """Tell that a consumer has been started."""
    consumer.channel.vhost.events.tell("consumer.created", consumer_fields, consumer)


def tell_ended(consumer: Consumer, by_broker: bool = False) -> None:
    """Tell that a consumer has been cancelled.

    Args:
        by_broker: Whether it goes with its channel or its queue, or was too slow.
    """
    assert isinstance(consumer, ChannelConsumer)
    consumer.channel.vhost.events.tell("consumer.deleted", ended_consumer_fields, consumer, by_broker=by_broker)


class ChannelStreamConsumer(ChannelConsumer):
    """A consumer of a stream on a channel.

    Args:
        exclusive: The exclusive bit, which has no effect.
        prefetch: Maximum number of unacked messages, 1 or more.
    """

    __slots__ = ("_stream_frames",)

    def __init__(
        self, channel: Channel, queue: Queue, tag: str, exclusive: bool, prefetch: int, arguments: FieldTable
    ) -> None:
        super().__init__(channel, queue, tag, False, exclusive, 0, prefetch, arguments)
        self._stream_frames = StreamFrames(channel.number, tag, channel.host.frame_max)

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to the client."""
        channel = self.channel
        output, unacked, counters = channel.output, channel.unacked, channel.counters
        first = unacked.next_tag
        unacked.next_tag = end = self._stream_frames.append(output.parts, entries, first)
        counters.deliver += len(entries)
        held = [(self, (entry[0], _NO_MESSAGE, False)) for entry in entries]
        unacked.held.update(zip(range(first, end), held, strict=True))
        self.unacked += len(entries)
        channel.shared_prefetch.count_delivered(self, len(entries))
        output.sent(body_bytes + len(entries) * _STREAM_DELIVERY_OVERHEAD)
        if channel.tracer is not None:
            channel.tracer.delivered(channel.origin, self.queue.name, entries)
