"""`Wire`: a TCP connection to a broker with full control of the bytes."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pamqp import commands

from tests.support import methods

PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
DEFAULT_TIMEOUT = 60.0


class ConnectionDropped(Exception):
    """The broker closed the TCP connection where something else was expected."""


@dataclass(frozen=True)
class Frame:
    """A frame as received."""

    type: int
    channel: int
    payload: bytes


@dataclass(frozen=True)
class Address:
    """The parts of an AMQP URL."""

    host: str
    port: int
    user: str
    password: str
    vhost: str


def parse_url(url: str) -> Address:
    """Split `amqp://user:password@host:port/vhost` or `amqps://…`, percent-decoded; an absent path is vhost `/`."""
    parts = urlsplit(url)
    return Address(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or (5671 if parts.scheme == "amqps" else 5672),
        user=unquote(parts.username or "guest"),
        password=unquote(parts.password or "guest"),
        vhost=unquote(parts.path[1:]) if parts.path else "/",
    )


def frame(frame_type: int, channel: int, payload: bytes, *, end: int = 0xCE, size: int | None = None) -> bytes:
    """Encode a frame."""
    claimed = len(payload) if size is None else size
    return struct.pack(">BHI", frame_type, channel, claimed) + payload + bytes([end])


def method_frame(channel: int, kind: methods.MethodType, **arguments: Any) -> bytes:
    """Encode a method frame by pamqp's class and argument names."""
    return frame(METHOD, channel, methods.payload(kind, **arguments))


class Wire:
    """A blocking socket that sends raw bytes and reads complete frames within a deadline."""

    def __init__(self, sock: socket.socket, timeout: float = DEFAULT_TIMEOUT) -> None:
        self.socket = sock
        self.timeout = timeout
        self.last_sent = time.monotonic()
        self._buffer = bytearray()
        self._gathered: list[bytes] | None = None

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    def abort(self) -> None:
        """Drop the TCP connection without connection.close."""
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        """Send bytes unchanged. If the peer has disconnected, the next read fails, not this call."""
        if self._gathered is not None:
            self._gathered.append(data)
            return
        self.last_sent = time.monotonic()
        self.socket.settimeout(self.timeout)
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Collect everything sent inside the block, and send it in one write at the end."""
        self._gathered = []
        yield
        gathered, self._gathered = self._gathered, None
        self.send_bytes(b"".join(gathered))

    def send_frame(self, frame_type: int, channel: int, payload: bytes, *, end: int = 0xCE) -> None:
        """Send one frame of any type and payload."""
        self.send_bytes(frame(frame_type, channel, payload, end=end))

    def send_method(self, channel: int, kind: methods.MethodType, **arguments: Any) -> None:
        """Send a method by pamqp's class and argument names (see `methods.arguments`)."""
        self.send_frame(METHOD, channel, methods.payload(kind, **arguments))

    def send_raw_method(self, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> None:
        """Send a method of any ids with any argument bytes."""
        self.send_frame(METHOD, channel, methods.raw_payload(class_id, method_id, arguments))

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("nothing came in time")
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ConnectionDropped(f"TCP closed with {len(self._buffer)} bytes of a frame read")
        self._buffer += data

    def read_bytes(self, size: int, timeout: float | None = None) -> bytes:
        """Read exactly `size` bytes."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while len(self._buffer) < size:
            self._receive(deadline)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def read_frame(self, timeout: float | None = None) -> Frame:
        """Read one frame, heartbeats included; a frame that is incomplete at the deadline stays buffered."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while len(self._buffer) < 7:
            self._receive(deadline)
        kind, channel, size = struct.unpack_from(">BHI", self._buffer)
        while len(self._buffer) < size + 8:
            self._receive(deadline)
        payload = bytes(self._buffer[7 : 7 + size])
        assert self._buffer[7 + size] == 0xCE, f"frame end {self._buffer[7 + size]:#x}"
        del self._buffer[: size + 8]
        return Frame(kind, channel, payload)

    def read_method(self, timeout: float | None = None) -> tuple[int, methods.Method]:
        """Read the next frame that is not a heartbeat; assert that it is a method; return (channel, method)."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            got = self.read_frame(deadline - time.monotonic())
            if got.type != HEARTBEAT:
                assert got.type == METHOD, f"method expected, got {got}"
                return got.channel, methods.parse(got.payload)

    def expect(self, channel: int, kind: methods.MethodType, timeout: float | None = None) -> methods.Method:
        """Read the next method and assert its channel and kind."""
        number, method = self.read_method(timeout)
        expected = f"{kind.name} on {channel} expected, got {method} on {number}"
        assert (number, method.kind) == (channel, kind), expected
        return method

    def expect_close(self, code: int, text: str, ids: tuple[int, int] = (0, 0)) -> None:
        """Read a connection.close, assert all its arguments and reply with close-ok."""
        close = self.expect(0, commands.Connection.Close)
        assert (close.reply_code, close.reply_text) == (code, text)
        assert (close.class_id, close.method_id) == ids
        self.send_method(0, commands.Connection.CloseOk)

    def expect_eof(self, within: float | None = None) -> float:
        """Wait until the peer closes TCP; a frame before that fails the test."""
        deadline = time.monotonic() + (self.timeout if within is None else within)
        try:
            while True:
                assert not self._buffer, f"silence expected, got {bytes(self._buffer[:64])!r}"
                self._receive(deadline)
        except ConnectionDropped:
            return time.monotonic() - self.last_sent

    def expect_silent_close(self, within: float = DEFAULT_TIMEOUT, at_least: float = 0.0) -> None:
        """Assert that the peer closes TCP without a frame, `at_least` to `within` seconds after the last send."""
        took = self.expect_eof(within)
        assert at_least <= took <= within, f"closed after {took:.2f} s, not {at_least}..{within} s"


def raw_connect(url: str, *, header: bytes | None = PROTOCOL_HEADER, timeout: float = DEFAULT_TIMEOUT) -> Wire:
    """Connect to the broker of an AMQP URL and send `header`, unless it is None.

    For `amqps` the connection is encrypted; the certificate may be anyone's.
    """
    address = parse_url(url)
    sock = socket.create_connection((address.host, address.port), timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if urlsplit(url).scheme == "amqps":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sock = context.wrap_socket(sock)
    wire = Wire(sock, timeout)
    if header is not None:
        wire.send_bytes(header)
    return wire


def silent_close_times(wires: Mapping[str, Wire], within: float) -> dict[str, float]:
    """Wait until the peer has closed many wires without a frame."""
    ended: dict[str, float] = {}
    deadline = time.monotonic() + within
    with selectors.DefaultSelector() as selector:
        for name, wire in wires.items():
            selector.register(wire.socket, selectors.EVENT_READ, name)
        while len(ended) < len(wires) and time.monotonic() < deadline:
            for key, _ in selector.select(deadline - time.monotonic()):
                wire = wires[key.data]
                selector.unregister(wire.socket)
                try:
                    ended[key.data] = wire.expect_eof()
                except (AssertionError, TimeoutError) as error:
                    raise AssertionError(f"{key.data}: {error}") from error
    still_open = [name for name in wires if name not in ended]
    assert not still_open, f"{still_open} still open after {within} s"
    return ended
