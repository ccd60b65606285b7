"""A transport without a socket: what is written to it is kept, and the test plays the network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.manual_loop import ManualLoop

_ADDRESSES: Mapping[str, Any] = {"peername": ("127.0.0.1", 50001), "sockname": ("127.0.0.1", 5672)}


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection.

    Args:
        loop: Tells the protocol in its next turn that the connection is lost.
        extra: What get_extra_info() knows; by default the addresses of a loopback connection.

    Attributes:
        written: All bytes written and not taken yet.
        writes: How many writes there were.
        closed: It was closed by the server.
        reading: It is not paused.
        high_water: As set, in bytes.
        unread: Bytes that the client has not read and that are still to be written; the test sets them.
        aborted: It was closed whatever was still to be written.
    """

    def __init__(self, loop: ManualLoop, extra: Mapping[str, Any] = _ADDRESSES) -> None:
        super().__init__(dict(extra))
        self._loop = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self.written = bytearray()
        self.writes = 0
        self.closed = False
        self.reading = True
        self.high_water: int | None = None
        self.unread = 0
        self.aborted = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect it."""
        self._protocol = protocol
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Remember the limit."""
        self.high_water = high

    def get_write_buffer_size(self) -> int:
        """What the client has not read."""
        return self.unread

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep what is written; nothing goes out once it is closed."""
        assert data, "a write of nothing"
        self.writes += 1
        if not self.closed:
            self.written += data

    def pause_reading(self) -> None:
        """The server reads no more; as asyncio has it, twice is an error."""
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        """The server reads again."""
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def close(self) -> None:
        """Close: the protocol learns of it in the next turn, once, when all has been written."""
        self.closed = True
        if not self.unread:
            self.lose()

    def abort(self) -> None:
        """Close, whatever is still to be written."""
        self.aborted = True
        self.unread = 0
        self.close()

    def lose(self) -> None:
        """The connection is lost, by the server's doing or by the client's."""
        protocol, self._protocol = self._protocol, None
        self.closed = True
        if protocol is not None:
            self._loop.call_soon(protocol.connection_lost, None)

    def take(self) -> bytes:
        """What was written since the last take."""
        taken = bytes(self.written)
        self.written.clear()
        return taken
