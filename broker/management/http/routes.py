"""Paths of the HTTP API."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

_SEGMENT: Final = re.compile(r"\{(\w+)\}")


def resource(path: str, **handlers: Handler) -> list[web.RouteDef]:
    """The routes of one path. HEAD comes with GET; a slash at the end is accepted everywhere.

    Args:
        path: Below ``/api/``, for example ``queues/{vhost}/{name}``. ``{vhost}`` stands for one segment of any
            characters, percent-decoded in ``request.match_info``; ``{vhost:[^/]*}`` for one that may be empty.
        handlers: By method, in capitals. Several controllers may serve methods of one path.
    """
    segments = _SEGMENT.sub(r"{\1:[^/]+}", path)
    pattern = f"/api/{segments}{{slash_:/?}}"
    # aiohttp adds HEAD to GET by itself.
    return [web.RouteDef(method, pattern, handler, {}) for method, handler in handlers.items()]
