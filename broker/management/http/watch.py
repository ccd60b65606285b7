"""HTTP connections on which nothing goes on: requests that do not come, bodies that stop, answers that nobody reads.

aiohttp closes connections that wait for their next request. What is half sent or half read it waits for without end.

Source: RabbitMQ 3.10.8 observed: 408 after 5 s without a whole request, 60 s for the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web

from leveret.broker.management.http.login_delay import HELD_BACK

#: Time for the head of a first request, and for that of a later one from its first byte on; in seconds.
HEAD_SECONDS: Final = 5.0
#: Time without a byte of a body, or without one that is taken of an answer.
STALL_SECONDS: Final = 5.0
#: Time to the next request.
KEEP_ALIVE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 1.0
_TIMEOUT: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_Handler = Callable[[Any], Awaitable[web.StreamResponse]]


class _Connection(asyncio.Protocol):
    """Hands everything to aiohttp's protocol, and notes when something was going on last."""

    # What asyncio calls is described there.

    def __init__(self, watch: ConnectionWatch, inner: asyncio.Protocol) -> None:
        self._watch = watch
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._request: web.BaseRequest | None = None
        self._has_asked = False
        #: Part of a request has come.
        self._has_begun = False
        self._unread = 0
        self.since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of other loops than asyncio's are no subclasses of it.
        made = self._transport = cast("asyncio.Transport", transport)
        self.since = time.monotonic()
        self._watch.add(made, self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            self.since = time.monotonic()
        elif not self._has_begun:
            self._has_begun = True
            if self._has_asked:
                self.since = time.monotonic()
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
        """A request is being handled."""
        self._request, self._has_asked, self.since = request, True, time.monotonic()

    def end(self) -> None:
        """It has an answer, which may still have to be sent."""
        self._request, self._has_begun, self.since = None, False, time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Whether there is neither a request nor an answer under way, or just the answer to a wrong login."""
        return (self._request is None or HELD_BACK in self._request) and self._unread == 0

    def look(self, now: float) -> None:
        """Close the connection if nothing has gone on for too long."""
        assert self._transport is not None
        before, self._unread = self._unread, self._count_unread()
        if self._unread != before or self._waits_for_us():
            self.since = now
        waited = now - self.since
        if self._unread or self._request is not None:
            if waited > STALL_SECONDS:
                self._transport.abort()
        elif waited > HEAD_SECONDS and not self._has_asked:
            if self._has_begun:
                self._transport.write(_TIMEOUT)
            self._transport.close()
        elif waited > HEAD_SECONDS and self._has_begun:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _waits_for_us(self) -> bool:
        """Whether it is not the client whom the request waits for."""
        assert self._transport is not None
        request = self._request
        return request is not None and (request.content.is_eof() or not self._transport.is_reading())

    def _count_unread(self) -> int:
        """Bytes of answers that have not arrived at the client."""
        assert self._transport is not None
        waiting, sock = self._transport.get_write_buffer_size(), self._transport.get_extra_info("socket")
        try:
            in_system: int = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
        except (OSError, ValueError, AttributeError):
            # It is closed, or the system does not tell.
            return waiting
        return waiting + in_system


class ConnectionWatch:
    """The connections of an HTTP server, looked at once a second while there are some."""

    def __init__(self) -> None:
        self._connections: dict[asyncio.Transport, _Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def __len__(self) -> int:
        return len(self._connections)

    def protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """A protocol that does what another one does, and is watched."""
        return _Connection(self, inner)

    def handler(self, handle: _Handler) -> _Handler:
        """A handler that does what another one does, and lets it be known while it does."""

        async def note_and_handle(request: web.BaseRequest) -> web.StreamResponse:
            transport = request.transport
            connection = None if transport is None else self._connections.get(transport)
            if connection is None:
                return await handle(request)
            connection.begin(request)
            try:
                return await handle(request)
            finally:
                connection.end()

        return note_and_handle

    def make_room(self) -> bool:
        """Close the connection that has been idle for the longest time; tell whether there was one."""
        idle = [connection for connection in self._connections.values() if connection.is_idle]
        if idle:
            min(idle, key=lambda connection: connection.since).abort()
        return bool(idle)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def add(self, transport: asyncio.Transport, connection: _Connection) -> None:
        """A connection has come."""
        self._connections[transport] = connection
        if self._timer is None:
            self._look_later()

    def discard(self, transport: asyncio.Transport) -> None:
        """A connection has gone."""
        self._connections.pop(transport, None)

    def _look_later(self) -> None:
        self._due = time.monotonic() + _LOOK_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        late = now - self._due
        for connection in list(self._connections.values()):
            # While we were held up ourselves nobody could get on.
            if late > _LOOK_SECONDS:
                connection.since += late
            connection.look(now)
        self._timer = None
        if self._connections:
            self._look_later()
