"""Socket helpers: addresses and options."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final, TypeAlias

from leveret.broker.addresses import format_address, unmap_ipv4

#: struct linger: on, for 0 s.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

#: Address and port.
Endpoint: TypeAlias = "tuple[str, int]"


def socket_name(sock: socket.socket) -> str:
    """Return the connection name of an accepted socket, for the log."""
    try:
        peer, local = sock.getpeername(), sock.getsockname()
    except OSError:
        return connection_name(("", 0), ("", 0))
    return connection_name((unmap_ipv4(peer[0]), peer[1]), (unmap_ipv4(local[0]), local[1]))


def connection_name(peer: Endpoint, local: Endpoint) -> str:
    """Return the name of a connection in RabbitMQ's format.

    Args:
        peer: Address and port of the client; an empty address if it is not known.
        local: Address and port of the broker.
    """
    return " -> ".join(format_address(*end) if end[0] else "?" for end in (peer, local))


def endpoints(transport: asyncio.BaseTransport) -> tuple[Endpoint, Endpoint]:
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
