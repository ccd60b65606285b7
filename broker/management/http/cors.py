"""Cross-origin resource sharing (CORS).

Source: https://www.rabbitmq.com/docs/management#cors, and RabbitMQ 3.10.8 observed.
"""

from __future__ import annotations

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.broker.config.options import Cors


def allow_origins(options: Cors) -> Middleware:
    """Return a middleware that tells browsers which other origins may use the API.

    Args:
        options: The configuration. Without allowed origins no header is set, and browsers refuse all of them.
    """
    allowed = frozenset(options.allow_origins)

    @web.middleware
    async def add_cors_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        origin = request.headers.get(hdrs.ORIGIN)
        # With credentials, browsers require the name of the origin even if all origins are allowed.
        if origin is None or not (origin in allowed or "*" in allowed):
            return response
        headers = response.headers
        headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        headers[hdrs.ACCESS_CONTROL_ALLOW_CREDENTIALS] = "true"
        if request.method == hdrs.METH_OPTIONS:
            headers[hdrs.ACCESS_CONTROL_MAX_AGE] = str(options.max_age)
            headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = headers.get(hdrs.ALLOW, "")
            wanted = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS)
            if wanted is not None:
                headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = wanted
        return response

    return add_cors_headers
