"""Sends messages to clients: deliveries, gets and returns as frames."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.broker.core.queues.consumers import Consumer
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

#: Approximate size of frame headers, method and content header of a delivery, in bytes.
_DELIVERY_OVERHEAD: Final = 100


class ChannelConsumer(Consumer):
    """A consumer on a channel.

    Args:
        channel: The channel.
        queue: The queue consumed from.
        tag: The consumer tag.
        no_ack: Whether messages are settled when they are sent.
        exclusive: Whether the consumer is exclusive.
        priority: The x-priority argument.
        prefetch: Maximum number of unacked messages; 0 for no limit.
        arguments: Arguments of basic.consume.
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
        # Frame parts before and after the delivery tag, cached for messages with the same envelope.
        self._envelope: Envelope | None = None
        self._redelivered = False
        self._before = self._next = b""
        self._after = b""
        # Frame headers of content header and body, cached for the same lengths of route, header and body.
        self._shape = (-1, 0, 0)
        self._heads = (b"", b"")

    def credit(self) -> int:
        """Return how many messages can be delivered now."""
        channel = self.channel
        output = channel.output
        if output.congested:
            output.stalled.append(self)
            return 0
        shared = channel.shared_prefetch
        credit = shared.credit(self) if shared.limit else UNLIMITED
        if self.prefetch and not self.no_ack:
            credit = min(credit, self.prefetch - self.unacked)
        return credit

    def deliver(self, entries: Sequence[Entry], body_bytes: int) -> None:
        """Send messages to the client."""
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
            channel.shared_prefetch.count_delivered(self, 0)
        else:
            counters.deliver += len(entries)
            channel.unacked.update(zip(range(first, tag), [(self, entry) for entry in entries], strict=True))
            self.unacked += len(entries)
            channel.shared_prefetch.count_delivered(self, len(entries))
        channel.output.sent(body_bytes + len(entries) * _DELIVERY_OVERHEAD)
        if channel.tracer is not None:
            channel.tracer.delivered(channel.origin, self.queue.name, entries)

    def cancelled(self) -> None:
        """Remove the consumer of a deleted queue, and notify the client if it supports consumer_cancel_notify."""
        self.channel.consumers.pop(self.tag, None)
        self.channel.shared_prefetch.remove(self)
        if self.channel.connection.capabilities.consumer_cancel_notify:
            self.channel.send(_CANCEL, self.tag, True)

    def _prepare(self, message: Message, redelivered: bool) -> None:
        """Cache the frame parts before and after the delivery tag for the envelope of a message."""
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
        """Cache the frame headers for messages with these lengths."""
        number, tag = self.channel.number, encode_shortstr(self.tag)
        size = 4 + len(tag) + 9 + route_len
        self._before = _METHOD_HEAD.pack(FRAME_METHOD, number, size, _DELIVER) + tag
        self._next = _END + self._before
        # deliver() appends the end octet of the last frame; without a body that is the header frame.
        body_head = _NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, body_len) if body_len else b""
        self._heads = _NEXT_FRAME.pack(FRAME_END, FRAME_HEADER, number, header_len), body_head

    def _send_in_chunks(self, out: list[bytes], lead: bytes, tag: bytes, message: Message, redelivered: bool) -> None:
        """Send a message with several body frames, without the end octet of the last one."""
        flag = b"\x01" if redelivered else b"\x00"
        out += (lead, tag, flag, message.envelope.route, _END)
        out += _frame_content(self.channel.number, message, self.channel.connection.frame_max)
        del out[-1]


def send_message(
    channel: Channel, method: int, before: tuple[object, ...], message: Message, after: tuple[object, ...] = ()
) -> None:
    """Send basic.get-ok, basic.return or basic.deliver of a direct reply, with the message.

    Args:
        channel: The channel.
        method: Index of the method.
        before: Method arguments before exchange and routing key.
        message: The message.
        after: Method arguments after exchange and routing key.
    """
    route, output = message.envelope.route, channel.output
    split = 1 + route[0]
    names = route[1:split], route[split + 1 :]
    output.send(encode_method(channel.number, method, *before, *names, *after))
    output.parts += _frame_content(channel.number, message, channel.connection.frame_max)
    output.sent(len(message.envelope.header) + len(message.body))


def _frame_content(channel: int, message: Message, frame_max: int) -> list[bytes]:
    """Return the header frame and body frames of a message; the last part is an end octet.

    Args:
        channel: Channel number.
        message: The message; its content header is one frame of any size, as in RabbitMQ.
        frame_max: Maximum size of a body frame in bytes, including the frame header and end.
    """
    header, body = message.envelope.header, message.body
    parts = [_FRAME_HEAD.pack(FRAME_HEADER, channel, len(header)), header, _END]
    largest = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), largest):
        chunk = body[start : start + largest]
        parts += (_FRAME_HEAD.pack(FRAME_BODY, channel, len(chunk)), chunk, _END)
    return parts
