"""The PROXY protocol: headers of both versions, in any pieces, and what is none."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocol.proxy_header import MalformedProxyHeader, ProxiedAddresses, ProxyHeaderReader

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
PORTS = st.integers(0, 65535)
ADDRESSES = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)), st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6))
)
ENDS = st.tuples(ADDRESSES, PORTS, PORTS)
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def version_1(ends: tuple[tuple[Address, Address], int, int]) -> bytes:
    (peer, local), peer_port, local_port = ends
    return f"PROXY TCP{peer.version} {peer} {local} {peer_port} {local_port}\r\n".encode()


def version_2(
    ends: tuple[tuple[Address, Address], int, int], extensions: bytes = b"", command: int = 0x21, family: int = 0
) -> bytes:
    (peer, local), peer_port, local_port = ends
    family = family or (0x11 if peer.version == 4 else 0x21)
    addresses = peer.packed + local.packed + struct.pack(">HH", peer_port, local_port) + extensions
    return SIGNATURE + struct.pack(">BBH", command, family, len(addresses)) + addresses


def expected(ends: tuple[tuple[Address, Address], int, int]) -> ProxiedAddresses:
    (peer, local), peer_port, local_port = ends
    return ProxiedAddresses((str(peer), peer_port), (str(local), local_port))


def read(octets: bytes, most: int = 1 << 16) -> tuple[ProxiedAddresses | None, bytes]:
    """What the header says, and what has been left unread; at most this many octets are there at a time."""
    reader, at = ProxyHeaderReader(), 0
    while reader.bytes_needed:
        some = octets[at : at + min(reader.bytes_needed, most)]
        if not some:
            raise EOFError
        reader.receive(some)
        at += len(some)
    return reader.addresses, octets[at:]


@given(ENDS, st.binary(max_size=200), st.integers(1, 200))
def test_version_1(ends: tuple[tuple[Address, Address], int, int], behind: bytes, most: int) -> None:
    assert read(version_1(ends) + behind, most) == (expected(ends), behind)


@given(ENDS, st.binary(max_size=300), st.binary(max_size=200), st.integers(1, 400))
def test_version_2_with_extensions(
    ends: tuple[tuple[Address, Address], int, int], extensions: bytes, behind: bytes, most: int
) -> None:
    assert read(version_2(ends, extensions) + behind, most) == (expected(ends), behind)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n",
        b"PROXY UNKNOWN anything at all\r\n",
        SIGNATURE + b"\x20\x00\x00\x00",
        SIGNATURE + b"\x20\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x00\x00\x03abc",
        SIGNATURE + b"\x21\x31\x00\xd8" + bytes(216),
        SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12),
    ],
    ids=["unknown", "unknown-with-ends", "unknown-with-more", "local", "local-with-ends", "unspec", "unix", "udp"],
)
def test_ends_of_the_socket(header: bytes) -> None:
    assert read(header + b"AMQP") == (None, b"AMQP")


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"AMQP\x00\x00\x09\x01AAAAAAAA", "does not begin with"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03AAAA", "does not begin with"),
        (b"proxy TCP4 1.2.3.4 1.2.3.4 1 1\r\n", "does not begin with"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n" + bytes(90), "does not end in CR LF"),
        (b"PROXY UNKNOWN " + b"x" * 200, "too long"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "with two addresses"),
        (b"PROXY TCP4  1.2.3.4 1.2.3.4 1 1\r\n", "with two addresses"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n", "with two addresses"),
        (b"PROXY TCP4 1.2.3 1.2.3.4 1 1\r\n", "is not an IP address"),
        (b"PROXY TCP4 ::1 ::1 1 1\r\n", "not one of IPv4"),
        (b"PROXY TCP6 1.2.3.4 ::1 1 1\r\n", "not one of IPv6"),
        (b"PROXY TCP6 ::1%eth0 ::1 1 1\r\n", "not one of IPv6"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n", "port"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n", "port"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 1\r\n", "port"),
        (SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12), "0x11"),
        (SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12), "0x22"),
        (SIGNATURE + b"\x21\x11\xff\xff" + bytes(12), "65535 octets"),
        (SIGNATURE + b"\x21\x11\x00\x0b" + bytes(11), "too short"),
        (SIGNATURE + b"\x21\x21\x00\x0c" + bytes(12), "too short"),
    ],
)
@pytest.mark.parametrize("most", [1, 1 << 16])
def test_malformed(octets: bytes, text: str, most: int) -> None:
    with pytest.raises(MalformedProxyHeader, match=text):
        read(octets, most)


@given(st.binary(max_size=300), st.integers(1, 300))
def test_any_octets_end_well(octets: bytes, most: int) -> None:
    try:
        read(octets, most)
    except (MalformedProxyHeader, EOFError):
        pass


@given(st.binary(max_size=120), st.sampled_from([SIGNATURE, b"PROXY ", b"PROXY TCP4 ", SIGNATURE + b"\x21\x11\x00"]))
def test_any_octets_behind_a_good_beginning_end_well(octets: bytes, beginning: bytes) -> None:
    try:
        read(beginning + octets)
    except (MalformedProxyHeader, EOFError):
        pass
