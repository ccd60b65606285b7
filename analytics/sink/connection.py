"""Publishes messages with confirms, many of them at a time, and says which ones no queue has taken."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Literal, NamedTuple, TypeAlias

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.sink.sink_options import Server
from leveret.protocol.constants import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEAD_SIZE,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    PROTOCOL_HEADER,
)
from leveret.protocol.field_table import FieldTable, FieldValue, encode_table, longstr
from leveret.protocol.short_strings import encode_shortstr

# class-id << 16 | method-id
START: Final = 0x000A000A
START_OK: Final = 0x000A000B
TUNE: Final = 0x000A001E
TUNE_OK: Final = 0x000A001F
OPEN: Final = 0x000A0028
OPEN_OK: Final = 0x000A0029
CLOSE: Final = 0x000A0032
CLOSE_OK: Final = 0x000A0033
BLOCKED: Final = 0x000A003C
UNBLOCKED: Final = 0x000A003D
CHANNEL_OPEN: Final = 0x0014000A
CHANNEL_OPEN_OK: Final = 0x0014000B
CHANNEL_CLOSE: Final = 0x00140028
EXCHANGE_DECLARE: Final = 0x0028000A
EXCHANGE_DECLARE_OK: Final = 0x0028000B
CONFIRM_SELECT: Final = 0x0055000A
CONFIRM_SELECT_OK: Final = 0x0055000B
PUBLISH: Final = 0x003C0028
RETURN: Final = 0x003C0032
ACK: Final = 0x003C0050
NACK: Final = 0x003C0078
_HEAD: Final = struct.Struct(">BHI")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_TUNE: Final = struct.Struct(">HIH")
_END: Final = bytes((FRAME_END,))
_FRAME_MAX: Final = 131_072
_READ: Final = 65_536
_CAPABILITIES: Final = ("authentication_failure_close", "basic.nack", "connection.blocked", "publisher_confirms")
_PROPERTIES: Final[FieldTable] = (
    ("product", longstr("leveret-analytics")),
    ("capabilities", FieldValue("F", tuple((name, FieldValue("t", True)) for name in _CAPABILITIES))),
)


class SinkError(AnalyticsError):
    """Messages cannot be published; the text has the reason."""


class Frame(NamedTuple):
    """A frame.

    Attributes:
        kind: FRAME_METHOD, FRAME_HEADER or FRAME_BODY.
        payload: Its payload.
    """

    kind: int
    payload: bytes

    @property
    def method(self) -> int:
        """Number of the method, class-id << 16 | method-id; 0 for another kind of frame."""
        return int(_U32.unpack_from(self.payload)[0]) if self.kind == FRAME_METHOD else 0


class Connection:
    """A connection with channel 1 open.

    Args:
        timeout: Seconds to wait for it at most, each time.

    Attributes:
        frame_max: Maximum size of a frame in bytes.
    Raises:
        SinkError: The broker does not answer, or refuses the connection.
    """

    def __init__(self, server: Server, timeout: float) -> None:
        self._server = server
        self._timeout = timeout
        self._received = bytearray()
        self._blocked = ""
        self.frame_max = _FRAME_MAX
        self._socket = self._connect()
        try:
            self._open()
        except BaseException:
            self._socket.close()
            raise

    def call(self, channel: int, method: int, arguments: bytes, answer: int) -> bytes:
        """Send a method, and return the arguments of its answer.

        Raises:
            SinkError: The broker closes the channel or connection, or does not answer.
        """
        self.send(method_frame(channel, method, arguments))
        return self._expect(answer)

    def send(self, octets: bytes | bytearray) -> None:
        """Send bytes.

        Raises:
            SinkError: The broker does not take them, or has closed the connection.
        """
        try:
            self._socket.sendall(octets)
        except TimeoutError:
            raise self._late("taken nothing") from None
        except OSError as error:
            # What the broker has said before it closed the connection tells more.
            with suppress(OSError):
                self.frames()
            raise SinkError(f"the connection to {self._server!r} was lost: {error}") from error

    def frames(self) -> list[Frame]:
        """Wait for frames, and return those that have come; there may be none.

        Raises:
            SinkError: The broker closes the channel or connection, or sends nothing.
        """
        try:
            octets = self._socket.recv(_READ)
        except TimeoutError:
            raise self._late("confirmed nothing") from None
        except OSError as error:
            raise SinkError(f"the connection to {self._server!r} was lost: {error}") from error
        if not octets:
            raise SinkError(f"{self._server!r} has closed the connection")
        received = self._received
        received += octets
        found: list[Frame] = []
        at = 0
        while len(received) - at >= FRAME_OVERHEAD:
            kind, _, size = _HEAD.unpack_from(received, at)
            end = at + size + FRAME_OVERHEAD
            if len(received) < end:
                break
            frame = Frame(kind, bytes(received[at + FRAME_HEAD_SIZE : end - 1]))
            at = end
            if kind != FRAME_HEARTBEAT and not self._is_handled(frame):
                found.append(frame)
        del received[:at]
        return found

    def close(self) -> None:
        """Close the connection; errors do not matter any more."""
        try:
            self._socket.settimeout(5)
            arguments = _U16.pack(200) + encode_shortstr("bye") + bytes(4)
            self.call(0, CLOSE, arguments, CLOSE_OK)
        except (SinkError, OSError):
            pass
        finally:
            self._socket.close()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _connect(self) -> socket.socket:
        server = self._server
        try:
            plain = socket.create_connection((server.host, server.port), self._timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if not server.tls:
                return plain
            try:
                context = ssl.create_default_context(cafile=server.ca_file or None)
                return context.wrap_socket(plain, server_hostname=server.host)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            raise SinkError(f"cannot connect to {server!r}: {error}") from error

    def _open(self) -> None:
        server = self._server
        self.send(PROTOCOL_HEADER)
        self._expect(START)
        table = encode_table(_PROPERTIES)
        response = b"\0".join((b"", server.user.encode(), server.password.encode()))
        arguments = _U32.pack(len(table)) + table + encode_shortstr("PLAIN")
        arguments += _U32.pack(len(response)) + response + encode_shortstr("en_US")
        channel_max, frame_max, _ = _TUNE.unpack(self.call(0, START_OK, arguments, TUNE))
        self.frame_max = min(frame_max or _FRAME_MAX, _FRAME_MAX)
        # Without heartbeats: rows may be a long time coming.
        self.send(method_frame(0, TUNE_OK, _TUNE.pack(channel_max, self.frame_max, 0)))
        self.call(0, OPEN, encode_shortstr(server.vhost) + bytes(2), OPEN_OK)
        self.call(1, CHANNEL_OPEN, bytes(1), CHANNEL_OPEN_OK)

    def _expect(self, method: int) -> bytes:
        while True:
            for frame in self.frames():
                if frame.method == method:
                    return frame.payload[4:]

    def _is_handled(self, frame: Frame) -> bool:
        """Handle a frame that may come at any time; return whether it was one."""
        method = frame.method
        if method in (CLOSE, CHANNEL_CLOSE):
            code, size = _U16.unpack_from(frame.payload, 4)[0], frame.payload[6]
            text = frame.payload[7 : 7 + size].decode("utf-8", "replace")
            raise SinkError(f"{self._server!r} refuses: {code} {text}")
        if method == BLOCKED:
            self._blocked = frame.payload[5:].decode("utf-8", "replace")
        elif method == UNBLOCKED:
            self._blocked = ""
        else:
            return False
        return True

    def _late(self, what: str) -> SinkError:
        why = f", because it blocks publishers: {self._blocked}" if self._blocked else ""
        return SinkError(f"{self._server!r} has {what} for {self._timeout:g} s{why}")


def method_frame(channel: int, method: int, arguments: bytes) -> bytes:
    """Return a method frame."""
    return _HEAD.pack(FRAME_METHOD, channel, len(arguments) + 4) + _U32.pack(method) + arguments + _END


def content_frames(header: bytes, body: bytes, frame_max: int) -> bytes:
    """Return the frames of a content header and a body, on channel 1."""
    frames = _HEAD.pack(FRAME_HEADER, 1, len(header)) + header + _END
    most = frame_max - FRAME_OVERHEAD
    if len(body) <= most:
        return frames + _HEAD.pack(FRAME_BODY, 1, len(body)) + body + _END if body else frames
    parts = [body[at : at + most] for at in range(0, len(body), most)]
    return frames + b"".join([_HEAD.pack(FRAME_BODY, 1, len(part)) + part + _END for part in parts])


def require_exchange(connection: Connection, name: str) -> None:
    """Check that an exchange exists.

    Raises:
        SinkError: It does not, or the user may not see it.
    """
    if name:
        passive = bytes(2) + encode_shortstr(name) + encode_shortstr("") + bytes((1,)) + bytes(4)
        connection.call(1, EXCHANGE_DECLARE, passive, EXCHANGE_DECLARE_OK)


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
        """Return the number of the oldest message that is not confirmed."""
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
    """A message that comes back, frame by frame."""

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
