"""Authentication of requests and visible virtual hosts."""

from __future__ import annotations

import base64
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.management.http.access import Access
from tests.support.memory_broker import MemoryBroker


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker with guest, one user for each tag, and the virtual hosts / and b."""
    made = MemoryBroker()
    made.broker.add_vhost("b")
    for tag in ("management", "monitoring", "administrator"):
        made.accounts.add_user(tag, "secret", (tag,))
        made.accounts.set_permissions(tag, "b", ".*", ".*", ".*")
    return made


@pytest.fixture
def access(broker: MemoryBroker) -> Access:
    return Access(AuthBackends(broker.accounts), broker.broker)


def request(user: str, password: str = "secret", **match: str) -> web.Request:
    header = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    return make_mocked_request("GET", "/api/x", {"authorization": header}, match_info=match)


def reason(refusal: pytest.ExceptionInfo[web.HTTPException]) -> str:
    assert refusal.value.text is not None
    found: str = json.loads(refusal.value.text)["reason"]
    return found


def test_loopback_user_is_refused_from_another_address(access: Access) -> None:
    with pytest.raises(web.HTTPUnauthorized) as refusal:
        access.require(request("guest", "guest"), "management")
    assert reason(refusal) == "User can only log in via localhost"
    with pytest.raises(web.HTTPUnauthorized) as refusal:
        access.require(request("guest", "wrong"), "management")
    assert reason(refusal) == "Login failed"


def test_each_attempt_is_counted_once(access: Access, broker: MemoryBroker) -> None:
    for password in ("guest", "wrong"):
        with pytest.raises(web.HTTPUnauthorized):
            access.require(request("guest", password), "management")
    counted = broker.accounts.attempts.by_protocol["http"]
    assert (counted.failed, counted.succeeded) == (2, 0)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("Bearer abc", 401),
        ("Basic", 400),
        ("Basic !!!", 400),
        ("Digest Z3Vlc3Q6Z3Vlc3Q=", 400),
        ("Basic " + base64.b64encode(b"nocolon").decode(), 400),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), 401),
    ],
)
def test_invalid_authorization_headers(access: Access, header: str | None, status: int) -> None:
    headers = {} if header is None else {"authorization": header}
    with pytest.raises(web.HTTPException) as refusal:
        access.login(make_mocked_request("GET", "/api/x", headers))
    assert refusal.value.status == status
