"""The header Accept: which answers a request takes."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import hdrs, web

#: What answers of the API are of. A request that accepts none of these is refused.
_ACCEPTED: Final = frozenset(("application/json", "application/*", "*/*"))
#: Where RabbitMQ has no answer but a status, and takes requests that want a page.
_WITHOUT_ANSWERS: Final = re.compile(
    r"/api/(?:queues/[^/]*/[^/]*/(?:contents|actions)|(?:vhost|user)-limits/[^/]*/[^/]*)/?$"
)


def accepts_json(request: web.Request) -> bool:
    """Whether a request takes JSON; it does without the header."""
    accept = request.headers.get(hdrs.ACCEPT)
    if not accept:
        return True
    return any(part.partition(";")[0].strip().lower() in _ACCEPTED for part in accept.split(","))


def require_json_accepted(request: web.Request) -> None:
    """Refuse a request that takes no JSON, whatever it asks for, before anything is done.

    Raises:
        HTTPNotAcceptable: It does not.
    """
    if not accepts_json(request) and _WITHOUT_ANSWERS.search(request.rel_url.raw_path) is None:
        raise web.HTTPNotAcceptable(text="")
