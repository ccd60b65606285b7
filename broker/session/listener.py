"""The listening AMQP socket, and stopping what was accepted on it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Final

from broker.session.connection import Connection
from broker.session.consumer_timeout import ConsumerTimeout
from broker.session.server import Server
from protocol.faults import ConnectionFault, ReplyCode

log = logging.getLogger("leveret.connection")

#: What clients read when the broker stops.
_SHUTDOWN: Final = "broker forced connection closure with reason 'shutdown'"


class Listener:
    """Accepts AMQP connections over TCP.

    Args:
        server: What its connections share.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listening: list[asyncio.Server] = []
        self._consumer_timeout: ConsumerTimeout | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen, on one more port if it has been called before; return host and port.

        Args:
            host: Address to listen on.
            port: 0..65535; 0 takes a free one.
            tls: Encrypts what goes over that port; None for no encryption.
        Raises:
            OSError: The address cannot be listened on.
        """
        settings = self._server.settings
        loop = self._server.loop
        listening = await loop.create_server(
            self._accept,
            host,
            port,
            backlog=settings.tcp_listen_options.backlog,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else settings.ssl_handshake_timeout / 1000,
        )
        self._listening.append(listening)
        if self._consumer_timeout is None and settings.consumer_timeout is not None:
            self._consumer_timeout = ConsumerTimeout(self._server, settings.consumer_timeout)
        bound_host, bound_port = listening.sockets[0].getsockname()[:2]
        return bound_host, bound_port

    def _accept(self) -> Connection:
        return Connection(self._server)

    async def stop(self, seconds: float) -> None:
        """Listen no more and close all connections.

        Args:
            seconds: How long clients may take to read what is still on its way to them.
        """
        if self._consumer_timeout is not None:
            self._consumer_timeout.stop()
        for listening in self._listening:
            listening.close()
        for connection in list(self._server.sockets):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, _SHUTDOWN, 0))
            connection.drop()
        self._server.check_all_gone()
        try:
            await asyncio.wait_for(self._server.all_gone.wait(), seconds)
        except TimeoutError:
            log.warning("%d connections did not end in %g s", len(self._server.sockets), seconds)
