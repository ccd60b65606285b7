"""Check of the header Accept-Encoding."""

from __future__ import annotations

from aiohttp import hdrs, web


def accepts_gzip(request: web.Request) -> bool:
    """Check whether the header Accept-Encoding allows gzip: it is named with a weight other than 0.

    Source: RFC 9110 section 12.5.3
    """
    for part in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name == "gzip":
            return not weight or weight.strip("0.") != ""
    return False
