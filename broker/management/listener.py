"""Listening sockets of an HTTP server that may be created later, on the first connection.

Importing the HTTP server takes longer than starting the rest of the broker. An embedded broker therefore imports it
only when a client connects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from leveret.broker.addresses import Acceptor, Address
from leveret.broker.tls import Tls

if TYPE_CHECKING:
    from leveret.broker.management.http.server import HttpServer


class HttpListener:
    """Listener of one HTTP server.

    Args:
        make: Creates the server and imports its modules.
        at_once: Create it when listening begins; otherwise when the first client connects.
    """

    def __init__(self, make: Callable[[], HttpServer], at_once: bool) -> None:
        self._make = make
        self._at_once = at_once
        self._created: HttpServer | None = None
        self._acceptors: list[Acceptor] = []

    async def start(self, sock: socket, tls: Tls | None = None) -> None:
        """Listen on a socket. May be called again for further sockets.

        Args:
            sock: A bound socket. The listener closes it.
            tls: TLS of the socket; None for no encryption.
        """
        if self._at_once and tls is None:
            await self._server().start(sock)
            return
        if self._at_once:
            self._server()
        acceptor = Acceptor(partial(self._take, tls))
        acceptor.start(sock)
        self._acceptors.append(acceptor)

    async def stop(self) -> None:
        """Stop listening, and end open requests within the shutdown timeout."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        if self._created is not None:
            await self._created.stop()

    async def abandon(self) -> None:
        """Stop listening, and reset all connections."""
        for acceptor in self._acceptors:
            await acceptor.stop()
        if self._created is not None:
            await self._created.abandon()

    async def take_forwarded(self, tls: Tls | None, sock: socket, peer: Address) -> None:
        """Serve a client that another node forwards; see HttpServer.serve()."""
        await self._server().serve(tls, sock, peer)

    async def _take(self, tls: Tls | None, sock: socket) -> None:
        await self._server().serve(tls, sock)

    def _server(self) -> HttpServer:
        if self._created is None:
            self._created = self._make()
        return self._created
