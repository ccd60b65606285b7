"""A blocking AMQP connection with one channel, for publishing. Spark's workers need no AMQP library for it.

Spec: AMQP 0-9-1; https://www.rabbitmq.com/docs/confirms, https://www.rabbitmq.com/docs/connection-blocked
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress
from typing import Final, NamedTuple

from leveret.analytics.errors import AnalyticsError
from leveret.analytics.sink.options import Server
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
        server: The broker.
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
        """Handle a frame that may come at any time; return whether it was one.

        Raises:
            SinkError: The broker closes the channel or connection.
        """
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
