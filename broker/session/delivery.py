"""Sending messages to clients: deliveries, gets and returns as frames."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.broker.core.consumers import Consumer
from leveret.broker.session.shared_prefetch import UNLIMITED
from leveret.protocol.constants import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

if TYPE_CHECKING:
    from leveret.broker.core.queues.queue import Queue
    from leveret.broker.session.channel import Channel

_FRAME_HEAD: Final = struct.Struct(">BHI")
_NEXT_FRAME: Final = struct.Struct(">BBHI")
_METHOD_HEAD: Final = struct.Struct(">BHII")
_TAG: Final = struct.Struct(">Q")
_END: Final = bytes((FRAME_END,))
_DELIVER: Final = INDEX["basic.deliver"]
_CANCEL: Final = INDEX["basic.cancel"]

#: Bytes of framing, method and headers counted for a delivery, roughly.
_DELIVERY_OVERHEAD: Final = 100


class ChannelConsumer(Consumer):
    """A consumer at the other end of a channel.

    Args:
        channel: Its channel.
        queue: The queue consumed from.
        tag: Its consumer tag.
        no_ack: Messages count as settled once sent.
        exclusive: No other consumer beside it.
        priority: The x-priority argument.
        prefetch: Unacked messages it may hold; 0 for any number.
        arguments: As they came with basic.consume.
    """

    __slots__ = (
        "_after",
        "_before",
        "_envelope",
        "_heads",
        "_next",
        "_redelivered",
        "_shape",
        "arguments",
        "channel",
        "prefetch",
    )

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
        super().__init__(queue, tag, no_ack, exclusive, priority)
        self.channel = channel
        self.arguments = arguments
        self.prefetch = prefetch
        # The frames around tag and body of the last delivery: they are the same as long as messages repeat.
        self._envelope: Envelope | None = None
        self._redelivered = False
        self._before = self._next = b""
        self._after = b""
        # The heads of header and body frame, for the lengths of route, header and body.
        self._shape = (-1, 0, 0)
        self._heads = (b"", b"")

    def credit(self) -> int:
        """How many messages it can take now."""
        channel = self.channel
        output = channel.output
        if output.congested:
            output.stalled.append(self)
            return 0
        shared = channel.shared_prefetch
        credit = shared.room_for(self) if shared.limit else UNLIMITED
        if self.prefetch and not self.no_ack:
            credit = min(credit, self.prefetch - self.unacked)
        return credit

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to it."""
        channel = self.channel
        out = channel.output.parts
        tag = first = channel.next_tag
        pack = _TAG.pack
        envelope, redelivered, after = self._envelope, self._redelivered, self._after
        lead = self._before
        for entry in entries:
            message = entry[1]
            if message.envelope is not envelope or entry[2] is not redelivered:
                envelope, redelivered = message.envelope, entry[2]
                self._prepare(message, redelivered)
                after = self._after
                lead = self._next if tag > first else self._before
            if after:
                out += (lead, pack(tag), after, message.body)
            else:
                self._send_in_chunks(out, lead, pack(tag), message, redelivered)
            tag += 1
            if tag == first + 1:
                lead = self._next
        out.append(_END)
        channel.next_tag = tag
        counters = channel.counters
        if self.queue.counters.requeued:
            counters.redeliver += sum([entry[2] for entry in entries])
        if self.no_ack:
            counters.deliver_no_ack += len(entries)
            channel.shared_prefetch.serve(self, 0)
        else:
            counters.deliver += len(entries)
            channel.unacked.update(zip(range(first, tag), [(self, entry) for entry in entries], strict=True))
            self.unacked += len(entries)
            channel.shared_prefetch.serve(self, len(entries))
        channel.output.sent(body_bytes + len(entries) * _DELIVERY_OVERHEAD)
        if channel.tracer is not None:
            channel.tracer.delivered(channel.origin, self.queue.name, entries)

    def cancelled(self) -> None:
        """Learn that the queue is gone: tell the client if it wants to know."""
        self.channel.consumers.pop(self.tag, None)
        self.channel.shared_prefetch.leave(self)
        if self.channel.connection.capabilities.consumer_cancel_notify:
            self.channel.send(_CANCEL, self.tag, True)

    def _prepare(self, message: Message, redelivered: bool) -> None:
        """Build what stands before and behind the delivery tag of messages with this envelope."""
        envelope = message.envelope
        shape = len(envelope.route), len(envelope.header), len(message.body)
        if shape != self._shape:
            self._shape = shape
            self._prepare_heads(*shape)
        self._envelope, self._redelivered = envelope, redelivered
        if shape[2] <= self.channel.connection.frame_max - FRAME_OVERHEAD:
            flag = b"\x01" if redelivered else b"\x00"
            header_head, body_head = self._heads
            self._after = b"".join((flag, envelope.route, header_head, envelope.header, body_head))
        else:
            self._after = b""

    def _prepare_heads(self, route_len: int, header_len: int, body_len: int) -> None:
        """Build the heads of frames: what messages of these lengths have in common."""
        number, tag = self.channel.number, encode_shortstr(self.tag)
        size = 4 + len(tag) + 9 + route_len
        self._before = _METHOD_HEAD.pack(FRAME_METHOD, number, size, _DELIVER) + tag
        self._next = _END + self._before
        # The end octet of the last frame, of the header frame where the body is empty, is left to deliver().
        body_head = _NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, body_len) if body_len else b""
        self._heads = _NEXT_FRAME.pack(FRAME_END, FRAME_HEADER, number, header_len), body_head

    def _send_in_chunks(self, out: list[bytes], lead: bytes, tag: bytes, message: Message, redelivered: bool) -> None:
        """Send a message whose body needs several frames, up to the end octet of the last one."""
        flag = b"\x01" if redelivered else b"\x00"
        out += (lead, tag, flag, message.envelope.route, _END)
        out += _frame_content(self.channel.number, message, self.channel.connection.frame_max)
        del out[-1]


def send_message(
    channel: Channel, method: int, before: tuple[object, ...], message: Message, after: tuple[object, ...] = ()
) -> None:
    """Send a method that names the route of a message, and the message (basic.get-ok, basic.return, a direct reply).

    Args:
        channel: Where to.
        method: Index of the method.
        before: Its arguments in front of exchange and routing key.
        message: The message.
        after: Its arguments behind them.
    """
    route, output = message.envelope.route, channel.output
    split = 1 + route[0]
    names = route[1:split], route[split + 1 :]
    output.send(encode_method(channel.number, method, *before, *names, *after))
    output.parts += _frame_content(channel.number, message, channel.connection.frame_max)
    output.sent(len(message.envelope.header) + len(message.body))


def _frame_content(channel: int, message: Message, frame_max: int) -> list[bytes]:
    """Header frame and body frames of a message, the last part being an end octet.

    Args:
        channel: Channel number.
        message: The message; its header is one frame, however long (RabbitMQ never splits it).
        frame_max: Largest body frame in bytes, framing included.
    """
    header, body = message.envelope.header, message.body
    parts = [_FRAME_HEAD.pack(FRAME_HEADER, channel, len(header)), header, _END]
    largest = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), largest):
        chunk = body[start : start + largest]
        parts += (_FRAME_HEAD.pack(FRAME_BODY, channel, len(chunk)), chunk, _END)
    return parts
