from __future__ import annotations

import socket
from typing import Any

import pytest

from leveret.broker.addresses import connection_name, disable_delay, endpoints, is_loopback, socket_name
from tests.support.manual_loop import ManualLoop
from tests.support.memory_transport import MemoryTransport


def transport(**extra: Any) -> MemoryTransport:
    return MemoryTransport(ManualLoop(), extra)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.0.0.2", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::ffff:127.9.8.7", "::1%lo"],
)
def test_loopback_addresses(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "128.0.0.1", "0.0.0.0", "::", "::2", "fe80::1%eth0", "::ffff:10.0.0.1", "localhost", "", "127.0.0"],
)
def test_other_addresses(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("peer", "own", "expected"),
    [
        (("10.0.0.9", 4711), ("10.0.0.1", 5672), "10.0.0.9:4711 -> 10.0.0.1:5672"),
        # As RabbitMQ does: brackets around IPv6, and IPv4 inside IPv6 is IPv4.
        (("::1", 4711, 0, 0), ("::1", 5672, 0, 0), "[::1]:4711 -> [::1]:5672"),
        (("fe80::1%eth0", 4711, 0, 2), ("fe80::2%eth0", 5672, 0, 2), "[fe80::1%eth0]:4711 -> [fe80::2%eth0]:5672"),
        (("::ffff:10.0.0.9", 4711, 0, 0), ("::ffff:10.0.0.1", 5672, 0, 0), "10.0.0.9:4711 -> 10.0.0.1:5672"),
        (None, ("10.0.0.1", 5672), "? -> 10.0.0.1:5672"),
        (None, None, "? -> ?"),
    ],
)
def test_a_connection_is_named_by_its_addresses(peer: object, own: object, expected: str) -> None:
    assert connection_name(*endpoints(transport(peername=peer, sockname=own))) == expected


def test_a_socket_is_named_likewise() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, listening.accept()[0] as accepted:
            assert socket_name(accepted) == f"127.0.0.1:{client.getsockname()[1]} -> 127.0.0.1:{port}"
    assert socket_name(accepted) == "? -> ?"


def test_tcp_nodelay_is_set() -> None:
    with socket.socket() as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        disable_delay(transport(socket=sock))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_sockets_other_than_tcp_are_unchanged() -> None:
    disable_delay(transport(socket=None))
    left, right = socket.socketpair(socket.AF_UNIX)
    with left, right:
        disable_delay(transport(socket=left))
