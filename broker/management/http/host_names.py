"""The names under which a browser on this machine may use the API as a user that is for this machine only.

A page of a foreign host can have its name lead to 127.0.0.1 (DNS rebinding). Its requests then come from this machine
and have the page's own origin; only the header Host tells.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from functools import cache

from aiohttp import hdrs, web

from leveret.broker.management.http.errors import failure


def check_host(request: web.Request, allowed: Collection[str]) -> None:
    """Refuse a request that names a host which need not be this one; those that name none come from no browser.

    Args:
        request: It comes from this machine, and logs in as a user who may do so from there only.
        allowed: Further names, ``*`` for all (``management.allowed_hosts``).
    Raises:
        HTTPForbidden: The host is another.
    """
    host = _name(request.headers.get(hdrs.HOST, ""))
    if not host or "*" in allowed or _is_own(host) or host in {name.lower() for name in allowed}:
        return
    reason = (
        f"Users for this machine only cannot log in under the host name '{host[:255]}'. Use localhost or an IP address,"
        " or add the name to the option management.allowed_hosts."
    )
    raise failure(web.HTTPForbidden, "host_not_allowed", reason)


def _name(host: str) -> str:
    """The name or address in a header Host, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_own(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost") or host in _machine():
        return True
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


@cache
def _machine() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0]})
