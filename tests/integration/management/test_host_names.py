"""Under which names guest may log in, and what answers tell of who gives them."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.conformance.http_api import HttpApi
from tests.integration.management.test_bad_clients import answer
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management


def ask(process: LeveretProcess, host: str, user: str = "guest", target: str = "/api/whoami") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(process.http_url).port, timeout=60)
    login = Management(process.http_url.replace("guest:guest", f"{user}:{user}")).authorization
    with closing(connection):
        connection.request("GET", target, headers={"Host": host, "Authorization": login})
        reply = connection.getresponse()
        return reply.status, reply.read()


OWN = ("localhost", "localhost:15672", "LOCALHOST.", "a.localhost", "127.0.0.1:1", "[::1]:15672", "10.1.2.3", "")


@pytest.mark.parametrize("host", [*OWN, socket.gethostname()])
def test_own_names(process: LeveretProcess, host: str) -> None:
    assert ask(process, host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:15672", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_a_foreign_name_cannot_log_in_as_guest(process: LeveretProcess, host: str) -> None:
    status, body = ask(process, host)
    assert status == 403
    assert b"management.allowed_hosts" in body


def test_other_users_and_pages_without_login_have_any_name(process: LeveretProcess) -> None:
    api = HttpApi(Management(process.http_url))
    api.check("PUT", "users/other", {"password": "other", "tags": "management"}, 201)
    assert ask(process, "evil.example", "other")[0] == 200
    assert ask(process, "evil.example", target="/")[0] == 200
    api.check("DELETE", "users/other", None, 204)


@pytest.mark.parametrize("allowed", ["rabbit.example,console.example", "*"])
def test_names_that_are_allowed(leveret_process: object, allowed: str) -> None:
    process = leveret_process(settings={"management.allowed_hosts": allowed})  # type: ignore[operator]
    assert ask(process, "Console.example:15672")[0] == 200


@pytest.mark.parametrize(
    "octets", [b"GET /metrics HTTP/1.0\r\n\r\n", b"GET /none HTTP/1.0\r\n\r\n", b"nothing\r\n\r\n"]
)
def test_answers_do_not_tell_of_libraries(process: LeveretProcess, octets: bytes) -> None:
    for url in (process.http_url, process.prometheus_url):
        with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=60) as sock:
            sock.sendall(octets)
            received = answer(sock)
        assert b"Server: Leveret" in received or b"server: Leveret" in received
        assert b"aiohttp" not in received
