"""What is asked of sockets: addresses and options."""

from __future__ import annotations

import asyncio
import ipaddress
import socket


def describe(transport: asyncio.BaseTransport) -> str:
    """A connection's name: address and port of the peer, an arrow, our own."""
    ends = (transport.get_extra_info(key) for key in ("peername", "sockname"))
    return " -> ".join(f"{end[0]}:{end[1]}" if end else "?" for end in ends)


def ends(transport: asyncio.BaseTransport) -> tuple[tuple[str, int], tuple[str, int]]:
    """Address and port of the peer, and our own; an empty address and 0 where there is none."""
    peer, local = (transport.get_extra_info(key) or ("", 0) for key in ("peername", "sockname"))
    return (peer[0], peer[1]), (local[0], local[1])


def disable_delay(transport: asyncio.BaseTransport) -> None:
    """Send small packets at once (TCP_NODELAY), where the transport is TCP."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def peer_is_loopback(transport: asyncio.BaseTransport) -> bool:
    """Whether the client is on this machine."""
    peer = transport.get_extra_info("peername")
    return bool(peer) and is_loopback(peer[0])


def is_loopback(address: str) -> bool:
    """Whether an IP address, also an IPv4 one inside IPv6, is of this machine only."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)
