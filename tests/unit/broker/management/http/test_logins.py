"""Sessions of the web pages: tokens, limits and expiry. Delayed responses to failed logins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

import leveret.broker.management.http.logins as module
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.attempts import LoginThrottle
from leveret.broker.auth.passwords import hash_password
from leveret.broker.management.http.logins import FAILED_LOGIN, IDLE_MICROSECONDS, BrowserSessions, delay_failed_logins
from leveret.broker.management.http.responses import CHALLENGE, login_failed, not_authorised
from leveret.storage.clock import Clock

RIGHT, WRONG = "Basic right", "Basic wrong"


class SetClock(Clock):
    """Clock that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 1_000_000_000

    def monotonic(self) -> int:
        return self.time


@pytest.fixture
def accounts() -> Accounts:
    made = Accounts()
    made.add_user("anna", "secret", ("management",))
    return made


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def sessions(accounts: Accounts, clock: SetClock) -> BrowserSessions:
    return BrowserSessions(accounts, clock)


def test_token_is_random_and_identifies_its_user(accounts: Accounts, sessions: BrowserSessions) -> None:
    tokens = {sessions.start(accounts.users["anna"]) for _ in range(10)}
    assert len(tokens) == 10
    assert all(len(token) == 43 and sessions.user(token) is accounts.users["anna"] for token in tokens)
    assert sessions.user("anna") is None
    assert sessions.user("\udcff") is None


def test_tokens_are_not_stored(accounts: Accounts, sessions: BrowserSessions) -> None:
    token = sessions.start(accounts.users["anna"])
    assert token not in repr(sessions.__dict__)


def test_end_session(accounts: Accounts, sessions: BrowserSessions) -> None:
    token, other = (sessions.start(accounts.users["anna"]) for _ in range(2))
    sessions.end(token)
    sessions.end(token)
    assert sessions.user(token) is None
    assert sessions.user(other) is not None


def test_idle_session_expires(accounts: Accounts, sessions: BrowserSessions, clock: SetClock) -> None:
    token = sessions.start(accounts.users["anna"])
    for _ in range(3):
        clock.time += IDLE_MICROSECONDS
        assert sessions.user(token) is not None
    clock.time += IDLE_MICROSECONDS + 1
    assert sessions.user(token) is None
    clock.time -= IDLE_MICROSECONDS
    assert sessions.user(token) is None


def test_session_ends_when_user_is_deleted_or_password_changes(accounts: Accounts, sessions: BrowserSessions) -> None:
    changed, deleted = (sessions.start(accounts.users["anna"]) for _ in range(2))
    accounts.set_user_limits("anna", 1, 1)
    assert sessions.user(changed) is not None
    accounts.put_user(replace(accounts.users["anna"], password_hash=hash_password("another")))
    assert sessions.user(changed) is None
    deleted = sessions.start(accounts.users["anna"])
    accounts.delete_user("anna")
    assert sessions.user(deleted) is None
    accounts.add_user("anna", "another", ("administrator",))
    assert sessions.user(deleted) is None


def test_changed_tags_apply_at_once(accounts: Accounts, sessions: BrowserSessions) -> None:
    token = sessions.start(accounts.users["anna"])
    accounts.put_user(replace(accounts.users["anna"], tags=("administrator",)))
    user = sessions.user(token)
    assert user is not None
    assert user.tags == ("administrator",)
    accounts.put_user(replace(accounts.users["anna"], tags=()))
    user = sessions.user(token)
    assert user is not None
    assert user.tags == ()


def test_least_recently_used_session_ends_above_the_limit(
    accounts: Accounts, sessions: BrowserSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SESSIONS_MAX", 2)
    first, second = (sessions.start(accounts.users["anna"]) for _ in range(2))
    assert sessions.user(first) is not None
    third = sessions.start(accounts.users["anna"])
    assert [sessions.user(token) is not None for token in (first, second, third)] == [True, False, True]


def test_many_sessions_of_one_user_do_not_end_those_of_another(accounts: Accounts, sessions: BrowserSessions) -> None:
    accounts.add_user("admin", "secret", ("administrator",))
    kept = sessions.start(accounts.users["admin"])
    first, *_, last = [sessions.start(accounts.users["anna"]) for _ in range(5000)]
    assert sessions.user(kept) is accounts.users["admin"]
    assert sessions.user(first) is None
    assert sessions.user(last) is not None


def test_sessions_of_many_users_do_not_end_those_of_another(
    accounts: Accounts, sessions: BrowserSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SESSIONS_MAX", 10)
    accounts.add_user("admin", "secret", ("administrator",))
    kept = sessions.start(accounts.users["admin"])
    for user in [accounts.add_user(f"user{number}", "secret") for number in range(3)] * 10:
        sessions.start(user)
    assert sessions.user(kept) is not None


class CountingThrottle(LoginThrottle):
    """Throttle that records failures and never delays."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []

    def failed(self, address: str, username: str, now: float) -> float:
        """Record the failure."""
        self.log.append(f"{username} failed")
        return 0.0


async def answer(request: web.Request) -> web.Response:
    if "authorization" not in request.headers:
        raise web.HTTPUnauthorized(headers=CHALLENGE, text="")
    if request.headers["authorization"] == WRONG:
        request[FAILED_LOGIN] = "guest"
        raise login_failed()
    if request.path == "/forbidden":
        raise not_authorised("Not administrator user")
    return web.Response()


@pytest.fixture
async def throttle() -> CountingThrottle:
    return CountingThrottle()


@pytest.fixture
async def url(throttle: CountingThrottle) -> AsyncIterator[str]:
    app = web.Application(middlewares=[delay_failed_logins(throttle)])
    app.router.add_get("/{any}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def ask(url: str, authorization: str | None, path: str = "x") -> int:
    headers = {} if authorization is None else {"authorization": authorization}
    async with ClientSession(headers=headers) as session, session.get(f"{url}{path}") as response:
        return response.status


async def test_only_wrong_passwords_are_failures(url: str, throttle: CountingThrottle) -> None:
    assert [await ask(url, each) for each in (WRONG, None, RIGHT)] == [401, 401, 200]
    assert await ask(url, RIGHT, "forbidden") == 401
    assert throttle.log == ["guest failed"]


async def test_delayed_response_does_not_block_other_requests(url: str, throttle: CountingThrottle) -> None:
    held = asyncio.Event()

    class Slow(CountingThrottle):
        def failed(self, address: str, username: str, now: float) -> float:
            held.set()
            return 60.0

    app = web.Application(middlewares=[delay_failed_logins(Slow())])
    app.router.add_get("/{any}", answer)
    async with TestServer(app) as server:
        slow_url = str(server.make_url("/"))
        waiting = asyncio.ensure_future(ask(slow_url, WRONG))
        await held.wait()
        assert await ask(slow_url, RIGHT) == 200
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
