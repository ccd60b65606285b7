"""A transport without a socket: it keeps what is written, and the test simulates the network."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.support.manual_loop import ManualLoop

_ADDRESSES: Mapping[str, Any] = {"peername": ("127.0.0.1", 50001), "sockname": ("127.0.0.1", 5672)}


class MemoryTransport(asyncio.Transport):
    """The server's end of a connection."""

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
        self._is_lost = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol and call its connection_made()."""
        self._protocol = protocol
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Record the high-water mark."""
        self.high_water = high

    def get_write_buffer_size(self) -> int:
        """Return the simulated size of the write buffer in bytes."""
        return self.unread

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep written bytes; ignore them after close(), and refuse them as uvloop does after connection_lost()."""
        assert data, "a write of nothing"
        if self._is_lost:
            raise RuntimeError("unable to perform operation on a closed transport; the handler is closed")
        self.writes += 1
        if not self.closed:
            self.written += data

    def pause_reading(self) -> None:
        """Pause reading; asserts that it is not paused, as asyncio does."""
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        """Resume reading."""
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        """Return whether it was closed."""
        return self.closed

    def close(self) -> None:
        """Close; connection_lost() is called once, in the next turn, after the write buffer is empty."""
        self.closed = True
        if not self.unread:
            self.lose()

    def abort(self) -> None:
        """Close without flushing the write buffer."""
        self.aborted = True
        self.unread = 0
        self.close()

    def lose(self) -> None:
        """Simulate the loss of the connection."""
        protocol, self._protocol = self._protocol, None
        self.closed = True
        if protocol is not None:
            self._loop.call_soon(self._end, protocol)

    def _end(self, protocol: asyncio.BaseProtocol) -> None:
        protocol.connection_lost(None)
        self._is_lost = True

    def take(self) -> bytes:
        """Return and remove the bytes written since the last call."""
        taken = bytes(self.written)
        self.written.clear()
        return taken
