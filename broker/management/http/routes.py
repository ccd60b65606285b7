"""Paths of the HTTP API."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

_SEGMENT: Final = re.compile(r"\{(\w+)\}")


def resource(path: str, with_head: bool = True, **handlers: Handler) -> list[web.RouteDef]:
    """The routes of one path. HEAD comes with GET; a slash at the end is accepted everywhere.

    Args:
        path: Below ``/api/``, for example ``queues/{vhost}/{name}``. ``{vhost}`` stands for one segment of any
            characters, percent-decoded in ``request.match_info``. It may be empty, as in RabbitMQ: of
            ``exchanges/v//publish`` the name is "". The last one is only if a slash follows it: ``users/`` are the
            users, ``users//`` the one without a name.
        with_head: Whether HEAD comes with GET; in RabbitMQ it does nearly everywhere.
        handlers: By method, in capitals. Several controllers may serve methods of one path.
    """
    segments = _SEGMENT.sub(r"{\1:(?=.)[^/]*}", path)
    pattern = f"/api/{segments}{{slash_:/?}}"
    # aiohttp adds HEAD to GET by itself.
    options = {} if with_head else {"allow_head": False}
    return [
        web.RouteDef(method, pattern, handler, options if method == "GET" else {})
        for method, handler in handlers.items()
    ]
