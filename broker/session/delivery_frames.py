"""Frames of messages sent to clients: deliveries of queues and of streams, gets and returns."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from leveret.broker.session.shared_state import ChannelHost
from leveret.protocol.constants import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from leveret.protocol.header_scan import split_for_offset
from leveret.protocol.methods import INDEX, encode_method
from leveret.protocol.short_strings import encode_shortstr
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

_FRAME_HEAD: Final = struct.Struct(">BHI")
_NEXT_FRAME: Final = struct.Struct(">BBHI")
_METHOD_HEAD: Final = struct.Struct(">BHII")
_TAG: Final = struct.Struct(">Q")
_OFFSET: Final = struct.Struct(">q")
#: Each octet as bytes, to take the last one of a delivery tag from.
_OCTETS: Final = [bytes((octet,)) for octet in range(256)]
_END: Final = bytes((FRAME_END,))
_DELIVER: Final = INDEX["basic.deliver"]


class DeliveryFrames:
    """Builds the frames of the deliveries to one consumer.

    Args:
        frame_max: Maximum size of a body frame in bytes, including the frame header and end.
    """

    __slots__ = (
        "_after", "_before", "_before_body", "_before_header", "_body_size", "_envelope", "_first_lead", "_frame_max",
        "_header_size", "_high", "_lead", "_number", "_redelivered", "_route", "_tag",
    )  # fmt: skip

    def __init__(self, number: int, tag: str, frame_max: int) -> None:
        self._number = number
        self._tag = encode_shortstr(tag)
        self._frame_max = frame_max
        # What follows the delivery tag, up to the body; cached from the second message with the same envelope on.
        self._envelope: Envelope | None = None
        self._redelivered = False
        self._after = b""
        # What is around the content header; cached for messages with the same route and sizes.
        self._route = b""
        self._header_size = self._body_size = -1
        self._before_header = self._before_body = b""
        # What precedes the last octet of the delivery tag; cached while the other octets are those of this number.
        self._high = -1
        self._before = self._lead = self._first_lead = b""

    def append(self, out: list[bytes], entries: Sequence[Entry], first: int) -> int:
        """Append the frames of messages.

        Args:
            entries: The messages; at least one.
            first: Delivery tag of the first message.
        Returns:
            The delivery tag after the last message.
        """
        tag = first
        envelope, redelivered, after = self._envelope, self._redelivered, self._after
        largest = self._frame_max - FRAME_OVERHEAD
        for entry in entries:
            message = entry[1]
            if message.envelope is not envelope or entry[2] is not redelivered:
                self._prepare(message, entry[2])
                envelope, redelivered, after = message.envelope, entry[2], b""
            elif not after:
                after = b"".join((self._before_header, envelope.header, self._before_body))
            if tag >> 8 != self._high:
                self._prepare_leads(tag >> 8)
            lead = self._lead if tag > first else self._first_lead
            tag_end = _OCTETS[tag & 0xFF]
            if self._body_size > largest:
                self._append_in_chunks(out, lead, tag_end, message)
            elif after:
                out += (lead, tag_end, after, message.body)
            else:
                out += (lead, tag_end, self._before_header, envelope.header, self._before_body, message.body)
            tag += 1
        out.append(_END)
        self._envelope, self._redelivered, self._after = envelope, redelivered, after
        return tag

    def _prepare(self, message: Message, redelivered: bool) -> None:
        """Cache what is around the content header, unless it is as for the last message."""
        route, header_size, body_size = message.envelope.route, len(message.envelope.header), len(message.body)
        if (
            header_size == self._header_size
            and body_size == self._body_size
            and redelivered is self._redelivered
            and route == self._route
        ):
            return
        number = self._number
        self._envelope, self._after = None, b""
        self._route, self._header_size, self._body_size, self._redelivered = route, header_size, body_size, redelivered
        arguments_size = 4 + len(self._tag) + 9 + len(route)
        self._before = _METHOD_HEAD.pack(FRAME_METHOD, number, arguments_size, _DELIVER) + self._tag
        flag = b"\x01" if redelivered else b"\x00"
        self._before_header = flag + route + _NEXT_FRAME.pack(FRAME_END, FRAME_HEADER, number, header_size)
        # append() ends with the end octet of the last frame; without a body that is the header frame.
        self._before_body = _NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, body_size) if body_size else b""
        self._high = -1

    def _prepare_leads(self, high: int) -> None:
        """Cache what precedes the last octet of delivery tags."""
        self._high = high
        self._first_lead = self._before + high.to_bytes(7, "big")
        self._lead = _END + self._first_lead

    def _append_in_chunks(self, out: list[bytes], lead: bytes, tag_end: bytes, message: Message) -> None:
        """Append a message with several body frames, without the end octet of the last one."""
        flag = b"\x01" if self._redelivered else b"\x00"
        out += (lead, tag_end, flag, self._route, _END)
        out += _frame_content(self._number, message, self._frame_max)
        del out[-1]


class StreamFrames:
    """Builds the frames of the deliveries to one consumer of a stream: each message has its offset as a header.

    Args:
        frame_max: Maximum size of a body frame in bytes, including the frame header and end.
    """

    __slots__ = ("_after_offset", "_after_tag", "_before", "_envelope", "_largest", "_next", "_number", "_tag")

    def __init__(self, number: int, tag: str, frame_max: int) -> None:
        self._number = number
        self._tag = encode_shortstr(tag)
        self._largest = frame_max - FRAME_OVERHEAD
        # Frame parts before the delivery tag, between tag and offset, and between offset and body, cached for messages
        # with the same envelope.
        self._envelope: Envelope | None = None
        self._before = self._next = b""
        self._after_tag = self._after_offset = b""

    def append(self, out: list[bytes], entries: Sequence[Entry], first: int) -> int:
        """Append the frames of messages.

        Args:
            entries: The messages; at least one. The number of each is its offset plus 1.
            first: Delivery tag of the first message.
        Returns:
            The delivery tag after the last message.
        """
        tag, pack_tag, pack_offset = first, _TAG.pack, _OFFSET.pack
        envelope = self._envelope
        for entry in entries:
            message = entry[1]
            if message.envelope is not envelope:
                envelope = message.envelope
                self._prepare(message)
            lead = self._next if tag > first else self._before
            body = message.body
            out += (lead, pack_tag(tag), self._after_tag, pack_offset(entry[0] - 1), self._after_offset)
            if len(body) <= self._largest:
                out.append(body)
            else:
                _append_body_frames(out, self._number, body, self._largest)
            tag += 1
        out.append(_END)
        return tag

    def _prepare(self, message: Message) -> None:
        """Cache the frame parts for the envelope of a message."""
        envelope, number, size = message.envelope, self._number, len(message.body)
        self._envelope = envelope
        before, after = split_for_offset(envelope.header)
        method_size = 4 + len(self._tag) + 9 + len(envelope.route)
        self._before = _METHOD_HEAD.pack(FRAME_METHOD, number, method_size, _DELIVER) + self._tag
        self._next = _END + self._before
        header_size = len(before) + _OFFSET.size + len(after)
        header_head = _NEXT_FRAME.pack(FRAME_END, FRAME_HEADER, number, header_size)
        # append() ends with the end octet of the last frame; without a body that is the header frame.
        body_head = _NEXT_FRAME.pack(FRAME_END, FRAME_BODY, number, min(size, self._largest)) if size else b""
        # Never redelivered.
        self._after_tag = b"".join((b"\x00", envelope.route, header_head, before))
        self._after_offset = after + body_head


def _append_body_frames(out: list[bytes], number: int, body: bytes, largest: int) -> None:
    """Append a long body, without the head of its first frame and the end octet of its last one."""
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
        before: Method arguments before exchange and routing key.
        after: Method arguments after exchange and routing key.
    """
    route, output = message.envelope.route, host.output
    split = 1 + route[0]
    names = route[1:split], route[split + 1 :]
    output.send(encode_method(number, method, *before, *names, *after))
    output.parts += _frame_content(number, message, host.frame_max)
    output.sent(len(message.envelope.header) + len(message.body))


def _frame_content(channel: int, message: Message, frame_max: int) -> list[bytes]:
    """Return the header frame and body frames of a message; the last part is an end octet."""
    header, body = message.envelope.header, message.body
    parts = [_FRAME_HEAD.pack(FRAME_HEADER, channel, len(header)), header, _END]
    largest = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), largest):
        chunk = body[start : start + largest]
        parts += (_FRAME_HEAD.pack(FRAME_BODY, channel, len(chunk)), chunk, _END)
    return parts
