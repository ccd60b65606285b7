"""Publishes messages with confirms, many of them at a time, and says which ones no queue has taken."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from leveret.analytics.sink.connection import (
    ACK,
    CONFIRM_SELECT,
    CONFIRM_SELECT_OK,
    NACK,
    PUBLISH,
    RETURN,
    Connection,
    Frame,
    SinkError,
    content_frames,
    method_frame,
)
from leveret.protocol.constants import FRAME_BODY, FRAME_HEADER

#: Messages, and bytes of them, that are not confirmed yet at most; what is collected before it is sent.
_WINDOW: Final = 2048
_WINDOW_BYTES: Final = 8 << 20
_SEND_BYTES: Final = 1 << 17
_MANDATORY: Final = b"\x01"
_TAG: Final = struct.Struct(">QB")
_SIZE: Final = struct.Struct(">Q")

#: Why a message was not taken: a queue was full, there was no queue, or the row does not make one (see rows.py).
Failure: TypeAlias = Literal["refused", "unroutable", "invalid"]


class Encoded(NamedTuple):
    """A message as it is sent.

    Attributes:
        routing_key: Its routing key as an encoded short string.
        header: The payload of its content header.
        body: Its body.
    """

    routing_key: bytes
    header: bytes
    body: bytes


class Publisher:
    """Publishes to one exchange.

    A message that no queue gets is returned before its confirm, without the number of the confirm. So it is the first
    one that is the same; of two messages that are the same, it does not matter which.

    Args:
        connection: The connection.
        exchange: The exchange as an encoded short string.
        on_failure: Called with the number that the caller has given a message, if it was not taken.
    """

    def __init__(self, connection: Connection, exchange: bytes, on_failure: Callable[[int, Failure], None]) -> None:
        self._connection = connection
        self._exchange = exchange
        self._on_failure = on_failure
        self._out = bytearray()
        self._next_tag = 1
        self._unconfirmed: dict[int, tuple[int, Encoded]] = {}
        self._unconfirmed_bytes = 0
        self._returned: set[int] = set()
        #: The number behind that of the last message that has come back.
        self._after_returned = 1
        self._returning: _Returning | None = None
        connection.call(1, CONFIRM_SELECT, bytes(1), CONFIRM_SELECT_OK)

    def publish(self, number: int, message: Encoded) -> None:
        """Publish a message, as soon as there is room for it.

        Args:
            number: The caller's number of the message.
            message: The message.
        Raises:
            SinkError: The broker refuses it in a way that ends the connection, or does not confirm in time.
        """
        while len(self._unconfirmed) >= _WINDOW or self._unconfirmed_bytes >= _WINDOW_BYTES:
            self._flush()
            self._read()
        route = bytes(2) + self._exchange + message.routing_key + _MANDATORY
        self._out += method_frame(1, PUBLISH, route)
        self._out += content_frames(message.header, message.body, self._connection.frame_max)
        self._unconfirmed[self._next_tag] = number, message
        self._unconfirmed_bytes += len(message.body) + len(message.header)
        self._next_tag += 1
        if len(self._out) >= _SEND_BYTES:
            self._flush()

    def oldest(self, default: int) -> int:
        """Return the number of the oldest message that is not confirmed.

        Args:
            default: Returned if all are.
        """
        return next(iter(self._unconfirmed.values()), (default,))[0]

    def finish(self) -> None:
        """Wait until all messages are confirmed. Raises as publish() does."""
        self._flush()
        while self._unconfirmed:
            self._read()

    def _flush(self) -> None:
        if self._out:
            out, self._out = self._out, bytearray()
            self._connection.send(out)

    def _read(self) -> None:
        for frame in self._connection.frames():
            method = frame.method
            if method in (ACK, NACK):
                tag, bits = _TAG.unpack_from(frame.payload, 4)
                self._settle(tag, bool(bits & 1), method == NACK)
            elif method == RETURN:
                self._returning = _Returning(frame.payload)
            elif self._returning is not None and self._returning.add(frame):
                self._note_returned(self._returning)
                self._returning = None

    def _settle(self, tag: int, multiple: bool, is_nack: bool) -> None:
        # Tags are in the order of the messages, as the dictionary is.
        tags = [tag]
        if multiple:
            tags = []
            for each in self._unconfirmed:
                if each > tag > 0:
                    break
                tags.append(each)
        for each in tags:
            number, message = self._unconfirmed.pop(each)
            self._unconfirmed_bytes -= len(message.body) + len(message.header)
            if is_nack:
                self._on_failure(number, "refused")
            elif each in self._returned:
                self._on_failure(number, "unroutable")
            self._returned.discard(each)

    def _note_returned(self, returned: _Returning) -> None:
        # They come back in the order in which they were published.
        later = range(self._after_returned, self._next_tag)
        tag = self._find(returned.is_same, later) or self._find(returned.is_same, self._unconfirmed)
        # A broker removes the header BCC.
        tag = tag or self._find(returned.is_alike, self._unconfirmed)
        if not tag:
            raise SinkError("the broker has returned a message that was not published")
        self._returned.add(tag)
        self._after_returned = tag + 1

    def _find(self, is_it: Callable[[Encoded], bool], tags: Iterable[int]) -> int:
        """Return the first message that has not come back yet and fulfils a condition; 0 if there is none."""
        for tag in tags:
            if tag in self._unconfirmed and tag not in self._returned and is_it(self._unconfirmed[tag][1]):
                return tag
        return 0


class _Returning:
    """A message that comes back, frame by frame.

    Args:
        payload: Payload of basic.return.
    """

    def __init__(self, payload: bytes) -> None:
        # Behind the method: reply code, reply text, exchange, routing key.
        at = 6
        for _ in range(2):
            at += 1 + payload[at]
        self._routing_key = payload[at : at + 1 + payload[at]]
        self._header = b""
        self._body = bytearray()

    def add(self, frame: Frame) -> bool:
        """Add a frame; return whether the message is complete."""
        if frame.kind == FRAME_HEADER:
            self._header = frame.payload
        elif frame.kind == FRAME_BODY:
            self._body += frame.payload
        return len(self._body) >= int(_SIZE.unpack_from(self._header, 4)[0])

    def is_same(self, message: Encoded) -> bool:
        """Return whether it is this message."""
        return message.header == self._header and self.is_alike(message)

    def is_alike(self, message: Encoded) -> bool:
        """Return whether a message has this routing key and body."""
        return message.routing_key == self._routing_key and message.body == self._body
