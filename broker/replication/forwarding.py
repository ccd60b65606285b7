"""A standby's ports: clients that connect to it are served by the leader.

Their bytes go to the leader's replication port, after a handshake that tells the client's address, and there into the
broker as if the client had connected to it. Metrics and health are the standby's own.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from socket import socket, socketpair
from typing import Any, Final

from leveret.broker.addresses import unmap_ipv4
from leveret.broker.replication.link import Dial, LinkError, connect
from leveret.broker.replication.own_answers import OwnAnswers, read_request

log = logging.getLogger("leveret.replication")

#: Seconds for which a client waits until there is a leader.
_LEADER_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.1
_PIECE: Final = 64 << 10
_HEAD_SECONDS: Final = 10.0
#: Longest head of a request that is looked at; longer ones are the leader's.
_HEAD_MAX: Final = 64 << 10


class Forwarder:
    """The ports of a standby. Used by the broker's event loop.

    Args:
        node: Name of this node.
        secret: The shared secret.
        tls: Encrypts the links to the leader; None for no encryption.
        prefix: Prefix of the paths of the HTTP API.
        answers: What this node answers itself over HTTP.
        dial: Opens connections to the leader.
    """

    def __init__(
        self, node: str, secret: str, tls: ssl.SSLContext | None, prefix: str, answers: OwnAnswers, dial: Dial
    ) -> None:
        self._node = node
        self._secret = secret
        self._tls = tls
        self._prefix = f"/{prefix.strip('/')}".rstrip("/")
        self._answers = answers
        self._dial = dial
        self._servers: list[asyncio.Server] = []
        self._clients: set[asyncio.Task[None]] = set()
        #: Those of them that the leader serves.
        self._served: set[asyncio.Task[None]] = set()
        self._take: Callable[[socket, Mapping[str, Any]], None] | None = None
        self._leader: tuple[str, int] | None = None
        self._has_leader = asyncio.Event()

    async def listen(self, service: str, sock: socket) -> None:
        """Forward the clients of a listening socket.

        Args:
            service: Name of the listener.
            sock: The socket; stop() closes it.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(service, reader, writer)

        self._servers.append(await asyncio.start_server(serve, sock=sock))

    def set_leader(self, address: str) -> None:
        """Forward to another leader from now on.

        Args:
            address: Host and port of its replication port; "" while there is none.
        """
        host, _, port = address.rpartition(":")
        self._leader = (host.strip("[]"), int(port)) if address else None
        if self._leader is None:
            self._has_leader.clear()
        else:
            self._has_leader.set()

    async def release(self) -> None:
        """Stop listening, and close the clients that a leader serves; those that wait for one go on waiting."""
        self.set_leader("")
        await self._end(self._served)

    def serve_here(self, take: Callable[[socket, Mapping[str, Any]], None]) -> None:
        """Have those that wait served by this node, which leads.

        Args:
            take: Serves the client at the other end of a socket; its second argument says what it has connected to.
        """
        self._take = take
        self._has_leader.set()

    async def stop(self) -> None:
        """Stop listening, and close the connections of all clients."""
        await self._end(self._clients)
        await self._answers.close()

    async def _end(self, clients: Iterable[asyncio.Task[None]]) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        ended = [*clients]
        for client in ended:
            client.cancel()
        await asyncio.gather(*ended, return_exceptions=True)

    async def _serve(self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            head = b""
            if service in ("management", "prometheus"):
                async with asyncio.timeout(_HEAD_SECONDS):
                    head = await _read_head(reader)
                request = read_request(head, self._prefix)
                answered = await self._answers.answer(service, request, writer.get_extra_info("peername")[0])
                if answered:
                    writer.write(answered)
                    await writer.drain()
                    writer.close()
                    return
            await self._forward(service, reader, writer, head)
        except asyncio.CancelledError:
            # By stop(); a stream's task that ends so would be logged.
            pass
        except (OSError, EOFError, TimeoutError, LinkError) as error:
            log.debug("a client of %s is not forwarded: %s", service, error)
        finally:
            self._clients.discard(task)
            self._served.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _forward(
        self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
    ) -> None:
        peer, local = (writer.get_extra_info(name)[:2] for name in ("peername", "sockname"))
        wish = {
            "purpose": "forward",
            "node": self._node,
            "service": service,
            "peer": [unmap_ipv4(peer[0]), peer[1]],
            "local": [unmap_ipv4(local[0]), local[1]],
        }
        other_reader, other_writer = await self._reach_leader(wish)
        other_writer.write(head)
        await relay(reader, writer, other_reader, other_writer)

    async def _reach_leader(self, wish: Mapping[str, Any]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the leader; wait for one, or for the next one if it cannot be reached.

        Raises:
            LinkError, OSError, EOFError: There was none in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LEADER_SECONDS
        while True:
            async with asyncio.timeout_at(deadline):
                await self._has_leader.wait()
            if self._take is not None:
                ours, theirs = socketpair()
                theirs.setblocking(False)
                self._take(theirs, wish)
                return await asyncio.open_connection(sock=ours)
            leader, task = self._leader, asyncio.current_task()
            assert leader is not None
            assert task is not None
            try:
                link, _ = await connect(*leader, self._secret, wish, self._tls, self._dial)
                if self._leader == leader:
                    self._served.add(task)
                    return link.reader, link.writer
                link.close()
            except (OSError, EOFError, LinkError):
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_RETRY_SECONDS)


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Return what a client sends first, with the whole head of a request unless that is very long."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _HEAD_MAX:
        octets = await reader.read(_PIECE)
        if not octets:
            break
        head += octets
    return head


async def relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    other_reader: asyncio.StreamReader,
    other_writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes on between two connections until both directions have ended, then close both."""
    pumps = [asyncio.create_task(_pump(reader, other_writer)), asyncio.create_task(_pump(other_reader, writer))]
    try:
        await asyncio.gather(*pumps)
    except (OSError, EOFError, RuntimeError):
        # uvloop raises the last one if the transport has just been closed.
        pass
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for each in (writer, other_writer):
            each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while octets := await reader.read(_PIECE):
        writer.write(octets)
        await writer.drain()
    if writer.can_write_eof():
        with suppress(OSError):
            writer.write_eof()
    else:
        # TLS has no end of one direction.
        raise EOFError
