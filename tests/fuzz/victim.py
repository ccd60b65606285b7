"""A client that sends what it is given, whatever that is, and judges what comes back."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Final

from pamqp import commands

from leveret.protocol.faults import ReplyCode
from tests.support import methods
from tests.support.methods import Method
from tests.support.transport import BODY, HEADER, HEARTBEAT, METHOD, Frame, parse_url

#: Reply codes that a fault of the client may bring (the others are the broker's own business).
CHANNEL_CODES: Final = {403, 404, 405, 406}
CONNECTION_CODES: Final = {403, 501, 503, 504, 505, 530, 540, 541}

#: How long to wait for an answer that may never come, in seconds.
_PATIENCE: Final = 0.03


class IllegalAnswer(AssertionError):
    """The broker sent what it must not send."""


class Victim:
    """One connection."""

    def __init__(self, url: str) -> None:
        address = parse_url(url)
        self._socket = socket.create_connection((address.host, address.port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The broker must not be held up by a victim that cannot read because it writes.
        self._socket.setblocking(False)
        self._data = bytearray()
        self.frames: list[Frame] = []
        self.dropped = False
        self.closed: Method | None = None
        self.channels_closed: list[Method] = []

    def send(self, octets: bytes) -> None:
        """Send bytes, reading meanwhile; a peer that is gone shows as dropped."""
        deadline = time.monotonic() + 180
        view = memoryview(octets)
        while view and not self.dropped:
            assert time.monotonic() < deadline, "the broker takes no input"
            readable, writable, _ = select.select([self._socket], [self._socket], [], 1)
            if readable:
                self._read()
            if writable and not self.dropped:
                try:
                    view = view[self._socket.send(view[:262_144]) :]
                except (BrokenPipeError, ConnectionResetError):
                    self.dropped = True

    def wait(self, count: int, patience: float = _PATIENCE) -> None:
        """Read until `count` frames have come in all, the connection is over, or patience is."""
        deadline = time.monotonic() + patience
        while len(self.frames) < count and not self.dropped and self.closed is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._socket], [], [], left)[0]:
                return
            self._read()

    def settle(self) -> None:
        """Read what has come already."""
        while not self.dropped and select.select([self._socket], [], [], 0)[0]:
            self._read()

    def abort(self) -> None:
        """Drop the connection without connection.close."""
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        self.dropped = not data
        self._data += data
        while self._take_frame():
            pass

    def _take_frame(self) -> bool:
        if self._data[:5] == b"AMQP\x00":
            # The answer to a protocol header that the broker does not know.
            self._data.clear()
        if len(self._data) < 7:
            return False
        kind, channel, size = struct.unpack_from(">BHI", self._data)
        if kind not in (METHOD, HEADER, BODY, HEARTBEAT) or size > 1 << 24:
            raise IllegalAnswer(f"no frame: {bytes(self._data[:40])!r}")
        if len(self._data) < size + 8:
            return False
        if self._data[7 + size] != 0xCE:
            raise IllegalAnswer(f"frame end {self._data[7 + size]:#x} of frame {kind} on {channel}")
        received = Frame(kind, channel, bytes(self._data[7 : 7 + size]))
        del self._data[: size + 8]
        self._judge(received)
        self.frames.append(received)
        return True

    def _judge(self, received: Frame) -> None:
        if received.type != METHOD:
            return
        method = methods.parse(received.payload)
        if self.closed is not None and method.kind is not commands.Connection.CloseOk:
            raise IllegalAnswer(f"{method} on {received.channel} after {self.closed}")
        if method.kind is commands.Connection.Close:
            self.closed = _legal(method, CONNECTION_CODES)
        elif method.kind is commands.Channel.Close:
            self.channels_closed.append(_legal(method, CHANNEL_CODES))


def _legal(close: Method, codes: set[int]) -> Method:
    if close.reply_code not in codes:
        raise IllegalAnswer(f"{close}: a fault of the client cannot have this code")
    if not close.reply_text.startswith(ReplyCode(close.reply_code).name):
        raise IllegalAnswer(f"{close}: the text does not begin with the code's name")
    return close
