"""Header Server of all responses. It names neither libraries nor versions."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import hdrs, web

NAME: Final = "Leveret"


async def set_server_header(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Set the header Server. A handler of the signal ``on_response_prepare`` of an application."""
    response.headers[hdrs.SERVER] = NAME


class NamedHandler(web.RequestHandler):
    """A connection that sets the header Server in responses to malformed requests, too. No application sees those."""

    __slots__ = ()

    def handle_error(self, *args: Any, **options: Any) -> web.StreamResponse:
        """Return the response to a malformed request."""
        response = super().handle_error(*args, **options)
        response.headers[hdrs.SERVER] = NAME
        return response
