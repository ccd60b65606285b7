"""Holding back the answers to failed logins, so that guessing passwords takes time."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from broker.auth.attempts import LoginThrottle

#: Set by who has found a name and a password right that did not come in the header for them.
LOGGED_IN: Final = web.RequestKey("logged_in", bool)


def slow_logins(throttle: LoginThrottle) -> Middleware:
    """A middleware that lets whoever keeps failing wait for the answer; everybody else is served meanwhile.

    Args:
        throttle: Says for how long.
    """

    @web.middleware
    async def hold_back(request: web.Request, handler: Handler) -> web.StreamResponse:
        source = request.remote or ""
        try:
            response = await handler(request)
        except web.HTTPUnauthorized as refusal:
            # Only a wrong name or password is answered with a challenge; rights that are missing are not. Without
            # a body none were sent: browsers ask so before they know that a password is wanted.
            if hdrs.WWW_AUTHENTICATE in refusal.headers and refusal.body:
                await asyncio.sleep(throttle.failed(source, asyncio.get_running_loop().time()))
            raise
        if hdrs.AUTHORIZATION in request.headers or request.get(LOGGED_IN):
            throttle.succeeded(source)
        return response

    return hold_back
