"""Connections that come through a proxy, which says in a header whose they are."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.certificates import Authority
from tests.integration.program import Program, running
from tests.integration.waiting import wait_until
from tests.support.management import Management

CLIENT = "203.0.113.7"
NAME = f"{CLIENT}:40000 -> 198.51.100.1:5672"
HEADER_1 = f"PROXY TCP4 {CLIENT} 198.51.100.1 40000 5672\r\n".encode()
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
#: With an extension: no operation, three octets of padding.
HEADER_2 = (
    SIGNATURE
    + struct.pack(">BBH", 0x21, 0x11, 18)
    + socket.inet_aton(CLIENT)
    + socket.inet_aton("198.51.100.1")
    + struct.pack(">HH", 40000, 5672)
    + b"\x04\x00\x03abc"
)
HEADER_2_IPV6 = (
    SIGNATURE
    + struct.pack(">BBH", 0x21, 0x21, 36)
    + socket.inet_pton(socket.AF_INET6, "2001:db8::7")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack(">HH", 40000, 5672)
)
LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
PROTOCOL = b"AMQP\x00\x00\x09\x01"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Program]:
    """A broker behind a proxy, with a port for TLS too."""
    issued = authority.issue("127.0.0.1")
    options = {
        "proxy_protocol": "true",
        # Long enough for the test of what ends "at once" to notice that something else had ended it.
        "handshake_timeout": "60000",
        "ssl_options.certfile": issued.certificate,
        "ssl_options.keyfile": issued.key,
    }
    arguments = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    with running(tmp_path_factory.mktemp("leveret"), "--amqps-port", "0", *arguments) as started:
        yield started


def connect(program: Program, name: str = "amqp") -> socket.socket:
    host, port = program.addresses[name].rsplit(":", 1)
    connected = socket.create_connection((host, int(port)), timeout=120)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def receive(sock: socket.socket) -> bytes:
    """What comes next; nothing if the connection has ended."""
    try:
        return sock.recv(4096)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (HEADER_1, NAME),
        (HEADER_2, NAME),
        (HEADER_2_IPV6, "[2001:db8::7]:40000 -> [2001:db8::1]:5672"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 5672\r\n", "[2001:db8::7]:40000 -> [2001:db8::1]:5672"),
    ],
    ids=["1", "2", "2-ipv6", "1-ipv6"],
)
def test_the_log_names_the_client(program: Program, header: bytes, name: str) -> None:
    before = program.log().count(f"accepting AMQP connection {name}\n")
    with connect(program) as sock:
        sock.sendall(header + PROTOCOL)
        assert receive(sock).startswith(b"\x01\x00\x00")
    assert program.log().count(f"accepting AMQP connection {name}\n") == before + 1


@pytest.mark.parametrize("header", [HEADER_1, HEADER_2])
def test_octet_by_octet(program: Program, header: bytes) -> None:
    with connect(program) as sock:
        for octet in header + PROTOCOL:
            sock.sendall(bytes([octet]))
        assert receive(sock).startswith(b"\x01\x00\x00")


@pytest.mark.parametrize("header", [LOCAL, b"PROXY UNKNOWN\r\n"], ids=["local", "unknown"])
def test_the_proxy_itself_connects(program: Program, header: bytes) -> None:
    with connect(program) as sock:
        own = "{}:{}".format(*sock.getsockname())
        sock.sendall(header + PROTOCOL)
        assert receive(sock).startswith(b"\x01\x00\x00")
    assert f"accepting AMQP connection {own} -> {program.addresses['amqp']}" in program.log()


@pytest.mark.parametrize(
    "octets",
    [PROTOCOL + bytes(8), b"PROXY TCP4 1.2.3.4\r\n" + bytes(20), SIGNATURE + b"\x31\x11\x00\x0c" + bytes(12)],
    ids=["none", "1", "2"],
)
def test_a_malformed_header_ends_the_connection_at_once(program: Program, octets: bytes) -> None:
    with connect(program) as sock:
        own = "{}:{}".format(*sock.getsockname())
        sock.sendall(octets)
        assert receive(sock) == b""
    wait_until(lambda: f"closing AMQP connection {own}" in program.log(), "the log says why")
    (line,) = [line for line in program.log().splitlines() if f"closing AMQP connection {own}" in line]
    assert "PROXY protocol header" in line


def test_a_header_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "proxy_protocol=true", "--set", "handshake_timeout=700") as program:
        with connect(program) as sock:
            sock.sendall(HEADER_1[:20])
            assert receive(sock) == b""
        wait_until(lambda: "PROXY protocol header: not received within 0.7 s" in program.log(), "the log says why")


def test_a_client_that_goes_away_at_once_is_forgotten(program: Program) -> None:
    for _ in range(3):
        connect(program).close()
    assert "Traceback" not in program.log()


def log_in(sock: socket.socket) -> None:
    """Log in as guest."""
    sock.sendall(PROTOCOL)
    receive(sock)
    response = b"\x00guest\x00guest"
    arguments = bytes(4) + b"\x05PLAIN" + struct.pack(">I", len(response)) + response + b"\x05en_US"
    payload = b"\x00\x0a\x00\x0b" + arguments
    sock.sendall(b"\x01\x00\x00" + struct.pack(">I", len(payload)) + payload + b"\xce")


def answered(sock: socket.socket) -> bytes:
    """Log in as guest; return the method that comes then."""
    log_in(sock)
    return receive(sock)[7:11]


def test_loopback_users_are_those_of_the_client(program: Program) -> None:
    """The proxy is on this machine; the client is not, so that guest may not log in."""
    tune = b"\x00\x0a\x00\x1e"
    with connect(program) as sock:
        sock.sendall(LOCAL)
        assert answered(sock) == tune
    with connect(program) as sock:
        sock.sendall(b"PROXY TCP6 ::1 ::1 40000 5672\r\n")
        assert answered(sock) == tune
    with connect(program) as sock:
        sock.sendall(HEADER_1)
        log_in(sock)
        sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            receive(sock)
    refusal = f"closing AMQP connection {NAME}: PLAIN login refused: user 'guest'"
    wait_until(lambda: refusal in program.log(), "the log says why")


@pytest.mark.parametrize("header", [HEADER_1, HEADER_2, LOCAL], ids=["1", "2", "local"])
def test_tls_begins_behind_the_header(program: Program, authority: Authority, header: bytes) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    with connect(program, "amqps") as sock:
        sock.sendall(header)
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as encrypted:
            encrypted.sendall(PROTOCOL)
            assert encrypted.recv(4096).startswith(b"\x01\x00\x00")


def test_tls_without_the_header_is_refused(program: Program, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    with connect(program, "amqps") as sock, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(sock, server_hostname="127.0.0.1")


def test_management_shows_the_client(tmp_path: Path) -> None:
    with running(tmp_path, "--set", "proxy_protocol=true", "--set", "loopback_users=none") as program:
        management = Management(program.http_url)
        with connect(program) as sock:
            sock.sendall(HEADER_1)
            assert answered(sock) == b"\x00\x0a\x00\x1e"
            sock.sendall(b"\x01\x00\x00\x00\x00\x00\x0c\x00\x0a\x00\x1f\x07\xff\x00\x02\x00\x00\x00\x00\xce")
            sock.sendall(b"\x01\x00\x00\x00\x00\x00\x08\x00\x0a\x00\x28\x01/\x00\x00\xce")
            assert receive(sock)[7:11] == b"\x00\x0a\x00\x29"
            connections: list[Any] = management.request("GET", "connections")
    (shown,) = connections
    assert (shown["name"], shown["peer_host"], shown["peer_port"]) == (NAME, CLIENT, 40000)
    assert (shown["host"], shown["port"]) == ("198.51.100.1", 5672)
