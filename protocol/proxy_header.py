"""The PROXY protocol, by which a proxy says whose connection it hands on.

The reader takes its header octet by octet if it must, and not one octet of what follows: that may be TLS.

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
#: Of version 1: what is never longer than the shortest header, PROXY UNKNOWN, and the longest there is.
_SHORTEST: Final = 15
_LONGEST: Final = 107
#: Of version 2: signature, version and command, family and transport, size of what follows.
_FIXED: Final = struct.Struct(">12sBBH")
#: What a header of version 2 may be long at most: addresses and a few extensions.
_SIZE_MAX: Final = 4096
_LOCAL: Final = 0
_PROXY: Final = 1
_TCP: Final = 1
#: Address family in version 2: both addresses and both ports.
_INET: Final = (1, struct.Struct(">4s4sHH"))
_INET6: Final = (2, struct.Struct(">16s16sHH"))
_PORT: Final = re.compile(rb"0|[1-9][0-9]{0,4}")


class MalformedProxyHeader(Exception):
    """It is not a header of the PROXY protocol; the text says why."""


@dataclass(frozen=True, slots=True)
class ProxiedEnds:
    """The ends of a connection as the proxy sees them.

    Attributes:
        peer: Address and port of the client.
        local: Address and port that it has connected to.
    """

    peer: tuple[str, int]
    local: tuple[str, int]


class ProxyHeaderReader:
    """Reads one header.

    Attributes:
        wanted: How many octets to give it next at most; 0 when the header is complete.
        ends: What the header says, once it is complete; None if the ends are those of the socket: the proxy itself
            has connected (LOCAL), or does not tell (UNKNOWN).
    """

    def __init__(self) -> None:
        self._octets = b""
        self.wanted = len(_SIGNATURE)
        self.ends: ProxiedEnds | None = None

    def receive(self, octets: bytes) -> None:
        """Take octets, not more than wanted.

        Raises:
            MalformedProxyHeader: This is none. The reader cannot be used any more.
        """
        assert 0 < len(octets) <= self.wanted
        self._octets += octets
        found = self._octets
        if found.startswith(_SIGNATURE[: len(found)]):
            self._receive_2(found)
        elif found.startswith(_VERSION_1[: len(found)]):
            self._receive_1(found)
        else:
            raise MalformedProxyHeader("the connection does not begin with a PROXY protocol header")

    def _receive_1(self, found: bytes) -> None:
        if found.endswith(b"\r\n"):
            self.wanted = 0
            self.ends = _parse_1(found[:-2])
        elif len(found) >= _LONGEST or b"\n" in found:
            raise MalformedProxyHeader("the line of version 1 is too long, or does not end in CR LF")
        else:
            self.wanted = max(_SHORTEST - len(found), 1)

    def _receive_2(self, found: bytes) -> None:
        if len(found) < _FIXED.size:
            self.wanted = _FIXED.size - len(found)
            return
        _, command, family, size = _FIXED.unpack_from(found)
        if command >> 4 != 2 or command & 15 not in (_LOCAL, _PROXY):
            raise MalformedProxyHeader(f"version and command are 0x{command:02x}")
        if size > _SIZE_MAX:
            raise MalformedProxyHeader(f"the header of version 2 has {size} octets, more than {_SIZE_MAX}")
        self.wanted = _FIXED.size + size - len(found)
        if not self.wanted and command & 15 == _PROXY:
            self.ends = _parse_2(family, found[_FIXED.size :])


def _parse_1(line: bytes) -> ProxiedEnds | None:
    """The line of version 1, without its end."""
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise MalformedProxyHeader("the line of version 1 is not PROXY TCP4|TCP6|UNKNOWN with two addresses and ports")
    version = 4 if words[1] == b"TCP4" else 6
    peer, local = _address(words[2], version), _address(words[3], version)
    return ProxiedEnds((peer, _port(words[4])), (local, _port(words[5])))


def _address(word: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise MalformedProxyHeader("an address of version 1 is none") from None
    if address.version != version or b"%" in word:
        raise MalformedProxyHeader(f"an address of version 1 is not one of IPv{version}")
    return str(address)


def _port(word: bytes) -> int:
    if not _PORT.fullmatch(word) or int(word) > 65535:
        raise MalformedProxyHeader("a port of version 1 is none")
    return int(word)


def _parse_2(family: int, octets: bytes) -> ProxiedEnds | None:
    """What follows the fixed part of version 2: addresses, then extensions, which are skipped."""
    for number, form in (_INET, _INET6):
        if family == number << 4 | _TCP:
            if len(octets) < form.size:
                raise MalformedProxyHeader("the header of version 2 is too short for its addresses")
            peer, local, peer_port, local_port = form.unpack_from(octets)
            return ProxiedEnds((_packed(peer), peer_port), (_packed(local), local_port))
    # Unspecified, a Unix socket, a datagram: the connection is to be taken as it is.
    return None


def _packed(octets: bytes) -> str:
    return str(ipaddress.ip_address(octets))
