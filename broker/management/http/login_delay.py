"""Delays responses to failed logins, so that guessing passwords is slow."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.auth.attempts import LoginThrottle

#: Name of the user whose login failed; set by Access.authenticate().
FAILED_LOGIN: Final = web.RequestKey("failed_login", str)
#: Set while the response is delayed.
DELAYED: Final = web.RequestKey("held_back", bool)
#: Interval in seconds of the check whether the client is still connected.
_CHECK_SECONDS: Final = 1.0


def delay_failed_logins(throttle: LoginThrottle) -> Middleware:
    """Return a middleware that delays responses to a client whose logins keep failing.

    Args:
        throttle: Determines the delay.
    """

    @web.middleware
    async def delay_response(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            username = request.get(FAILED_LOGIN)
            if username is not None:
                request[DELAYED] = True
                await _wait(request, throttle.failed(request.remote or "", username, _now()))

    return delay_response


async def _wait(request: web.Request, seconds: float) -> None:
    """Wait, unless the client disconnects."""
    end = _now() + seconds
    while request.transport is not None and (left := end - _now()) > 0:  # noqa: ASYNC110 - aiohttp has no event for disconnects
        await asyncio.sleep(min(left, _CHECK_SECONDS))


def _now() -> float:
    return asyncio.get_running_loop().time()
