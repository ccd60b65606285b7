"""Idle HTTP connections are closed; those that make progress, however slowly, are not."""

from __future__ import annotations

import json
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.integration.management.test_bad_clients import answer, connected, head
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

#: They have 5 s; the machine may be slow. Less than any other end of a connection, which comes after a minute.
SOON = 30.0
FORM = "Content-Type: application/x-www-form-urlencoded"


def _takes(sock: socket.socket, octets: bytes) -> bool:
    """Send some more; tell whether the connection is still there."""
    try:
        sock.sendall(octets)
    except TimeoutError:
        return True
    except ConnectionError:
        return False
    return True


@pytest.fixture(scope="module")
def api(process: LeveretProcess) -> HttpApi:
    return HttpApi(Management(process.http_url))


@pytest.mark.parametrize(
    ("octets", "answered"),
    [
        (b"", b""),
        (b"G", b" 408 "),
        (b"GET /api/whoami HTTP/1.1\r\nHost: x\r\n", b" 408 "),
        (head("POST", "login", FORM, "Content-Length: 10") + b"user", b" 408 "),
        (head("PUT", "vhosts/half", "Content-Length: 10") + b"{", b""),
    ],
)
def test_what_is_half_sent_is_closed(process: LeveretProcess, octets: bytes, answered: bytes) -> None:
    with connected(process) as sock:
        sock.settimeout(SOON)
        sock.sendall(octets)
        try:
            assert answered in answer(sock)
        except ConnectionResetError:
            assert not answered


def test_a_later_request_that_is_half_sent_is_closed(process: LeveretProcess) -> None:
    with connected(process) as sock:
        sock.settimeout(SOON)
        sock.sendall(head("GET", "whoami"))
        assert b" 200 " in sock.recv(65536)
        sock.sendall(b"GET ")
        assert answer(sock) == b""


def test_a_head_that_comes_byte_by_byte_is_closed(process: LeveretProcess) -> None:
    with connected(process) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nX: ")
        sock.settimeout(0.2)
        wait_until(lambda: not _takes(sock, b"x"), "the connection is closed", timeout=SOON)


def test_an_answer_that_nobody_reads_is_closed(process: LeveretProcess) -> None:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", urlsplit(process.http_url).port or 0))
        sock.settimeout(0.2)
        wait_until(lambda: not _takes(sock, head("GET", "overview") * 100), "the connection is closed", timeout=SOON)


def test_the_next_request_may_wait(process: LeveretProcess) -> None:
    with connected(process) as sock:
        for seconds in (0, 7):
            time.sleep(seconds)
            sock.sendall(head("GET", "whoami"))
            assert b" 200 " in sock.recv(65536)


def test_what_gets_on_is_not_closed(process: LeveretProcess, api: HttpApi) -> None:
    """A body, and an answer, that take longer than a client may do nothing."""
    body = json.dumps({"description": "d" * 400_000}).encode()
    with connected(process) as sock:
        sock.sendall(head("PUT", path("vhosts", "slow"), f"Content-Length: {len(body)}"))
        for start in range(0, len(body), len(body) // 8):
            time.sleep(1)
            sock.sendall(body[start : start + len(body) // 8])
        assert b" 201 " in sock.recv(65536)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", urlsplit(process.http_url).port or 0))
        sock.settimeout(SOON)
        count = 40
        asking = threading.Thread(target=sock.sendall, args=(head("GET", "vhosts/slow") * count,))
        asking.start()
        received, size, ended = 0, count * 400_000, time.monotonic() + 8
        while received < size:
            # The same share of all of it in each second.
            if received < size * (1 - max(ended - time.monotonic(), 0) / 8):
                received += len(sock.recv(65536))
            else:
                time.sleep(0.01)
        asking.join()
    api.check("DELETE", path("vhosts", "slow"), None, 204)
