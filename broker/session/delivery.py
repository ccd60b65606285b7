"""Frames of messages sent to clients: deliveries, gets and returns."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from leveret.broker.session.channel_host import ChannelHost
from leveret.protocol.constants import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

_FRAME_HEAD: Final = struct.Struct(">BHI")
_NEXT_FRAME: Final = struct.Struct(">BBHI")
_METHOD_HEAD: Final = struct.Struct(">BHII")
_TAG: Final = struct.Struct(">Q")
_END: Final = bytes((FRAME_END,))
_DELIVER: Final = INDEX["basic.deliver"]


class DeliveryFrames:
    """Builds the frames of the deliveries to one consumer.

    Args:
        number: Channel number.
        tag: The consumer tag.
        frame_max: Maximum size of a body frame in bytes, including the frame header and end.
    """

    __slots__ = (
        "_after",
        "_before",
        "_envelope",
        "_frame_max",
        "_heads",
        "_next",
        "_number",
        "_redelivered",
        "_shape",
        "_tag",
    )

    def __init__(self, number: int, tag: str, frame_max: int) -> None:
        self._number = number
        self._tag = encode_shortstr(tag)
        self._frame_max = frame_max
        # Frame parts before and after the delivery tag, cached for messages with the same envelope.
        self._envelope: Envelope | None = None
        self._redelivered = False
        self._before = self._next = b""
        self._after = b""
        # Frame headers of content header and body, cached for the same lengths of route, header and body.
        self._shape = (-1, 0, 0)
        self._heads = (b"", b"")

    def append(self, out: list[bytes], entries: Sequence[Entry], first: int) -> int:
        """Append the frames of messages.

        Args:
            out: The output.
            entries: The messages; at least one.
            first: Delivery tag of the first message.
        Returns:
            The delivery tag after the last message.
        """
        tag = first
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
                self._append_in_chunks(out, lead, pack(tag), message, redelivered)
            tag += 1
            if tag == first + 1:
                lead = self._next
        out.append(_END)
        return tag

    def _prepare(self, message: Message, redelivered: bool) -> None:
        """Cache the frame parts before and after the delivery tag for the envelope of a message."""
        envelope = message.envelope
        shape = len(envelope.route), len(envelope.header), len(message.body)
        if shape != self._shape:
            self._shape = shape
            self._prepare_heads(*shape)
        self._envelope, self._redelivered = envelope, redelivered
        if shape[2] <= self._frame_max - FRAME_OVERHEAD:
            flag = b"\x01" if redelivered else b"\x00"
            header_head, body_head = self._heads
            self._after = b"".join((flag, envelope.route, header_head, envelope.header, body_head))
        else:
            self._after = b""

    def _prepare_heads(self, route_len: int, header_len: int, body_len: int) -> None:
        """Cache the frame headers for messages with these lengths."""
        number, tag = self._number, self._tag
        size = 4 + len(tag) + 9 + route_len
        self._before = _METHOD_HEAD.pack(FRAME_METHOD, number, size, _DELIVER) + tag
        self._next = _END + self._before
        # append() ends with the end octet of the last frame; without a body that is the header frame.
        body_head = _NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, body_len) if body_len else b""
        self._heads = _NEXT_FRAME.pack(FRAME_END, FRAME_HEADER, number, header_len), body_head

    def _append_in_chunks(self, out: list[bytes], lead: bytes, tag: bytes, message: Message, redelivered: bool) -> None:
        """Append a message with several body frames, without the end octet of the last one."""
        flag = b"\x01" if redelivered else b"\x00"
        out += (lead, tag, flag, message.envelope.route, _END)
        out += _frame_content(self._number, message, self._frame_max)
        del out[-1]


def append_body_frames(out: list[bytes], number: int, body: bytes, largest: int) -> None:
    """Append a long body, without the head of its first frame and the end octet of its last one.

    Args:
        out: The output.
        number: Channel number.
        body: The body.
        largest: Maximum number of its bytes in a frame.
    """
    out.append(body[:largest])
    for start in range(largest, len(body), largest):
        chunk = body[start : start + largest]
        out += (_NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, len(chunk)), chunk)


def send_message(
    host: ChannelHost,
    number: int,
    method: int,
    before: tuple[object, ...],
    message: Message,
    after: tuple[object, ...] = (),
) -> None:
    """Send basic.get-ok, basic.return or basic.deliver of a direct reply, with the message.

    Args:
        host: What the channels of the connection share.
        number: Channel number.
        method: Index of the method.
        before: Method arguments before exchange and routing key.
        message: The message.
        after: Method arguments after exchange and routing key.
    """
    route, output = message.envelope.route, host.output
    split = 1 + route[0]
    names = route[1:split], route[split + 1 :]
    output.send(encode_method(number, method, *before, *names, *after))
    output.parts += _frame_content(number, message, host.frame_max)
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
