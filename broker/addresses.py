"""Sockets that listen: addresses bound, names of several addresses, IPv4 within IPv6."""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Final, TypeAlias

#: What a socket that listens on all of IPv6 takes besides: all of IPv4.
_EVERYWHERE: Final = "::"

#: Host and port.
Address: TypeAlias = "tuple[str, int]"


def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listen on the addresses of a host.

    Args:
        host: An address, or a name with one or more of them; `::` is IPv4 too, where the system has both.
        port: 0..65535; 0 takes a free one, the same for all addresses.
        backlog: Connections that may wait to be accepted.

    Returns:
        The sockets, one an address.

    Raises:
        OSError: An address cannot be listened on; none is then.
    """
    bound: list[socket.socket] = []
    try:
        for family, address in _resolve(host):
            if bound and not port:
                port = address_of(bound[0])[1]
            both = address == _EVERYWHERE and socket.has_dualstack_ipv6()
            made = socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=both)
            bound.append(made)
    except OSError:
        for made in bound:
            made.close()
        raise
    return bound


def address_of(listening: socket.socket) -> Address:
    """Host and port of a socket that listens."""
    host, port = listening.getsockname()[:2]
    return host, port


def reason_of(error: OSError) -> str:
    """Why an address cannot be listened on, in the system's words and no others."""
    # The numbers of name resolution are not the system's.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)


def written(host: str, port: int) -> str:
    """Host and port in one, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain(address: str) -> str:
    """An IPv4 address that a socket for both gives inside IPv6, as people know it; any other as it is."""
    if not address.lower().startswith("::ffff:"):
        return address
    mapped = ipaddress.IPv6Address(address.partition("%")[0]).ipv4_mapped
    return address if mapped is None else str(mapped)


def is_loopback(address: str) -> bool:
    """Whether an IP address, also an IPv4 one inside IPv6, is of this machine only."""
    try:
        return ipaddress.ip_address(plain(address).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _resolve(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """The families and addresses of a host, each once."""
    flags = socket.AI_PASSIVE
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        # What is too long for a name, or has an empty part, is not even looked for.
        raise OSError(None, "Not a host name") from error
    addresses: dict[tuple[socket.AddressFamily, str], None] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            addresses[family, str(address[0])] = None
    return list(addresses)
