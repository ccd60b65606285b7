"""Consumers of streams, and the frames of what they get: each message has its offset as a header."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from leveret.broker.core.queues.queue import Queue
from leveret.broker.session.channel import Channel, ChannelConsumer
from leveret.broker.session.delivery import append_body_frames
from leveret.protocol.constants import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_METHOD, FRAME_OVERHEAD
from leveret.protocol.field_table import FieldTable
from leveret.protocol.methods import INDEX
from leveret.protocol.short_strings import encode_shortstr
from leveret.protocol.stream_headers import split_for_offset
from leveret.storage.interface import Entry
from leveret.storage.message import Envelope, Message

_NEXT_FRAME: Final = struct.Struct(">BBHI")
_METHOD_HEAD: Final = struct.Struct(">BHII")
_TAG: Final = struct.Struct(">Q")
_OFFSET: Final = struct.Struct(">q")
_END: Final = bytes((FRAME_END,))
_DELIVER: Final = INDEX["basic.deliver"]
#: Approximate size of frame headers, method and content header of a delivery, in bytes.
_DELIVERY_OVERHEAD: Final = 130
#: Stands for all unacknowledged messages of streams: they are not needed any more.
_NO_MESSAGE: Final = Message(Envelope(b"\x00\x00", b""), b"")


class StreamFrames:
    """Builds the frames of the deliveries to one consumer of a stream.

    Args:
        number: Channel number.
        tag: The consumer tag.
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
            out: The output.
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
                append_body_frames(out, self._number, body, self._largest)
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


class ChannelStreamConsumer(ChannelConsumer):
    """A consumer of a stream on a channel.

    Args:
        channel: The channel.
        queue: The stream.
        tag: The consumer tag.
        exclusive: The exclusive bit, which has no effect.
        prefetch: Maximum number of unacked messages, 1 or more.
        arguments: Arguments of basic.consume.
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
        output.sent(body_bytes + len(entries) * _DELIVERY_OVERHEAD)
        if channel.tracer is not None:
            channel.tracer.delivered(channel.origin, self.queue.name, entries)
