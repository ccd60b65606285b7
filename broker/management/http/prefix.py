"""Path prefix of all paths, for brokers behind a reverse proxy (``management.path_prefix``)."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.management.http.errors import not_found


def with_path_prefix(app: web.Application, prefix: str) -> web.Application:
    """Return an application whose paths have a prefix; without a prefix, the application itself.

    Args:
        app: The application.
        prefix: The prefix, with or without slashes at its ends.
    """
    path = prefix.strip("/")
    if not path:
        return app
    outer = web.Application()
    outer.router.add_get(f"/{path}", _add_slash)
    outer.add_subapp(f"/{path}", app)
    outer.router.add_route("*", "/{path:.*}", _not_found)
    return outer


async def _add_slash(request: web.Request) -> web.Response:
    """Redirect to the index with a slash at the end, because its links are relative."""
    return web.Response(status=301, headers={"location": f"{request.path}/"})


async def _not_found(request: web.Request) -> web.Response:
    error = not_found()
    return web.Response(status=error.status, body=error.body, headers={"content-type": "application/json"})
