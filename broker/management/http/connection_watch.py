"""Closes stalled HTTP connections: incomplete requests, stalled bodies, responses that the client does not read.

aiohttp closes connections that wait for their next request. It never closes those that are half sent or half read.

Source: RabbitMQ 3.10.8 observed: 408 after 5 s without a whole request, 60 s for the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from aiohttp import web

from leveret.broker.management.http.logins import DELAYED
from leveret.broker.management.http.request_bodies import HAS_DEADLINE
from leveret.storage.callbacks import call_each

#: Time in seconds for the head of the first request, and of a later request from its first byte.
HEAD_SECONDS: Final = 5.0
#: Time in seconds without a byte of a request body, or without a byte of a response being read.
STALL_SECONDS: Final = 5.0
#: Time in seconds to the next request.
KEEP_ALIVE_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 1.0
_TIMEOUT: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_Handler = Callable[[Any], Awaitable[web.StreamResponse]]


class _Connection(asyncio.Protocol):
    """Protocol that passes all calls to aiohttp's protocol and records the time of the last activity."""

    def __init__(self, watch: ConnectionWatch, inner: asyncio.Protocol) -> None:
        self._watch = watch
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._request: web.BaseRequest | None = None
        self._has_requested = False
        #: Part of a request has been received.
        self._has_partial_request = False
        self._unread = 0
        self.last_activity = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not subclasses of asyncio.Transport.
        made = self._transport = cast("asyncio.Transport", transport)
        self.last_activity = self._watch.time()
        self._watch.add(made, self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            self.last_activity = self._watch.time()
        elif not self._has_partial_request:
            self._has_partial_request = True
            if self._has_requested:
                self.last_activity = self._watch.time()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        assert self._transport is not None
        self._watch.discard(self._transport)
        self._inner.connection_lost(error)

    def begin(self, request: web.BaseRequest) -> None:
        """Record that a request is being handled."""
        self._request, self._has_requested, self.last_activity = request, True, self._watch.time()

    def end(self) -> None:
        """Record that the request has been handled. Its response may still have to be sent."""
        self._request, self._has_partial_request, self.last_activity = None, False, self._watch.time()

    @property
    def is_idle(self) -> bool:
        """Whether there is no open request or response, except for the delayed response to a failed login."""
        return (self._request is None or DELAYED in self._request) and self._unread == 0

    def check(self, now: float) -> None:
        """Close the connection if it has been inactive for too long.

        Args:
            now: Monotonic time in seconds.
        """
        assert self._transport is not None
        before, self._unread = self._unread, self._count_unread()
        if self._unread != before or self._waits_for_broker():
            self.last_activity = now
        waited = now - self.last_activity
        if self._unread or self._request is not None:
            if waited > STALL_SECONDS:
                self._transport.abort()
        elif waited > HEAD_SECONDS and not self._has_requested:
            if self._has_partial_request:
                self._transport.write(_TIMEOUT)
            self._transport.close()
        elif waited > HEAD_SECONDS and self._has_partial_request:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _waits_for_broker(self) -> bool:
        """Check whether the request waits for the broker, which may be the end of its own deadline for the body."""
        assert self._transport is not None
        request = self._request
        if request is None:
            return False
        return request.content.is_eof() or HAS_DEADLINE in request or not self._transport.is_reading()

    def _count_unread(self) -> int:
        """Return the bytes of responses that the client has not received."""
        assert self._transport is not None
        waiting, sock = self._transport.get_write_buffer_size(), self._transport.get_extra_info("socket")
        try:
            in_system: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        except (OSError, ValueError, AttributeError):
            # The socket is closed, or the system does not support this.
            return waiting
        return waiting + in_system


class ConnectionWatch:
    """The connections of an HTTP server. While there are any, they are checked once a second.

    Args:
        loop: The event loop; deadlines of sockets follow its time.

    Attributes:
        time: Returns the monotonic real time in seconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.time = loop.time
        self._connections: dict[asyncio.Transport, _Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._connections)

    def protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return a protocol that wraps another one and is watched."""
        return _Connection(self, inner)

    def handler(self, handle: _Handler) -> _Handler:
        """Return a handler that wraps another one and records its start and end."""

        async def track_and_handle(request: web.BaseRequest) -> web.StreamResponse:
            transport = request.transport
            connection = None if transport is None else self._connections.get(transport)
            if connection is None:
                return await handle(request)
            connection.begin(request)
            try:
                return await handle(request)
            finally:
                connection.end()

        return track_and_handle

    def make_room(self) -> bool:
        """Close the connection that has been idle longest; return whether there was one."""
        idle = [connection for connection in self._connections.values() if connection.is_idle]
        if idle:
            min(idle, key=lambda connection: connection.last_activity).abort()
        return bool(idle)

    def abort_all(self) -> None:
        """Reset all connections."""
        for connection in list(self._connections.values()):
            connection.abort()

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def add(self, transport: asyncio.Transport, connection: _Connection) -> None:
        """Add a new connection."""
        self._connections[transport] = connection
        if self._timer is None:
            self._schedule_check()

    def discard(self, transport: asyncio.Transport) -> None:
        """Remove a closed connection."""
        self._connections.pop(transport, None)

    def _schedule_check(self) -> None:
        self._due = self.time() + _CHECK_SECONDS
        self._timer = self._loop.call_later(_CHECK_SECONDS, self._check_all)

    def _check_all(self) -> None:
        now = self.time()
        late = now - self._due
        connections = list(self._connections.values())
        if late > _CHECK_SECONDS:
            # The event loop was blocked: clients could make no progress meanwhile.
            for connection in connections:
                connection.last_activity += late
        call_each([partial(connection.check, now) for connection in connections], "for timeouts of HTTP connections")
        self._timer = None
        if self._connections:
            self._schedule_check()
