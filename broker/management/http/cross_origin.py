"""Refuses changes requested by pages of another origin."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.management.http.errors import failure
from leveret.broker.management.http.methods import SAFE_METHODS

_SAME_ORIGIN: Final = ("same-origin", "none")


def refuse_cross_origin_changes(allowed: Collection[str] = ()) -> Middleware:
    """Return a middleware that refuses changes requested by pages of another origin.

    Programs that are not browsers send neither Origin nor Sec-Fetch-Site, and are not refused.

    Args:
        allowed: Origins that are allowed, for example ``https://console.example``; ``*`` for all.
    """

    @web.middleware
    async def check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in SAFE_METHODS and is_cross_origin(request, allowed):
            reason = "A page of another origin may not change anything here."
            raise failure(web.HTTPForbidden, "foreign_origin", reason)
        return await handler(request)

    return check_origin


def is_cross_origin(request: web.Request, allowed: Collection[str] = ()) -> bool:
    """Check whether a request was made by a page of another origin, according to the browser's headers."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and ("*" in allowed or origin in allowed):
        return False
    # Sec-Fetch-Site is correct behind any proxy, but browsers send it only over TLS or to localhost.
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in _SAME_ORIGIN
    return origin is not None and _host(origin) not in _own_hosts(request)


def _host(origin: str) -> str:
    """Return host and port of an origin; "" if it has none, such as ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _own_hosts(request: web.Request) -> set[str]:
    """Return the host names of this server. X-Forwarded-Host is trusted: other origins cannot send it."""
    names = (request.headers.get(name, "") for name in (hdrs.HOST, hdrs.X_FORWARDED_HOST))
    return {name.strip().lower() for name in names if name}
