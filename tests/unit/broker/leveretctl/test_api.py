"""The HTTP client, with a real server that misbehaves in the ways that count."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from leveret.broker.leveretctl.api import Api
from leveret.broker.leveretctl.command_errors import ApiFault, RequestTimeout, Unreachable, to_command_fault
from leveret.broker.leveretctl.command_line import Address
from tests.support.stub_api import StubApi, stub_api

ANSWERS: dict[str, tuple[int, bytes]] = {
    "/api/list": (200, b'[{"a":1}]'),
    "/api/nothing": (204, b""),
    "/api/escaped": (400, json.dumps({"error": "bad_request", "reason": "&lt;&lt;&quot;x&quot;&gt;&gt; no"}).encode()),
    "/api/tuple": (400, b'{"error":"bad_request","reason":["no_such_vhost","v",5]}'),
    "/api/missing": (404, b'{"error":"Object Not Found","reason":"Not Found"}'),
    "/api/denied": (401, b'{"error":"not_authorised","reason":"Not administrator user"}'),
    "/api/login": (401, b'{"error":"not_authorized","reason":"Login failed"}'),
    "/api/proxy": (502, b"<html>Bad gateway</html>"),
    "/api/empty": (406, b""),
}


@pytest.fixture
def server() -> Iterator[StubApi]:
    with stub_api(ANSWERS) as running:
        yield running


def address(server: StubApi) -> Address:
    return Address("http", "127.0.0.1", server.port, "", "us er", "p:w")


@pytest.fixture
def api(server: StubApi) -> Iterator[Api]:
    opened = Api(address(server), 5)
    yield opened
    opened.close()


def test_requests(api: Api, server: StubApi) -> None:
    assert api.get("list") == [{"a": 1}]
    assert api.put("nothing", body={"x": "ж"}) is None
    api.delete("a/b", "c d", headers={"X-Reason": "r"}, flag=True, absent=None)
    requests = server.requests
    assert [(method, path) for method, path, _, _ in requests] == [
        ("GET", "/api/list"),
        ("PUT", "/api/nothing"),
        ("DELETE", "/api/a%2Fb/c%20d?flag=true"),
    ]
    assert json.loads(requests[1][2]) == {"x": "ж"}
    assert requests[0][3]["Authorization"] == "Basic dXMgZXI6cDp3"
    assert requests[2][3]["X-Reason"] == "r"


def test_a_prefix(server: StubApi) -> None:
    api = Api(address(server)._replace(prefix="/mgmt"), 5)
    api.get("list")
    api.close()
    assert server.requests[0][1] == "/mgmt/api/list"


def test_another_login(api: Api, server: StubApi) -> None:
    other = api.as_user("u", "p")
    other.get("list")
    other.close()
    assert server.requests[0][3]["Authorization"] == "Basic dTpw"


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        ("escaped", 400, "<<&quot;x&quot;>> no"),
        ("tuple", 400, "no_such_vhost, v, 5"),
        ("missing", 404, "Not Found"),
        ("denied", 401, "Not administrator user"),
        ("proxy", 502, "<html>Bad gateway</html>"),
        ("empty", 406, "Not Acceptable"),
    ],
)
def test_refusals(api: Api, path: str, status: int, reason: str) -> None:
    with pytest.raises(ApiFault) as caught:
        api.get(path)
    assert (caught.value.status, caught.value.reason, caught.value.not_found) == (status, reason, status == 404)


def test_find(api: Api) -> None:
    assert api.find("missing") is None
    assert api.find("list") == [{"a": 1}]
    with pytest.raises(ApiFault):
        api.find("denied")


def test_what_is_said_about_refusals(api: Api) -> None:
    for path, expected in (
        ("denied", "Error:\nNot administrator user"),
        ("login", "Error:\nLogin failed: wrong user name or password (--url http://user:password@host:port)"),
    ):
        with pytest.raises(ApiFault) as caught:
            api.get(path)
        assert to_command_fault(caught.value).text == expected


def test_a_connection_that_was_closed_meanwhile_is_opened_again(api: Api, server: StubApi) -> None:
    for _ in range(3):
        assert api.get("closing") == {}
    assert len(server.requests) == 3


def test_no_answer_in_time(server: StubApi) -> None:
    api = Api(address(server), 0.1)
    with pytest.raises(RequestTimeout):
        api.get("hang")
    api.close()


def test_connection_refused(server: StubApi) -> None:
    api = Api(address(server)._replace(port=1), 5)
    with pytest.raises(Unreachable, match="refused"):
        api.get("list")
