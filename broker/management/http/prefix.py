"""A path in front of all others, for brokers behind a proxy that serves more than them (``management.path_prefix``)."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.management.http.errors import not_found


def prefixed(app: web.Application, prefix: str) -> web.Application:
    """An application whose paths have a prefix; without one it is the application itself.

    Args:
        app: The application.
        prefix: The path; slashes at its ends do not matter.
    """
    path = prefix.strip("/")
    if not path:
        return app
    outer = web.Application()
    outer.router.add_get(f"/{path}", _add_slash)
    outer.add_subapp(f"/{path}", app)
    outer.router.add_route("*", "/{path:.*}", _nothing)
    return outer


async def _add_slash(request: web.Request) -> web.Response:
    """The index; its addresses of other files are relative."""
    return web.Response(status=301, headers={"location": f"{request.path}/"})


async def _nothing(request: web.Request) -> web.Response:
    error = not_found()
    return web.Response(status=error.status, body=error.body, headers={"content-type": "application/json"})
