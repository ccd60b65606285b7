"""The paths at which RabbitMQ serves rabbitmqadmin. Leveret explains where to get it."""

from __future__ import annotations

from typing import Final

from aiohttp import web

_TEXT: Final = """\
rabbitmqadmin is part of RabbitMQ and not served here. It works with Leveret as it is: take it from a RabbitMQ \
distribution (on Debian it is /usr/bin/rabbitmqadmin in the package rabbitmq-server), or from the same path of a \
RabbitMQ node with its management plugin. leveretctl, which comes with Leveret, does the same and more.
"""
_PAGE: Final = f"<!DOCTYPE html>\n<html lang=en>\n<title>Command line tools</title>\n<p>{_TEXT}</p>\n</html>\n"


class ToolsPage:
    """Explains at ``/cli/`` where to get rabbitmqadmin. The script's path is 404, because programs download it."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [web.get("/cli{slash:/?}", self.page), web.get("/cli/rabbitmqadmin", self.script)]

    async def page(self, request: web.Request) -> web.Response:
        """Serve the explanation as a page."""
        return web.Response(text=_PAGE, content_type="text/html")

    async def script(self, request: web.Request) -> web.Response:
        """Serve the explanation as an error."""
        return web.Response(status=404, text=_TEXT, content_type="text/plain")
