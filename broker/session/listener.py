"""The listening AMQP sockets, and stopping what was accepted on them."""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import Final

from leveret.broker.accepting import Acceptor, Refused
from leveret.broker.session.connection import Connection
from leveret.broker.session.consumer_timeout import ConsumerTimeout
from leveret.broker.session.proxied import read_header
from leveret.broker.session.server import Server
from leveret.broker.session.sockets import describe, name_of
from leveret.broker.tls import Tls
from leveret.broker.tls_handshake import HandshakeFailed, encrypt
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.proxy_header import MalformedProxyHeader, ProxiedEnds

log = logging.getLogger("leveret.connection")

#: What clients read when the broker stops.
_SHUTDOWN: Final = "broker forced connection closure with reason 'shutdown'"
#: Seconds that clients have to answer it. One that is sending all the time would otherwise learn of a reset only.
_ANSWER_SECONDS: Final = 0.5


class Listener:
    """Accepts AMQP connections over TCP.

    Args:
        server: What its connections share.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: list[asyncio.Server] = []
        self._consumer_timeout: ConsumerTimeout | None = None
        self._acceptors: list[Acceptor] = []
        self._clients = server.broker.sockets.amqp
        self._clients.open = lambda: len(server.sockets)

    async def start(self, sock: socket.socket, tls: Tls | None = None) -> None:
        """Listen, on one more socket if it has been called before.

        Args:
            sock: Bound, and closed in the end.
            tls: Encrypts what goes over it; None for no encryption.
        """
        settings, loop = self._server.settings, self._server.loop
        if tls is None and not settings.proxy_protocol:
            backlog = settings.tcp_listen_options.backlog
            self._listening.append(await loop.create_server(self._accept, sock=sock, backlog=backlog))
        else:
            acceptor = Acceptor(partial(self._take, tls))
            acceptor.start(sock)
            self._acceptors.append(acceptor)
        if self._consumer_timeout is None and settings.consumer_timeout is not None:
            self._consumer_timeout = ConsumerTimeout(self._server, settings.consumer_timeout)

    def _accept(self) -> asyncio.BaseProtocol:
        return Refused() if self._clients.refuse() else Connection(self._server)

    async def _take(self, tls: Tls | None, sock: socket.socket) -> None:
        """Make a connection of an accepted socket, through what comes before AMQP."""
        if self._clients.refuse(with_handshake=True):
            sock.close()
            return
        self._clients.handshakes += 1
        try:
            await self._connect(tls, sock)
        finally:
            self._clients.handshakes -= 1

    async def _connect(self, tls: Tls | None, sock: socket.socket) -> None:
        settings, name = self._server.settings, describe(sock)
        proxied: ProxiedEnds | None = None
        try:
            if settings.proxy_protocol:
                proxied = await read_header(sock, settings.handshake_timeout / 1000)
                name = describe(sock) if proxied is None else name_of(proxied.peer, proxied.local)
            make = partial(Connection, self._server, proxied)
            if tls is None:
                await self._server.loop.connect_accepted_socket(make, sock)
            else:
                await encrypt(sock, make, tls, settings.ssl_handshake_timeout / 1000)
        except HandshakeFailed as failure:
            log.error("closing AMQP connection %s: TLS: %s", name, failure)
        except MalformedProxyHeader as malformed:
            log.error("closing AMQP connection %s: PROXY protocol header: %s", name, malformed)
            sock.close()
        except OSError as error:
            log.info("closing AMQP connection %s: %s", name, error.strerror or error)
            sock.close()

    async def stop(self, seconds: float) -> None:
        """Listen no more and close all connections.

        Args:
            seconds: How long clients may take to read what is still on its way to them, and to answer.
        """
        if self._consumer_timeout is not None:
            self._consumer_timeout.stop()
        for listening in self._listening:
            listening.close()
        # It has been set whenever nobody was connected.
        self._server.all_gone.clear()
        for acceptor in self._acceptors:
            await acceptor.stop()
        for connection in list(self._server.sockets):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, _SHUTDOWN, 0))
        answer_seconds = min(_ANSWER_SECONDS, seconds)
        if await self._all_gone(answer_seconds):
            return
        for connection in list(self._server.sockets):
            connection.drop()
        if not await self._all_gone(seconds - answer_seconds):
            log.warning("%d connections did not end in %g s", len(self._server.sockets), seconds)
            for connection in list(self._server.sockets):
                connection.drop("abort")

    async def _all_gone(self, seconds: float) -> bool:
        self._server.check_all_gone()
        try:
            await asyncio.wait_for(self._server.all_gone.wait(), seconds)
        except TimeoutError:
            return False
        return True
