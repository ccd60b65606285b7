"""Checks of the header Accept."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import hdrs, web

#: Media types that match the responses of the API. A request that accepts none of these is refused.
_ACCEPTED: Final = frozenset(("application/json", "application/*", "*/*"))
#: Paths where RabbitMQ responds with a status only and accepts any Accept header.
_WITHOUT_ANSWERS: Final = re.compile(
    r"/api/(?:queues/[^/]*/[^/]*/(?:contents|actions)|(?:vhost|user)-limits/[^/]*/[^/]*)/?$"
)


def accepts_json(request: web.Request) -> bool:
    """Check whether a request accepts JSON. Without the header it does."""
    accept = request.headers.get(hdrs.ACCEPT)
    if not accept:
        return True
    return any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in accept.split(","))


def require_json_accepted(request: web.Request) -> None:
    """Refuse a request that does not accept JSON, before anything else is checked.

    Raises:
        HTTPNotAcceptable: The request does not accept JSON.
    """
    if not accepts_json(request) and _WITHOUT_ANSWERS.search(request.rel_url.raw_path) is None:
        raise web.HTTPNotAcceptable(text="")
