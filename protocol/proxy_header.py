"""Parser of PROXY protocol headers, in which a proxy sends the addresses of the client's connection.

The reader never asks for bytes behind the header: they may be TLS.

Source: https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt
"""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass
from typing import Final

_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_VERSION_1: Final = b"PROXY "
#: Version 1: length of the shortest header (PROXY UNKNOWN), and of the longest one.
_V1_SIZE_MIN: Final = 15
_V1_SIZE_MAX: Final = 107
#: Version 2: signature, version and command, family and transport, size of the variable part.
_FIXED: Final = struct.Struct(">12sBBH")
#: Largest variable part of version 2 in bytes: addresses and a few extensions.
_SIZE_MAX: Final = 4096
_LOCAL: Final = 0
_PROXY: Final = 1
_TCP: Final = 1
#: Address family in version 2: both addresses and both ports.
_INET: Final = (1, struct.Struct(">4s4sHH"))
_INET6: Final = (2, struct.Struct(">16s16sHH"))
_PORT: Final = re.compile(rb"0|[1-9][0-9]{0,4}")


class MalformedProxyHeader(Exception):
    """The bytes are not a header of the PROXY protocol; the text says why."""


@dataclass(frozen=True, slots=True)
class ProxiedAddresses:
    """Addresses of the connection between client and proxy.

    Attributes:
        peer: Address and port of the client.
        local: Address and port that the client has connected to.
    """

    peer: tuple[str, int]
    local: tuple[str, int]


class ProxyHeaderReader:
    """Incremental parser of one PROXY protocol header.

    Attributes:
        bytes_needed: Bytes to pass to receive() next at most; 0 when the header is complete.
        addresses: Addresses in the complete header; None to use those of the socket: the proxy itself has connected
            (LOCAL), or does not know the client (UNKNOWN).
    """

    def __init__(self) -> None:
        self._octets = b""
        self.bytes_needed = len(_SIGNATURE)
        self.addresses: ProxiedAddresses | None = None

    def receive(self, octets: bytes) -> None:
        """Parse more bytes, at most bytes_needed.

        Raises:
            MalformedProxyHeader: The bytes are not a PROXY header. The reader cannot be used any more.
        """
        assert 0 < len(octets) <= self.bytes_needed
        self._octets += octets
        header = self._octets
        if header.startswith(_SIGNATURE[: len(header)]):
            self._receive_v2(header)
        elif header.startswith(_VERSION_1[: len(header)]):
            self._receive_v1(header)
        else:
            raise MalformedProxyHeader("the connection does not begin with a PROXY protocol header")

    def _receive_v1(self, header: bytes) -> None:
        if header.endswith(b"\r\n"):
            self.bytes_needed = 0
            self.addresses = _parse_v1(header[:-2])
        elif len(header) >= _V1_SIZE_MAX or b"\n" in header:
            raise MalformedProxyHeader("the line of version 1 is too long, or does not end in CR LF")
        else:
            self.bytes_needed = max(_V1_SIZE_MIN - len(header), 1)

    def _receive_v2(self, header: bytes) -> None:
        if len(header) < _FIXED.size:
            self.bytes_needed = _FIXED.size - len(header)
            return
        _, command, family, size = _FIXED.unpack_from(header)
        if command >> 4 != 2 or command & 15 not in (_LOCAL, _PROXY):
            raise MalformedProxyHeader(f"version and command are 0x{command:02x}")
        if size > _SIZE_MAX:
            raise MalformedProxyHeader(f"the header of version 2 has {size} octets, more than {_SIZE_MAX}")
        self.bytes_needed = _FIXED.size + size - len(header)
        if not self.bytes_needed and command & 15 == _PROXY:
            self.addresses = _parse_v2(family, header[_FIXED.size :])


def _parse_v1(line: bytes) -> ProxiedAddresses | None:
    """Parse the line of version 1, without CR LF."""
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise MalformedProxyHeader("the line of version 1 is not PROXY TCP4|TCP6|UNKNOWN with two addresses and ports")
    version = 4 if words[1] == b"TCP4" else 6
    peer, local = _address(words[2], version), _address(words[3], version)
    return ProxiedAddresses((peer, _port(words[4])), (local, _port(words[5])))


def _address(word: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise MalformedProxyHeader("an address of version 1 is not an IP address") from None
    if address.version != version or b"%" in word:
        raise MalformedProxyHeader(f"an address of version 1 is not one of IPv{version}")
    return str(address)


def _port(word: bytes) -> int:
    if not _PORT.fullmatch(word) or int(word) > 65535:
        raise MalformedProxyHeader("a port of version 1 is not a port number")
    return int(word)


def _parse_v2(family: int, octets: bytes) -> ProxiedAddresses | None:
    """Parse the variable part of version 2: addresses, then extensions, which are skipped."""
    for number, form in (_INET, _INET6):
        if family == number << 4 | _TCP:
            if len(octets) < form.size:
                raise MalformedProxyHeader("the header of version 2 is too short for its addresses")
            peer, local, peer_port, local_port = form.unpack_from(octets)
            return ProxiedAddresses((_unpack_address(peer), peer_port), (_unpack_address(local), local_port))
    # Unspecified, a Unix socket, a datagram: the addresses are those of the socket.
    return None


def _unpack_address(octets: bytes) -> str:
    return str(ipaddress.ip_address(octets))
