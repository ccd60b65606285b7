"""Requests that a page of somebody else's makes a browser send."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.management.http.errors import failure
from leveret.broker.management.http.methods import READING

_OWN: Final = ("same-origin", "none")


def refuse_cross_origin_changes(allowed: Collection[str] = ()) -> Middleware:
    """A middleware that refuses changes asked for by pages of another origin.

    Programs that are not browsers send neither Origin nor Sec-Fetch-Site, and are let through.

    Args:
        allowed: Origins that may all the same, for example ``https://console.example``; ``*`` for all.
    """

    @web.middleware
    async def check_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method not in READING and is_cross_origin(request, allowed):
            reason = "A page of another origin may not change anything here."
            raise failure(web.HTTPForbidden, "foreign_origin", reason)
        return await handler(request)

    return check_origin


def is_cross_origin(request: web.Request, allowed: Collection[str] = ()) -> bool:
    """Whether a browser says that a request is made by a page of another origin."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and ("*" in allowed or origin in allowed):
        return False
    # It is right behind any proxy, but comes only over TLS and from this machine.
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN
    return origin is not None and _host(origin) not in _own_hosts(request)


def _host(origin: str) -> str:
    """Host and port of an origin; "" if it has none, such as ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _own_hosts(request: web.Request) -> set[str]:
    """What we are called, a proxy's word included: foreign pages cannot send that header without being asked."""
    names = (request.headers.get(name, "") for name in (hdrs.HOST, hdrs.X_FORWARDED_HOST))
    return {name.strip().lower() for name in names if name}
