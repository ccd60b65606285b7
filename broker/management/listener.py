"""The sockets of an HTTP server, which may be made later than they are.

What serves HTTP takes longer to import than all the rest of the broker takes to start. A broker inside a test, whose
HTTP API hardly anybody asks, does it when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from leveret.broker.accepting import Acceptor
from leveret.broker.tls import Tls

if TYPE_CHECKING:
    from leveret.broker.management.http.server import HttpServer


class HttpListener:
    """Listens for one HTTP server.

    Args:
        make: Makes the server, and imports what it needs.
        at_once: Make it when listening begins; otherwise when the first client connects.
    """

    def __init__(self, make: Callable[[], HttpServer], at_once: bool) -> None:
        self._make = make
        self._at_once = at_once
        self._made: HttpServer | None = None
        self._acceptors: list[Acceptor] = []

    async def start(self, sock: socket, tls: Tls | None = None) -> None:
        """Listen, on one more socket if it has been called before.

        Args:
            sock: Bound, and closed in the end.
            tls: Encrypts what goes over it; None for no encryption.
        """
        if self._at_once:
            await self._server().start(sock, tls)
        else:
            acceptor = Acceptor(partial(self._take, tls))
            acceptor.start(sock)
            self._acceptors.append(acceptor)

    async def stop(self) -> None:
        """Listen no more, and end what is under way within the shutdown timeout."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        if self._made is not None:
            await self._made.stop()

    async def _take(self, tls: Tls | None, sock: socket) -> None:
        await self._server().take(tls, sock)

    def _server(self) -> HttpServer:
        if self._made is None:
            self._made = self._make()
        return self._made
