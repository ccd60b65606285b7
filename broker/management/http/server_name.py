"""The header Server of every answer: who answers, but neither with what libraries nor in which version."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import hdrs, web

NAME: Final = "Leveret"


async def say_who_answers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Set the header; for the signal ``on_response_prepare`` of an application."""
    response.headers[hdrs.SERVER] = NAME


class NamedHandler(web.RequestHandler):
    """A connection whose answers to what is no HTTP have the header too; no application sees those."""

    __slots__ = ()

    def handle_error(self, *args: Any, **options: Any) -> web.StreamResponse:
        """The answer to what is no request."""
        response = super().handle_error(*args, **options)
        response.headers[hdrs.SERVER] = NAME
        return response
