"""Accepts connections that are not ready for their protocol at once: TLS comes first, or a proxy's header."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

log = logging.getLogger("leveret.connection")

#: Seconds to wait where the system has no file descriptor left.
_PAUSE: Final = 1.0


class Refused(asyncio.Protocol):
    """A connection that is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()


class Acceptor:
    """Accepts what comes in on sockets.

    Args:
        take: Callback that takes ownership of an accepted socket.
    """

    def __init__(self, take: Callable[[socket.socket], Awaitable[None]]) -> None:
        self._take = take
        self._listening: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, sock: socket.socket) -> None:
        """Accept, on one more socket if it has been called before.

        Args:
            sock: It listens; closed in the end.
        """
        sock.setblocking(False)
        self._listening.append(sock)
        self._spawn(self._accept(sock))

    async def stop(self) -> None:
        """Accept no more, and give up what is on its way to its protocol."""
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
                await asyncio.sleep(_PAUSE)
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
            log.exception("a connection could not be taken")
            accepted.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
