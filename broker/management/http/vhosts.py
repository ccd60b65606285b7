"""The virtual hosts that a request names in its path."""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from broker.core.broker import Broker
from broker.core.vhost import VirtualHost
from broker.management.http.access import not_found


def find_vhost(broker: Broker, request: web.Request) -> VirtualHost:
    """The virtual host that the path names.

    Raises:
        HTTPNotFound: There is none of that name.
    """
    vhost = broker.vhosts.get(request.match_info["vhost"])
    if vhost is None:
        raise not_found()
    return vhost


def listed_vhosts(broker: Broker, request: web.Request) -> Collection[VirtualHost]:
    """The virtual host that the path names; all of them where it names none.

    Raises:
        HTTPNotFound: There is none of that name.
    """
    if "vhost" in request.match_info:
        return [find_vhost(broker, request)]
    return broker.vhosts.values()
