"""Which web pages may use the API: the origins of pages, and the host names of this machine.

Source: https://www.rabbitmq.com/docs/management#cors, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.config.options import Cors
from leveret.broker.management.http.responses import failure

_SAME_ORIGIN: Final = ("same-origin", "none")
#: Safe methods, which change nothing (RFC 9110 section 9.2.1).
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")


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
    return origin is not None and _origin_host(origin) not in _own_hosts(request)


def _origin_host(origin: str) -> str:
    """Return host and port of an origin; "" if it has none, such as ``null``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _own_hosts(request: web.Request) -> set[str]:
    """Return the host names of this server. X-Forwarded-Host is trusted: other origins cannot send it."""
    names = (request.headers.get(name, "") for name in (hdrs.HOST, hdrs.X_FORWARDED_HOST))
    return {name.strip().lower() for name in names if name}


def allow_origins(options: Cors) -> Middleware:
    """Return a middleware that tells browsers which other origins may use the API.

    Args:
        options: The configuration. Without allowed origins no header is set, and browsers refuse all of them.
    """
    allowed = frozenset(options.allow_origins)

    @web.middleware
    async def add_cors_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        origin = request.headers.get(hdrs.ORIGIN)
        # With credentials, browsers require the name of the origin even if all origins are allowed.
        if origin is None or not (origin in allowed or "*" in allowed):
            return response
        headers = response.headers
        headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        headers[hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS] = "true"
        if request.method == hdrs.METH_OPTIONS:
            headers[hdrs.ACCESS_CONTROL_MAX_AGE] = str(options.max_age)
            headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = headers.get(hdrs.ALLOW, "")
            wanted = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS)
            if wanted is not None:
                headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = wanted
        return response

    return add_cors_headers


def check_host(request: web.Request, allowed: Collection[str]) -> None:
    """Refuse a request whose header Host may name another machine. Without the header it is not from a browser.

    This prevents DNS rebinding: a page of another host can make its name resolve to 127.0.0.1. Its requests then come
    from this machine and have the page's own origin. Only the header Host shows the difference.

    Args:
        allowed: Further names, ``*`` for all (``management.allowed_hosts``).
    Raises:
        HTTPForbidden: The host is not this machine.
    """
    host = _host_name(request.headers.get(hdrs.HOST, ""))
    if not host or "*" in allowed or _is_own(host) or host in {name.lower() for name in allowed}:
        return
    reason = (
        f"Loopback users cannot log in under the host name '{host[:255]}'. Use localhost or an IP address,"
        " or add the name to the option management.allowed_hosts."
    )
    raise failure(web.HTTPForbidden, "host_not_allowed", reason)


def _host_name(host: str) -> str:
    """Return the name or address in a header Host, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_own(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost") or host in _machine_names():
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


@cache
def _machine_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]})
