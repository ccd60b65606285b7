"""Routes of the HTTP API."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

_SEGMENT: Final = re.compile(r"\{(\w+)\}")


def resource(path: str, with_head: bool = True, **handlers: Handler) -> list[web.RouteDef]:
    """Return the routes of one path. A slash at the end is accepted.

    Args:
        path: Path below ``/api/``, for example ``queues/{vhost}/{name}``. ``{vhost}`` is one segment of any
            characters, percent-decoded in ``request.match_info``. It may be empty, as in RabbitMQ: in
            ``exchanges/v//publish`` the name is "". The last segment may be empty only before a slash: ``users/``
            is the list of users, ``users//`` the user without a name.
        with_head: Whether GET also serves HEAD; in RabbitMQ it does nearly everywhere.
        handlers: Handlers by method, in capitals. Several controllers may serve methods of one path.
    """
    segments = _SEGMENT.sub(r"{\1:(?=.)[^/]*}", path)
    pattern = f"/api/{segments}{{slash_:/?}}"
    # aiohttp adds HEAD to GET automatically.
    options = {} if with_head else {"allow_head": False}
    return [
        web.RouteDef(method, pattern, handler, options if method == "GET" else {})
        for method, handler in handlers.items()
    ]
