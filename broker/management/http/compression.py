"""Whether a client takes compressed answers."""

from __future__ import annotations

from aiohttp import hdrs, web


def accepts_gzip(request: web.Request) -> bool:
    """Whether the header Accept-Encoding names gzip, and not with the weight 0.

    Source: RFC 9110 section 12.5.3
    """
    for part in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return not weight or weight.strip("0.") != ""
    return False
