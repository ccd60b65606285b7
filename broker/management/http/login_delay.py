"""Holding back the answers to failed logins, so that guessing passwords takes time."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.auth.attempts import LoginThrottle

#: The user whose password was wrong, set by who has found that out.
FAILED_LOGIN: Final = web.RequestKey("failed_login", str)
#: Set while the answer is held back.
HELD_BACK: Final = web.RequestKey("held_back", bool)
#: So often it is looked whether the client is still there, in seconds.
_LOOK_SECONDS: Final = 1.0


def slow_logins(throttle: LoginThrottle) -> Middleware:
    """A middleware that delays the answers to a client whose logins keep failing; other clients are served meanwhile.

    Args:
        throttle: Says for how long.
    """

    @web.middleware
    async def hold_back(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            username = request.get(FAILED_LOGIN)
            if username is not None:
                request[HELD_BACK] = True
                await _wait(request, throttle.failed(request.remote or "", username, _now()))

    return hold_back


async def _wait(request: web.Request, seconds: float) -> None:
    """Wait, as long as the client does."""
    end = _now() + seconds
    while request.transport is not None and (left := end - _now()) > 0:  # noqa: ASYNC110 - nobody says when it goes
        await asyncio.sleep(min(left, _LOOK_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
