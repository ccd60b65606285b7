"""Socket helpers: addresses and options."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final, TypeAlias

from leveret.broker.addresses import plain, written

#: struct linger: on, for 0 s.
_NO_LINGER: Final = struct.pack("ii", 1, 0)

#: Address and port.
End: TypeAlias = "tuple[str, int]"


def describe(sock: socket.socket) -> str:
    """The name of a connection that is not one yet."""
    try:
        peer, local = sock.getpeername(), sock.getsockname()
    except OSError:
        return name_of(("", 0), ("", 0))
    return name_of((plain(peer[0]), peer[1]), (plain(local[0]), local[1]))


def name_of(peer: End, local: End) -> str:
    """A connection's name, as RabbitMQ writes it.

    Args:
        peer: Address and port of the client; an empty address if it is not known.
        local: Those that it has connected to.
    """
    return " -> ".join(written(*end) if end[0] else "?" for end in (peer, local))


def ends(transport: asyncio.BaseTransport) -> tuple[End, End]:
    """Address and port of the peer, and our own; an empty address and 0 where there is none."""
    peer, local = (transport.get_extra_info(key) or ("", 0) for key in ("peername", "sockname"))
    return (plain(peer[0]), peer[1]), (plain(local[0]), local[1])


def reset(transport: asyncio.WriteTransport) -> None:
    """Drop a connection with RST, as RabbitMQ does (SO_LINGER with 0 s), so that nothing of it stays in the system."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # The peer may have dropped it already.
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


def disable_delay(transport: asyncio.BaseTransport) -> None:
    """Send small packets at once (TCP_NODELAY), where the transport is TCP."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
