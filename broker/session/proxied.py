"""The PROXY protocol header of a connection that comes through a proxy."""

from __future__ import annotations

import asyncio
import socket

from leveret.protocol.proxy_header import MalformedProxyHeader, ProxiedEnds, ProxyHeaderReader


async def read_header(sock: socket.socket, seconds: float) -> ProxiedEnds | None:
    """Read the header, and nothing behind it.

    Args:
        sock: An accepted socket.
        seconds: How long the proxy may take for it.

    Returns:
        The ends of the connection; None if they are those of the socket.

    Raises:
        MalformedProxyHeader: There is no such header, or it did not come in time.
        OSError: The socket is gone.
    """
    reader, loop = ProxyHeaderReader(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            while reader.wanted:
                octets = await loop.sock_recv(sock, reader.wanted)
                if not octets:
                    raise MalformedProxyHeader("the connection has ended before it")
                reader.receive(octets)
    except TimeoutError:
        raise MalformedProxyHeader(f"none within {seconds:g} s") from None
    return reader.ends
