"""Sessions of the web pages without a browser: what a cookie may do, and what pages of another origin may not."""

from __future__ import annotations

import http.client
import json
import urllib.request
from contextlib import closing
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

UI = {"X-Leveret-UI": "1"}


def log_in(process: LeveretProcess, **headers: str) -> str:
    """Log in as guest; return the cookie."""
    url = f"{Management(process.http_url).base}/api/session"
    request = urllib.request.Request(url, b"username=guest&password=guest", {**UI, **headers})
    with urllib.request.urlopen(request) as answer:
        cookie: str = answer.headers["Set-Cookie"]
    return cookie.partition(";")[0]


def status(process: LeveretProcess, method: str, path: str, **headers: str) -> int:
    """Send a request without a password; return the status of the answer."""
    connection = http.client.HTTPConnection(urlsplit(process.http_url).netloc.rpartition("@")[2], timeout=60)
    body = '{"type":"fanout"}' if method == "PUT" else None
    with closing(connection):
        connection.request(method, f"/api/{path}", body, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        # Else a browser would ask for a password itself.
        asks = answer.status == 401 and "X-Leveret-UI" not in headers
        assert (answer.getheader("WWW-Authenticate") is not None) == asks
        return answer.status


def test_a_new_session_ends_the_old_one(process: LeveretProcess) -> None:
    old = log_in(process)
    new = log_in(process, Cookie=old)
    assert [status(process, "GET", "whoami", Cookie=cookie, **UI) for cookie in (old, new)] == [401, 200]


def test_a_cookie_alone_changes_nothing(process: LeveretProcess) -> None:
    cookie = log_in(process)
    path = "exchanges/%2F/by-cookie"
    assert status(process, "PUT", path, Cookie=cookie) == 401
    assert status(process, "PUT", path, Cookie=cookie, **UI) == 201
    assert status(process, "DELETE", path, Cookie=cookie, **UI) == 204


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
    ],
)
def test_changes_for_another_origin_are_refused_with_a_reason(process: LeveretProcess, headers: dict[str, str]) -> None:
    api = Management(process.http_url)
    for path, method in ((("vhosts", "stolen"), "PUT"), (("login",), "POST"), (("session",), "POST")):
        with pytest.raises(HTTPError) as refusal:
            api.request(method, *path, body={}, headers=headers)
        assert refusal.value.code == 403
        assert json.load(refusal.value)["reason"] == "A page of another origin may not change anything here."
    assert "stolen" not in [vhost["name"] for vhost in api.request("GET", "vhosts", headers=headers)]


def test_programs_and_the_own_origin_are_not_refused(process: LeveretProcess) -> None:
    api = Management(process.http_url)
    for headers in ({}, {"Origin": api.base}, {"Sec-Fetch-Site": "same-origin"}):
        api.request("PUT", "exchanges", "/", "declared-by-a-program", body={"type": "fanout"}, headers=headers)
