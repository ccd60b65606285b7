"""AMQP listeners, and the shutdown of their connections."""

from __future__ import annotations

import asyncio
import logging
import socket
from functools import partial
from typing import Final, cast

from leveret.broker.addresses import Acceptor, Refused, connection_name, socket_name
from leveret.broker.session.ack_timeout import ConsumerTimeout
from leveret.broker.session.connection import Connection, OpenConnections
from leveret.broker.session.shared_state import Server
from leveret.broker.tls import HandshakeFailed, Tls, encrypt
from leveret.protocol.faults import ConnectionFault, ReplyCode
from leveret.protocol.proxy_header import MalformedProxyHeader, ProxiedAddresses, ProxyHeaderReader
from leveret.storage.callbacks import call_each

log = logging.getLogger("leveret.connection")

#: Reply text of connection.close at shutdown.
_SHUTDOWN: Final = "broker forced connection closure with reason 'shutdown'"
#: Time for clients to answer, in seconds. Without it, a client that is sending would only see a reset.
_ANSWER_SECONDS: Final = 0.5


class Listener:
    """Accepts AMQP connections over TCP.

    Attributes:
        connections: The open connections.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self.connections = OpenConnections()
        self._listening: list[asyncio.Server] = []
        self._consumer_timeout: ConsumerTimeout | None = None
        self._acceptors: list[Acceptor] = []
        self._clients = server.broker.sockets.amqp
        self._clients.count(self.connections)

    async def start(self, sock: socket.socket, tls: Tls | None = None) -> None:
        """Listen on a socket; may be called for several sockets.

        Args:
            sock: A bound socket; stop() closes it.
            tls: TLS settings; None for no encryption.
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
            self._consumer_timeout = ConsumerTimeout(
                self._server.broker.timers, self.connections.channels, settings.consumer_timeout
            )

    def _accept(self) -> asyncio.BaseProtocol:
        return Refused() if self._clients.refuse() else self._connection()

    def _connection(self, proxied: ProxiedAddresses | None = None) -> asyncio.Protocol:
        # It has the methods of a Protocol, but cannot inherit from it.
        return cast("asyncio.Protocol", Connection(self._server, self.connections, proxied))

    async def take_forwarded(self, tls: Tls | None, sock: socket.socket, addresses: ProxiedAddresses) -> None:
        """Serve a client that another node forwards.

        Args:
            tls: TLS settings; None for no encryption.
            sock: What forwards the client's bytes.
            addresses: The client's address, and the one that it has connected to.
        """
        await self._take(tls, sock, addresses)

    async def _take(self, tls: Tls | None, sock: socket.socket, proxied: ProxiedAddresses | None = None) -> None:
        """Create a connection for an accepted socket, after PROXY protocol header and TLS handshake."""
        if self._clients.refuse(with_handshake=True):
            sock.close()
            return
        self._clients.handshakes += 1
        try:
            await self._connect(tls, sock, proxied)
        finally:
            self._clients.handshakes -= 1

    async def _connect(self, tls: Tls | None, sock: socket.socket, proxied: ProxiedAddresses | None) -> None:
        settings = self._server.settings
        name = socket_name(sock) if proxied is None else connection_name(proxied.peer, proxied.local)
        try:
            if settings.proxy_protocol:
                proxied = await _read_proxy_header(sock, settings.handshake_timeout / 1000) or proxied
                name = name if proxied is None else connection_name(proxied.peer, proxied.local)
            make = partial(self._connection, proxied)
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
        """Stop listening and close all connections.

        Args:
            seconds: Maximum time for clients to read pending output and to answer, in seconds.
        """
        await self._stop_listening()
        fault = ConnectionFault(ReplyCode.CONNECTION_FORCED, _SHUTDOWN, 0)
        call_each([partial(connection.terminate, fault) for connection in self.connections], "at shutdown")
        answer_seconds = min(_ANSWER_SECONDS, seconds)
        if await self._all_closed(answer_seconds):
            return
        call_each([connection.drop for connection in self.connections], "at shutdown")
        if not await self._all_closed(seconds - answer_seconds):
            log.warning("%d connections did not close within %g s", len(self.connections), seconds)
            for connection in self.connections:
                connection.drop("abort")

    def drop_connections(self) -> int:
        """Reset the sockets of all connections; return how many there were. New ones are accepted."""
        connections = list(self.connections)
        for connection in connections:
            connection.drop("abort")
        return len(connections)

    async def abandon(self, close_politely: bool) -> None:
        """Stop listening and close all connections at once.

        Args:
            close_politely: Send connection.close first; otherwise reset the sockets.
        """
        await self._stop_listening()
        for connection in self.connections:
            if close_politely:
                connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, _SHUTDOWN, 0))
            connection.drop("finish" if close_politely else "abort")

    async def _stop_listening(self) -> None:
        if self._consumer_timeout is not None:
            self._consumer_timeout.stop()
        for listening in self._listening:
            listening.close()
        for acceptor in self._acceptors:
            await acceptor.stop()

    async def _all_closed(self, seconds: float) -> bool:
        """Wait until no connection is open; return False if that takes longer than this many seconds."""
        if self.connections.all_closed.is_set():
            return True
        try:
            await asyncio.wait_for(self.connections.all_closed.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def _read_proxy_header(sock: socket.socket, seconds: float) -> ProxiedAddresses | None:
    """Read the PROXY protocol header, and no bytes after it; return None if it says to use the addresses of the socket.

    Raises:
        MalformedProxyHeader: The header is missing or malformed, or did not arrive in time.
        OSError: The socket is closed.
    """
    reader, loop = ProxyHeaderReader(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while reader.bytes_needed:
                octets = await loop.sock_recv(sock, reader.bytes_needed)
                if not octets:
                    raise MalformedProxyHeader("connection closed before the header was complete")
                reader.receive(octets)
    except TimeoutError:
        raise MalformedProxyHeader(f"not received within {seconds:g} s") from None
    return reader.addresses
