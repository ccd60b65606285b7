"""Puts published messages into the queues of their route and confirms them, in time slices if there are many queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.messages.publish_details import PublishDetails
from leveret.broker.core.queues.target import Target
from leveret.broker.core.scheduling.time_slice import TimeSlice, Unfinished
from leveret.broker.session.channel import Channel
from leveret.broker.session.delivery import send_message
from leveret.protocol.faults import ReplyCode
from leveret.protocol.methods import INDEX
from leveret.storage.event_format import TOLD
from leveret.storage.message import Message

_RETURN: Final = INDEX["basic.return"]
#: With more queues than this the time slice is checked after each: a full queue that dead-letters can take two slices.
_FEW: Final = 4


class Enqueueing:
    """Messages on their way to the queues of their route.

    Args:
        channel: The channel.
        exchange: The exchange that they were published to.
        queues: The queues.
        replies: Names of direct reply-to consumers.
        messages: The messages. They have one size and one envelope, unless `longest` is given.
        body_bytes: Sum of their body lengths.
        mandatory: Whether they are returned if they are unroutable.
        longest: Length of the longest body, for messages with different headers and sizes; see Queue.publish_varied().

    Attributes:
        channel: See Args.
        queues: See Args.
        count: Number of messages.
        taken: Number of messages from the front that no queue has refused: a full queue refuses all further messages
            of a run.
    """

    __slots__ = (
        "_body_bytes", "_exchange", "_longest", "_mandatory", "_messages", "_position", "_replies", "_routed",
        "channel", "count", "queues", "taken",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        exchange: Exchange,
        queues: tuple[Target, ...],
        replies: tuple[str, ...],
        messages: Sequence[Message],
        body_bytes: int,
        mandatory: bool,
        longest: int | None = None,
    ) -> None:
        self.channel = channel
        self.queues = queues
        self.count = self.taken = len(messages)
        self._exchange = exchange
        self._replies = replies
        self._messages = messages
        self._mandatory = mandatory
        self._longest = longest
        self._position = 0
        self._routed = False
        self._body_bytes = body_bytes

    def run(self, time_slice: TimeSlice) -> bool:
        """Enqueue messages while time is left; return whether all queues have them."""
        if not self._position:
            _count_publish(self.channel, self._exchange, self.count, self.queues)
        queues, messages, body_bytes, longest = self.queues, self._messages, self._body_bytes, self._longest
        written = self.count if messages[0].envelope.persistent else 0
        while self._position < len(queues):
            if self._position and time_slice.is_over():
                return False
            queue = queues[self._position]
            self._position += 1
            if queue.deleted:
                continue
            self._routed = True
            time_slice.count_published(written)
            if longest is None:
                self.taken = min(self.taken, queue.publish(messages, body_bytes, self.channel))
            else:
                queue.publish_varied(messages, body_bytes, longest)
        _end(self.channel, self._exchange, self._routed, self._replies, messages, body_bytes, self._mandatory)
        return True


class _Rest:
    """Goes on with messages for which one time slice was too short, then confirms them.

    Args:
        work: What is left.
        awaits_sync: Whether their confirms wait for the sync to disk.
    """

    __slots__ = ("_awaits_sync", "_confirms", "_work")

    def __init__(self, work: Enqueueing, awaits_sync: bool) -> None:
        self._work = work
        self._awaits_sync = awaits_sync
        self._confirms = work.channel.confirms
        work.channel.publishing = self

    def step(self) -> bool:
        """Use one time slice; return whether all queues have the messages."""
        work = self._work
        channel = work.channel
        if channel.publishing is not self:
            return True
        if not work.run(channel.vhost.turn.slice()):
            return False
        channel.publishing = None
        if channel.confirms is self._confirms:
            _confirm(channel, work.queues, self._awaits_sync, work.count, work.taken)
        return True

    def go_on_alone(self) -> None:
        """Go on without the channel: a message that a client has sent does not reach only some of its queues."""
        if not self.step():
            self._work.channel.vhost.timers.call_later(0, self.go_on_alone)


def enqueue(
    channel: Channel,
    exchange: Exchange,
    queues: tuple[Target, ...],
    replies: tuple[str, ...],
    messages: Sequence[Message],
    body_bytes: int,
    mandatory: bool,
    awaits_sync: bool,
    longest: int | None = None,
) -> None:
    """Enqueue messages in their queues and confirm them, after the sync if `awaits_sync`; see Enqueueing.

    Raises:
        Unfinished: There are so many queues that it takes longer than a time slice.
    """
    if len(queues) > _FEW:
        work = Enqueueing(channel, exchange, queues, replies, messages, body_bytes, mandatory, longest)
        if not work.run(channel.vhost.turn.slice()):
            raise Unfinished(_Rest(work, awaits_sync).step, is_handled=True)
        _confirm(channel, queues, awaits_sync, work.count, work.taken)
        return
    # The same without an object.
    taken = count = len(messages)
    _count_publish(channel, exchange, count, queues)
    routed = False
    for queue in queues:
        if queue.deleted:
            continue
        routed = True
        if longest is None:
            taken = min(taken, queue.publish(messages, body_bytes, channel))
        else:
            queue.publish_varied(messages, body_bytes, longest)
    _end(channel, exchange, routed, replies, messages, body_bytes, mandatory)
    _confirm(channel, queues, awaits_sync, count, taken)


def _count_publish(channel: Channel, exchange: Exchange, count: int, queues: tuple[Target, ...]) -> None:
    channel.counters.publish += count
    exchange.counters.publish_in += count
    exchange.counters.publish_out += count * len(queues)


def _end(
    channel: Channel,
    exchange: Exchange,
    routed: bool,
    replies: tuple[str, ...],
    messages: Sequence[Message],
    body_bytes: int,
    mandatory: bool,
) -> None:
    """Deliver direct replies, and handle messages that no queue got."""
    for name in replies:
        _reply(channel, name, messages)
    # A direct reply does not count as routed, as in 3.10.8.
    if not routed:
        _handle_unroutable(channel, messages, body_bytes, mandatory)
        if not replies:
            exchange.counters.count_unroutable(len(messages), returned=mandatory)


def _confirm(channel: Channel, queues: tuple[Target, ...], awaits_sync: bool, count: int, taken: int) -> None:
    """Confirm accepted messages, now or after the sync, and refuse the remaining ones, if the channel confirms."""
    confirms = channel.confirms
    if confirms is None:
        return
    channel.counters.publish_confirm += count
    if not awaits_sync:
        confirms.accept_next(taken)
        channel.output.confirm(confirms)
    elif confirms.hold_next(taken, queues):
        channel.host.stores.await_sync(channel)
    if taken < count:
        for _ in range(count - taken):
            confirms.refuse_next()
        channel.output.confirm(confirms)


def _handle_unroutable(channel: Channel, messages: Sequence[Message], body_bytes: int, mandatory: bool) -> None:
    """Count unroutable messages, and send basic.return if they are mandatory."""
    flags, vhost_name = TOLD if mandatory else 0, channel.host.vhost_name
    alike = [(messages, body_bytes)]
    if messages[0].envelope is not messages[-1].envelope:
        alike = [([message], len(message.body)) for message in messages]
    for some, size in alike:
        details = PublishDetails(vhost_name, some[0].envelope, channel)
        channel.host.stores.note_unroutable(len(some), size, flags, details)
    if not mandatory:
        channel.counters.drop_unroutable += len(messages)
        return
    channel.counters.return_unroutable += len(messages)
    for message in messages:
        _return(channel, message)


def _reply(channel: Channel, name: str, messages: Sequence[Message]) -> None:
    """Deliver messages to a direct reply-to consumer, if it still exists."""
    receiver = channel.vhost.replies.get(name)
    if receiver is not None:
        for message in messages:
            receiver.deliver_reply(message)


def _return(channel: Channel, message: Message) -> None:
    code = ReplyCode.NO_ROUTE
    send_message(channel.host, channel.number, _RETURN, (code, code.name), message)
