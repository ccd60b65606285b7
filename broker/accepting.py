"""Accepts connections that begin with a TLS handshake or a PROXY protocol header."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("leveret.connection")

#: Seconds to wait after a failed accept, for example without free file descriptors.
_RETRY_SECONDS: Final = 1.0


class Refused(asyncio.Protocol):
    """Protocol that closes its connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection."""
        transport.close()


class Acceptor:
    """Accepts connections on listening sockets.

    Args:
        take: Callback that takes ownership of an accepted socket.
    """

    def __init__(self, take: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._take = take
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, sock: socket.socket) -> None:
        """Accept connections on a socket. May be called for several sockets.

        Args:
            sock: Listening socket; stop() closes it.
        """
        sock.setblocking(False)
        self._listening.append(sock)
        self._spawn(self._accept(sock))

    async def stop(self) -> None:
        """Stop accepting, and close connections that have not reached their protocol yet."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for sock in self._listening:
            sock.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                log.error("cannot accept a connection: %s", error.strerror)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            accepted.setblocking(False)
            self._spawn(self._hand_over(accepted))

    async def _hand_over(self, accepted: socket.socket) -> None:
        try:
            await self._take(accepted)
        except asyncio.CancelledError:
            accepted.close()
            raise
        except Exception:
            log.exception("cannot set up an accepted connection")
            accepted.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
