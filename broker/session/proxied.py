"""Reads the PROXY protocol header of accepted connections."""

from __future__ import annotations

import asyncio
import socket

from leveret.protocol.proxy_header import MalformedProxyHeader, ProxiedAddresses, ProxyHeaderReader


async def read_header(sock: socket.socket, seconds: float) -> ProxiedAddresses | None:
    """Read the PROXY protocol header, and no bytes after it.

    Args:
        sock: An accepted socket.
        seconds: Timeout in seconds.

    Returns:
        The addresses in the header; None if the header says to use those of the socket.

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
