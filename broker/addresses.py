"""Sockets: listening, accepting, IP addresses and options."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

log = logging.getLogger("leveret.connection")

#: All IPv6 addresses; a dual-stack socket on it accepts IPv4 too.
_ANY_IPV6: Final = "::"

#: struct linger: on, for 0 s.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

#: Host and port.
Address: TypeAlias = "tuple[str, int]"


def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listen on the addresses of a host.

    Args:
        host: An address, or a name with one or more addresses; `::` includes IPv4 if the system supports it.
        port: 0..65535; 0 for a free port, the same for all addresses.
        backlog: Connections that may wait to be accepted.

    Returns:
        The sockets, one per address.

    Raises:
        OSError: An address cannot be listened on; then all sockets are closed.
    """
    bound: list[socket.socket] = []
    try:
        for family, address in _resolve(host):
            if bound and not port:
                port = address_of(bound[0])[1]
            both = address == _ANY_IPV6 and socket.has_dualstack_ipv6()
            made = socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=both)
            bound.append(made)
    except OSError:
        for made in bound:
            made.close()
        raise
    return bound


def address_of(listening: socket.socket) -> Address:
    """Return host and port of a listening socket."""
    host, port = listening.getsockname()[:2]
    return host, port


def describe_error(error: OSError) -> str:
    """Return the system's text for an error of bind(), without Python's additions."""
    # Error numbers of name resolution are negative; os.strerror() does not know them.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def format_address(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unmap_ipv4(address: str) -> str:
    """Return the IPv4 address of an IPv4-mapped IPv6 address (``::ffff:1.2.3.4``); other addresses unchanged."""
    if not address.lower().startswith("::ffff:"):
        return address
    mapped = ipaddress.IPv6Address(address.partition("%")[0]).ipv4_mapped
    return address if mapped is None else str(mapped)


def is_loopback(address: str) -> bool:
    """Return whether an IP address is a loopback address, also if it is IPv4-mapped."""
    try:
        return ipaddress.ip_address(unmap_ipv4(address).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Return the address families and addresses of a host, without duplicates."""
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        # A name that is too long or has an empty label.
        raise OSError(None, "Not a host name") from error
    addresses: dict[tuple[socket.AddressFamily, str], None] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            addresses[family, str(address[0])] = None
    return list(addresses)


def socket_name(sock: socket.socket) -> str:
    """Return the connection name of an accepted socket, for the log."""
    try:
        peer, local = sock.getpeername(), sock.getsockname()
    except OSError:
        return connection_name(("", 0), ("", 0))
    return connection_name((unmap_ipv4(peer[0]), peer[1]), (unmap_ipv4(local[0]), local[1]))


def connection_name(peer: Address, local: Address) -> str:
    """Return the name of a connection in RabbitMQ's format.

    Args:
        peer: Address and port of the client; an empty address if it is not known.
        local: Address and port of the broker.
    """
    return " -> ".join(format_address(*end) if end[0] else "?" for end in (peer, local))


def endpoints(transport: asyncio.BaseTransport) -> tuple[Address, Address]:
    """Return the addresses and ports of client and broker; ("", 0) if unknown."""
    peer, local = (transport.get_extra_info(key) or ("", 0) for key in ("peername", "sockname"))
    return (unmap_ipv4(peer[0]), peer[1]), (unmap_ipv4(local[0]), local[1])


def reset(transport: asyncio.WriteTransport) -> None:
    """Close a connection with RST, as RabbitMQ does (SO_LINGER with 0 s), to leave no TIME_WAIT state."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # The client may have closed it already.
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def disable_delay(transport: asyncio.BaseTransport) -> None:
    """Set TCP_NODELAY, if the transport is TCP."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# -- connections that begin with a TLS handshake or a PROXY protocol header -----------------------------------

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
