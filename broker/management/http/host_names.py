"""Host names under which loopback users may use the API. Prevents DNS rebinding.

A page of another host can make its name resolve to 127.0.0.1. Its requests then come from this machine and have the
page's own origin. Only the header Host shows the difference.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from functools import cache

from aiohttp import hdrs, web

from leveret.broker.management.http.errors import failure


def check_host(request: web.Request, allowed: Collection[str]) -> None:
    """Refuse a request whose header Host may name another machine. Without the header it is not from a browser.

    Args:
        request: A request from this machine by a user that may only log in from here.
        allowed: Further names, ``*`` for all (``management.allowed_hosts``).
    Raises:
        HTTPForbidden: The host is not this machine.
    """
    host = _name(request.headers.get(hdrs.HOST, ""))
    if not host or "*" in allowed or _is_own(host) or host in {name.lower() for name in allowed}:
        return
    reason = (
        f"Loopback users cannot log in under the host name '{host[:255]}'. Use localhost or an IP address,"
        " or add the name to the option management.allowed_hosts."
    )
    raise failure(web.HTTPForbidden, "host_not_allowed", reason)


def _name(host: str) -> str:
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
