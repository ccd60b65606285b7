"""Clients that send no HTTP, half of it, or go in the middle: they are refused, and nothing is logged as our fault."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

_LOGIN = Management("http://guest:guest@x").authorization


@contextmanager
def connected(process: LeveretProcess) -> Iterator[socket.socket]:
    """A connection to the HTTP API."""
    with socket.create_connection(("127.0.0.1", urlsplit(process.http_url).port or 0), timeout=120) as sock:
        yield sock


def head(method: str, below: str, *fields: str) -> bytes:
    """The head of a request with a right login."""
    lines = (f"{method} /api/{below} HTTP/1.1", "Host: localhost", f"Authorization: {_LOGIN}", *fields, "", "")
    return "\r\n".join(lines).encode()


def answer(sock: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    received = b""
    while more := sock.recv(65536):
        received += more
    return received


@pytest.mark.parametrize(
    "octets",
    [
        b"AMQP\0\0\x09\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/whoami HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /api/whoami HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        head("POST", "definitions", "Content-Length: -1"),
        head("POST", "definitions", "Transfer-Encoding: chunked") + b"no number\r\n",
        head("POST", "definitions", "Content-Encoding: gzip", "Content-Length: 5") + b"hello",
    ],
)
def test_what_is_no_request_is_400(process: LeveretProcess, octets: bytes) -> None:
    with connected(process) as sock:
        sock.sendall(octets)
        assert b" 400 " in sock.recv(65536)[:20]
    assert "Traceback" not in process.log_text()


def test_bodies_that_do_not_end(process: LeveretProcess, api: HttpApi) -> None:
    for _ in range(5):
        with connected(process) as sock:
            sock.sendall(head("PUT", "vhosts/half", "Content-Length: 1000") + b'{"description"')
    # A later request on the same loop comes after these.
    wait_until(lambda: api.ask("GET", "vhosts/half").status == 404, "no virtual host half made")
    assert "Traceback" not in process.log_text()


def test_a_change_is_finished_without_who_asked_for_it(process: LeveretProcess, api: HttpApi) -> None:
    api.check("PUT", path("vhosts", "v"), None, 201)
    queues = [{"name": f"q{number}", "durable": True, "auto_delete": False, "arguments": {}} for number in range(500)]
    api.check("POST", path("definitions", "v"), {"queues": queues}, 204)
    with connected(process) as sock:
        sock.sendall(head("DELETE", "vhosts/v"))
    wait_until(lambda: api.ask("GET", path("vhosts", "v")).status == 404, "the virtual host gone")
    assert api.get("queues") == []
    assert "Traceback" not in process.log_text()


def test_lists_that_nobody_waits_for(process: LeveretProcess, api: HttpApi) -> None:
    for size in (0, 1, 100):
        with connected(process) as sock:
            sock.sendall(head("GET", "overview"))
            sock.recv(size)
    assert api.get("whoami")["name"] == "guest"
    assert "Traceback" not in process.log_text()


def test_a_head_that_comes_octet_by_octet(process: LeveretProcess) -> None:
    with connected(process) as sock:
        for octet in head("GET", "whoami", "Connection: close"):
            sock.sendall(bytes((octet,)))
        assert answer(sock).startswith(b"HTTP/1.1 200 ")


def test_many_requests_at_once_on_one_connection(process: LeveretProcess) -> None:
    with connected(process) as sock:
        sock.sendall(head("GET", "whoami") * 99 + head("GET", "whoami", "Connection: close"))
        assert answer(sock).count(b"HTTP/1.1 200 ") == 100
