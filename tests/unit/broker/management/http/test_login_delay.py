from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from leveret.broker.auth.attempts import LoginThrottle
from leveret.broker.management.http.errors import CHALLENGE, login_failed, not_authorised
from leveret.broker.management.http.logins import FAILED_LOGIN, delay_failed_logins

RIGHT, WRONG = "Basic right", "Basic wrong"


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
