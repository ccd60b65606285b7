"""Sans-I/O parser: splits received bytes into frames, decodes methods and assembles contents, which become events.

A message with the same publish and content header as the one before costs one comparison and one slice, if its
frames are adjacent. Everything else is parsed frame by frame. Rule numbers in comments are those of the
conformance tests.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from leveret.protocol.constants import (
    BASIC_ACK,
    BASIC_PUBLISH,
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_SIZE,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_MIN_SIZE,
    FRAME_OVERHEAD,
    MESSAGE_SIZE_CAP,
)
from leveret.protocol.erlang_terms import format_binary, format_octets
from leveret.protocol.faults import AmqpFault, ConnectionFault, ReplyCode, WireFault, frame_error, unexpected_frame
from leveret.protocol.methods import INDEX, METHODS, Method, decode_arguments, has_valid_lengths


class MethodReceived:
    """A received method other than basic.publish.

    Args:
        method: Entry of the method catalogue.
        arguments: As decode_arguments returns them.
    """

    __slots__ = ("arguments", "channel", "method")

    def __init__(self, channel: int, method: Method, arguments: tuple[Any, ...]) -> None:
        self.channel = channel
        self.method = method
        self.arguments = arguments


class Publish:
    """Arguments of a basic.publish. All publishes of a connection with the same payload share one object.

    Args:
        exchange: Name of the exchange; bytes that are not UTF-8 are kept as surrogates.
        routing_key: Routing key, decoded in the same way.
        route: Exchange and routing key as the two encoded short strings.

    Attributes:
        memo: Cache for the handler of the event, for example of the route's exchange.
    """

    __slots__ = ("exchange", "immediate", "mandatory", "memo", "route", "routing_key")

    def __init__(self, exchange: str, routing_key: str, mandatory: bool, immediate: bool, route: bytes) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.immediate = immediate
        self.route = route
        self.memo: object | None = None


class PublishRun:
    """Consecutive messages of one channel with equal publish arguments and equal content headers.

    Args:
        header: Common content-header payload. Equal headers in a row are one object.
        bodies: Bodies in order, at least one. A body above the size limit is dropped: b"".
    """

    __slots__ = ("bodies", "channel", "header", "publish")

    def __init__(self, channel: int, publish: Publish, header: bytes, bodies: list[bytes]) -> None:
        self.channel = channel
        self.publish = publish
        self.header = header
        self.bodies = bodies


class VariedRun:
    """Consecutive messages of one channel with equal publish arguments and different content headers.

    Args:
        headers: Content-header payloads in order, at least two.
        bodies: Body of each message; none is empty.
    """

    __slots__ = ("bodies", "channel", "headers", "publish")

    def __init__(self, channel: int, publish: Publish, headers: list[bytes], bodies: list[bytes]) -> None:
        self.channel = channel
        self.publish = publish
        self.headers = headers
        self.bodies = bodies


class AckRun:
    """Consecutive basic.ack of one channel, each with multiple=false.

    Args:
        tags: Delivery tags in order, at least one.
    """

    __slots__ = ("channel", "tags")

    def __init__(self, channel: int, tags: list[int]) -> None:
        self.channel = channel
        self.tags = tags


Event: TypeAlias = MethodReceived | PublishRun | VariedRun | AckRun | AmqpFault | WireFault


_FRAME_HEAD: Final = struct.Struct(">BHI")
_CONTENT_HEAD: Final = struct.Struct(">HHQ")
_HEADER_LEAD: Final = struct.Struct(">IIQ")
_BODY_LEAD: Final = struct.Struct(">BBHI")
_ACK_TAG: Final = struct.Struct(">Q")
_ACK_FRAME_SIZE: Final = 21
_ACK_PAYLOAD_SIZE: Final = 13
#: Offsets in the frame of an ack: last octet of the method's index, delivery tag, and its last octet.
_ACK_INDEX_END_AT: Final = 10
_ACK_TAG_AT: Final = 11
_ACK_TAG_END_AT: Final = 18
_ACK_INDEX_END: Final = BASIC_ACK & 0xFF

#: Size of class, weight and body size: a shorter header payload is an unknown frame (rule 12.6).
_CONTENT_HEAD_SIZE: Final = 12

#: Distinct publish payloads cached per connection. Bounds the memory of a client that uses many routing keys:
#: 4,096 routes of 100 bytes are about 2 MB.
_PUBLISHES_CACHED: Final = 4096

#: Value of the prefixes below while no message, or ack, has been read.
_NO_PREFIX: Final = b""

#: The last message while none has been read; nothing is added to it.
_NO_RUN: Final = PublishRun(0, Publish("", "", False, False, b""), b"", [])

#: Methods by the first four octets of their payload.
_METHODS: Final = {index.to_bytes(4, "big"): method for index, method in METHODS.items()}

#: Methods with content that only servers send. From a client their content is still read.
_SERVER_CONTENT_METHODS: Final = frozenset(INDEX[name] for name in ("basic.return", "basic.deliver", "basic.get-ok"))


class ChannelFrames(Enum):
    """Handling of frames on channels other than 0."""

    #: Before connection.open: each frame is a fault.
    REFUSED = auto()
    READ = auto()
    #: After a close: frames are ignored.
    SKIPPED = auto()


#: Looked up once: to get a member of an enum costs as much as to parse a small frame.
_READ: Final = ChannelFrames.READ


class _PendingContent:
    """A method whose content has not been received completely.

    Args:
        method: Index of the method.
        publish: Its arguments if it is basic.publish, otherwise None.
    """

    __slots__ = ("body", "header", "keep", "method", "publish", "remaining")

    def __init__(self, method: int, publish: Publish | None) -> None:
        self.method = method
        self.publish = publish
        self.header: bytes | None = None
        self.remaining = 0
        self.keep = True
        # Not a list of parts: many small parts would take a multiple of the body's size.
        self.body = bytearray()


class FrameReader:
    """Parser of the byte stream of one connection.

    Call receive() with bytes from the peer, then events() until it returns an empty list.

    Args:
        max_message_size: Size in bytes above which bodies are dropped.

    Attributes:
        frame_max: Negotiated size in bytes of the largest frame, framing included.
        stepwise: True if events() returns one event at a time. The handshake needs this, as each event changes how
            the next one is parsed.
    """

    def __init__(self, max_message_size: int = MESSAGE_SIZE_CAP) -> None:
        self.frame_max = FRAME_MIN_SIZE
        self.stepwise = True
        self._max_message_size = max_message_size
        self._channel_frames = ChannelFrames.READ
        self._data = b""
        self._offset = 0
        self._discards_input = False
        self._contents: dict[int, _PendingContent] = {}
        self._publishes: dict[bytes, Publish] = {}
        #: Bytes of the last message up to its body: a message that repeats it begins with them.
        self._repeat_prefix = _NO_PREFIX
        #: Bytes of the last message up to the channel of its header frame: a message with the same publish begins so.
        self._publish_prefix = _NO_PREFIX
        self._last = _NO_RUN
        self._body_size = 0
        #: Bytes of the last ack up to its delivery tag: another one on this channel begins with them.
        self._ack_prefix = _NO_PREFIX

    def receive(self, octets: bytes) -> None:
        """Append bytes from the peer to the input."""
        if not self._discards_input:
            self._data = self._data[self._offset :] + octets if self._offset < len(self._data) else octets
            self._offset = 0

    def is_inside_content(self) -> bool:
        """Return whether a content header has been received without its whole body, on any channel."""
        return any(content.header is not None for content in self._contents.values())

    def set_channel_frames(self, handling: ChannelFrames) -> None:
        """Set how frames on channels other than 0 are handled from now on. Incomplete contents are dropped."""
        self._channel_frames = handling
        self._contents.clear()
        self._repeat_prefix = self._publish_prefix = self._ack_prefix = _NO_PREFIX

    def discard_input(self) -> None:
        """Discard buffered and future input."""
        self._discards_input = True
        self._data, self._offset = b"", 0
        self._contents.clear()

    def events(self) -> list[Event]:
        """Parse the buffered input and return its events; an empty list if more input is needed. Never raises.

        A fault is the last event of its list. Unless it discards input, the next call continues behind its frame.
        """
        events: list[Event] = []
        try:
            while self._read_next(events):
                if self.stepwise and events:
                    break
        except ConnectionFault as fault:
            events.append(fault)
            if fault.discards_input:
                self.discard_input()
        except WireFault as wire_fault:
            events.append(wire_fault)
            self.discard_input()
        return events

    def _read_next(self, events: list[Event]) -> bool:
        """Parse one run of messages, or one frame; return False if there is no complete one."""
        data, offset = self._data, self._offset
        if len(data) - offset < FRAME_HEAD_SIZE:
            return False
        if not self._contents:
            # Slices are compared, here and below: compiled, that takes a fifth of the time of startswith().
            if (
                len(data) - offset >= _ACK_FRAME_SIZE
                and data[offset + _ACK_INDEX_END_AT] == _ACK_INDEX_END
                and data[offset : offset + _ACK_TAG_AT] == self._ack_prefix
                and self._read_acks(events, offset)
            ):
                return True
            prefix = self._repeat_prefix
            if prefix and data[offset : offset + len(prefix)] == prefix and self._read_repeated(events):
                return True
            prefix = self._publish_prefix
            if prefix and data[offset : offset + len(prefix)] == prefix and self._read_varied(events):
                return True
        # Typed here and below, so that the compiled code computes with plain integers.
        head: tuple[int, int, int] = _FRAME_HEAD.unpack_from(data, offset)
        kind, channel, size = head
        if size > self.frame_max:
            # The limit is checked against the payload: RabbitMQ allows the 8 bytes of framing on top (rule 12.4).
            reason = f"{{frame_too_large,{size},{self.frame_max - FRAME_OVERHEAD}}}"
            raise _bad_frame(kind, b"", reason, discards_input=True)
        start = offset + FRAME_HEAD_SIZE
        end = start + size
        if end >= len(data):
            return False
        if data[end] != FRAME_END:
            raise _bad_frame(kind, data[start:end], f"{{invalid_frame_end_marker,{data[end]}}}", discards_input=True)
        self._offset = end + 1
        if channel and self._channel_frames is not _READ:
            if self._channel_frames is ChannelFrames.REFUSED:
                raise unexpected_frame(_describe(kind, data[start:end]))
        elif kind == FRAME_METHOD:
            self._read_method(events, channel, data[start:end])
        else:
            self._read_other(events, kind, channel, data[start:end])
        return True

    # -- methods ------------------------------------------------------------------------------------------

    def _read_method(self, events: list[Event], channel: int, payload: bytes) -> None:
        if len(payload) < 4:
            raise _bad_frame(FRAME_METHOD, payload, "unknown_frame")
        method = _METHODS.get(payload[:4])
        if method is None:
            index = int.from_bytes(payload[:4], "big")
            raise WireFault(f"unknown method {index >> 16}.{index & 0xFFFF}")
        index = method.index
        if channel in self._contents:
            # No method is allowed within a content (2.9, 2.11).
            raise _interrupted(self._contents.pop(channel))
        if channel == 0:
            events.append(MethodReceived(0, method, self._decode_for_connection(method, payload)))
        elif index == BASIC_PUBLISH:
            publish = self._publishes.get(payload) or self._decode_publish(payload)
            if not self._read_content_at_once(events, channel, publish, len(payload)):
                self._contents[channel] = _PendingContent(index, publish)
        elif index in _SERVER_CONTENT_METHODS:
            _check_lengths(method, payload)
            self._contents[channel] = _PendingContent(index, None)
        elif (
            index != BASIC_ACK
            or len(payload) != _ACK_PAYLOAD_SIZE
            or not self._read_acks(events, self._offset - _ACK_FRAME_SIZE)
        ):
            events.append(MethodReceived(channel, method, decode_arguments(method, payload[4:])))

    def _decode_for_connection(self, method: Method, payload: bytes) -> tuple[Any, ...]:
        """Decode the arguments of a method on channel 0, where RabbitMQ replies to errors differently.

        Raises:
            ConnectionFault: INTERNAL_ERROR (541) if they cannot be decoded; FRAME_ERROR (501) for text that is not
                UTF-8.
        """
        try:
            if method.index == BASIC_PUBLISH:
                self._decode_publish(payload)
                return ()
            if method.index in _SERVER_CONTENT_METHODS:
                _check_lengths(method, payload)
                return ()
            return decode_arguments(method, payload[4:])
        except WireFault:
            raise ConnectionFault(ReplyCode.INTERNAL_ERROR, method=0) from None
        except ConnectionFault as fault:
            if fault.method:
                raise ConnectionFault(ReplyCode.INTERNAL_ERROR, method=0) from None
            raise frame_error(fault.explanation, method.index) from None

    def _decode_publish(self, payload: bytes) -> Publish:
        """Decode and cache a publish payload. Names need not be UTF-8 here (0.15)."""
        exchange_end = 7 + payload[6] if len(payload) > 6 else 0
        key_end = exchange_end + 1 + payload[exchange_end] if exchange_end < len(payload) else 0
        if not exchange_end or key_end + 1 != len(payload):
            text = f"cannot decode {format_octets(payload[4:])}"
            raise frame_error(text, BASIC_PUBLISH)
        exchange = payload[7:exchange_end].decode("utf-8", "surrogateescape")
        routing_key = payload[exchange_end + 1 : key_end].decode("utf-8", "surrogateescape")
        flags = payload[key_end]
        publish = Publish(exchange, routing_key, bool(flags & 1), bool(flags & 2), payload[6:key_end])
        if len(self._publishes) >= _PUBLISHES_CACHED:
            self._publishes.clear()
        self._publishes[payload] = publish
        return publish

    def _read_acks(self, events: list[Event], offset: int) -> bool:
        """Parse acks with multiple=false of one channel whose delivery tags differ in the last octet only.

        Args:
            events: The event is appended to them.
            offset: Where the first one begins, which is complete.
        Returns:
            Whether the first one is such an ack.
        """
        data, last = self._data, len(self._data) - _ACK_FRAME_SIZE
        self._ack_prefix = data[offset : offset + _ACK_TAG_AT]
        start = data[offset : offset + _ACK_TAG_END_AT]
        high: int = _ACK_TAG.unpack_from(data, offset + _ACK_TAG_AT)[0] & ~0xFF
        tags: list[int] = []
        while not data[offset + _ACK_TAG_END_AT + 1] & 1 and data[offset + _ACK_FRAME_SIZE - 1] == FRAME_END:
            tags.append(high | data[offset + _ACK_TAG_END_AT])
            offset += _ACK_FRAME_SIZE
            if offset > last or data[offset : offset + _ACK_TAG_END_AT] != start:
                break
        if not tags:
            return False
        self._offset = offset
        events.append(AckRun(start[1] << 8 | start[2], tags))
        return True

    # -- contents -----------------------------------------------------------------------------------------

    def _read_repeated(self, events: list[Event]) -> bool:
        """Parse messages that differ from the last one in their bodies only, the first of which is the next input."""
        data, offset = self._data, self._offset
        prefix, size, end = self._repeat_prefix, self._body_size, len(self._data)
        skip = len(prefix)
        bodies: list[bytes] = []
        while True:
            start = offset + skip
            stop = start + size
            if stop >= end or data[stop] != FRAME_END:
                break
            bodies.append(data[start:stop])
            offset = stop + 1
            if data[offset : offset + skip] != prefix:
                break
        if not bodies:
            return False
        self._offset = offset
        last = self._last
        if events and events[-1] is last:
            last.bodies += bodies
        else:
            self._last = PublishRun(last.channel, last.publish, last.header, bodies)
            events.append(self._last)
        return True

    def _read_varied(self, events: list[Event]) -> bool:
        """Parse messages with the same publish as the last one, and different headers."""
        data, offset, end = self._data, self._offset, len(self._data)
        skip = len(self._publish_prefix) + _HEADER_LEAD.size
        header, last = self._last.header, offset
        headers: list[bytes] = []
        bodies: list[bytes] = []
        # Bytes up to the size of the body, and between header and body: messages of the same sizes have the same.
        lead = body_lead = _NO_PREFIX
        header_size = body_size = 0
        while True:
            if data[offset : offset + skip] != lead:
                header_size, body_size = self._read_sizes(offset)
                if not body_size:
                    break
                lead = data[offset : offset + skip]
                body_lead = _BODY_LEAD.pack(FRAME_END, FRAME_BODY, self._last.channel, body_size)
            header_end = offset + skip - _CONTENT_HEAD_SIZE + header_size
            body_at = header_end + FRAME_OVERHEAD
            body_end = body_at + body_size
            if body_end >= end or data[header_end:body_at] != body_lead or data[body_end] != FRAME_END:
                break
            next_header = data[header_end - header_size : header_end]
            if next_header == header:
                # _read_repeated() is faster.
                break
            header = next_header
            headers.append(header)
            bodies.append(data[body_at:body_end])
            last, offset = offset, body_end + 1
            if self.stepwise:
                break
        if not headers:
            return False
        self._body_size = len(bodies[-1])
        self._repeat_prefix = data[last : offset - self._body_size - 1]
        self._offset = offset
        self._emit_varied(events, self._last.channel, headers, bodies)
        return True

    def _read_sizes(self, offset: int) -> tuple[int, int]:
        """Return the sizes of header and body of a message with the same publish as the last one.

        Args:
            offset: Where it begins.
        Returns:
            (0, 0) if another frame begins there, if the sizes have not been received, or if the message must be parsed
            frame by frame.
        """
        data, common = self._data, self._publish_prefix
        sizes_at = offset + len(common)
        if data[offset:sizes_at] != common or sizes_at + _HEADER_LEAD.size > len(data):
            return 0, 0
        sizes: tuple[int, int, int] = _HEADER_LEAD.unpack_from(data, sizes_at)
        header_size, class_and_weight, body_size = sizes
        if (
            class_and_weight != CLASS_BASIC << 16
            or not _CONTENT_HEAD_SIZE + 2 <= header_size <= self.frame_max
            or not 0 < body_size <= min(self.frame_max - FRAME_OVERHEAD, self._max_message_size)
        ):
            return 0, 0
        return header_size, body_size

    def _emit_varied(self, events: list[Event], channel: int, headers: list[bytes], bodies: list[bytes]) -> None:
        """Append the event of messages with the same publish as the last one."""
        publish = self._last.publish
        if len(headers) == 1:
            self._last = PublishRun(channel, publish, headers[0], bodies)
            events.append(self._last)
        else:
            events.append(VariedRun(channel, publish, headers, bodies))
            # The next message is compared with the last one of the run.
            self._last = PublishRun(channel, publish, headers[-1], [])

    def _read_content_at_once(self, events: list[Event], channel: int, publish: Publish, size: int) -> bool:
        """Parse header and body behind a publish, if both are complete, one frame each, and on its channel."""
        data, offset = self._data, self._offset
        end = len(data)
        start = offset + FRAME_HEAD_SIZE
        if end < start + _CONTENT_HEAD_SIZE:
            return False
        head: tuple[int, int, int] = _FRAME_HEAD.unpack_from(data, offset)
        kind, header_channel, header_size = head
        header_end = start + header_size
        body_at = header_end + 1 + FRAME_HEAD_SIZE
        if kind != FRAME_HEADER or header_channel != channel or header_size < 14 or end < body_at:
            return False
        head = _CONTENT_HEAD.unpack_from(data, start)
        class_id, weight, body_size = head
        body_end = body_at + body_size
        largest = min(self.frame_max - FRAME_OVERHEAD, self._max_message_size)
        # An empty body has no body frame, so a body frame behind it is a fault.
        if body_end >= end or not 0 < body_size <= largest:
            return False
        head = _FRAME_HEAD.unpack_from(data, header_end + 1)
        kind, body_channel, frame_size = head
        if (
            class_id != CLASS_BASIC
            or weight
            or kind != FRAME_BODY
            or body_channel != channel
            or frame_size != body_size
            or header_size > self.frame_max
            or data[header_end] != FRAME_END
            or data[body_end] != FRAME_END
        ):
            return False
        self._offset = body_end + 1
        self._emit(events, channel, publish, data[start:header_end], data[body_at:body_end])
        self._repeat_prefix = data[offset - size - FRAME_OVERHEAD : body_at]
        self._publish_prefix = data[offset - size - FRAME_OVERHEAD : offset + 3]
        self._body_size = body_size
        return True

    def _complete(self, events: list[Event], channel: int, content: _PendingContent, header: bytes) -> None:
        """Append the event of a content that was received frame by frame."""
        del self._contents[channel]
        if content.publish is None:
            # Its arguments are not used, so they are not decoded.
            events.append(MethodReceived(channel, METHODS[content.method], ()))
        else:
            self._emit(events, channel, content.publish, header, bytes(content.body))

    def _emit(self, events: list[Event], channel: int, publish: Publish, header: bytes, body: bytes) -> None:
        last = self._last
        if header == last.header:
            header = last.header
            if publish is last.publish and channel == last.channel and events and events[-1] is last:
                last.bodies.append(body)
                return
        self._last = PublishRun(channel, publish, header, [body])
        # The prefixes belonged to the previous run.
        self._repeat_prefix = self._publish_prefix = _NO_PREFIX
        events.append(self._last)

    # -- other frames -------------------------------------------------------------------------------------

    def _read_other(self, events: list[Event], kind: int, channel: int, payload: bytes) -> None:
        if kind == FRAME_HEADER and len(payload) >= _CONTENT_HEAD_SIZE:
            if channel == 0:
                raise unexpected_frame(_describe(kind, payload))
            self._read_header(events, channel, payload)
        elif kind == FRAME_BODY:
            if channel == 0:
                raise unexpected_frame(_describe(kind, payload))
            self._read_body(events, channel, payload)
        elif kind == FRAME_HEARTBEAT and not payload:
            if channel != 0:
                raise unexpected_frame(_describe(kind, payload))
        else:
            raise _bad_frame(kind, payload, "unknown_frame")

    def _read_header(self, events: list[Event], channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None:
            raise unexpected_frame("expected method frame, got non method frame instead")
        class_id, weight, body_size = _CONTENT_HEAD.unpack_from(payload)
        if content.header is not None or weight:
            del self._contents[channel]
            raise _interrupted(content)
        if class_id != CLASS_BASIC:
            del self._contents[channel]
            text = f"expected content header for class 60, got one for class {class_id} instead"
            raise unexpected_frame(text, content.method)
        if body_size > MESSAGE_SIZE_CAP:
            del self._contents[channel]
            # As in releases after 3.10.8 (rule 12.30), which buffers a body of any announced size.
            text = f"content body size {body_size} exceeds maximum allowed size {MESSAGE_SIZE_CAP}"
            raise frame_error(text, content.method)
        if body_size == 0:
            self._complete(events, channel, content, payload)
            return
        content.header = payload
        content.remaining = body_size
        content.keep = body_size <= self._max_message_size

    def _read_body(self, events: list[Event], channel: int, payload: bytes) -> None:
        content = self._contents.get(channel)
        if content is None:
            raise unexpected_frame("expected method frame, got non method frame instead")
        if content.header is None:
            del self._contents[channel]
            raise _interrupted(content)
        content.remaining -= len(payload)
        if content.remaining < 0:
            # As in releases after 3.10.8 (rule 12.14), which takes the excess as part of the body.
            del self._contents[channel]
            raise frame_error("content body frame exceeds remaining content size", content.method)
        if content.keep:
            content.body += payload
        if content.remaining == 0:
            self._complete(events, channel, content, content.header)


def _check_lengths(method: Method, payload: bytes) -> None:
    """Refuse arguments that are too short or too long, without decoding strings and tables."""
    if not has_valid_lengths(method, payload[4:]):
        raise frame_error(f"cannot decode {format_octets(payload[4:])}", method.index)


def _interrupted(content: _PendingContent) -> ConnectionFault:
    """Return the fault for an unexpected frame within a content (2.9, 2.11)."""
    if content.header is None:
        text = "expected content header for class 60, got non content header frame instead"
    else:
        text = "expected content body, got non content body frame instead"
    return unexpected_frame(text, content.method)


def _describe(kind: int, payload: bytes) -> str:
    which = "all" if len(payload) <= 16 else "first 16"
    return f"type {kind}, {which} octets = {format_binary(payload[:16])}"


def _bad_frame(kind: int, payload: bytes, reason: str, *, discards_input: bool = False) -> ConnectionFault:
    return frame_error(f"{_describe(kind, payload)}: {reason}", discards_input=discards_input)
