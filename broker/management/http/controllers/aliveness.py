"""The aliveness test: publishes a message to a queue and gets it back."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.auth.users import User
from leveret.broker.core.messages.publisher import publish
from leveret.broker.core.queues.declaration import QueueDeclaration
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import RequestContext, resource
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.responses import json_response
from leveret.protocol.properties import encode_content_header

_QUEUE: Final = "aliveness-test"
_BODY: Final = b"test_message"


class Aliveness:
    """The resource ``/api/aliveness-test``.

    Args:
        context: The broker and its users.
    """

    def __init__(self, context: RequestContext) -> None:
        self._access = context.access
        self._vhosts = context.broker.vhosts

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("aliveness-test/{vhost}", GET=self.test)

    async def test(self, request: web.Request) -> web.Response:
        """Declare a queue, publish to it and get the message back, with the permissions of the user."""
        self._access.require(request, "management")
        if request.match_info["vhost"] not in self._vhosts:
            raise not_found()
        user, vhost = self._access.require_connect(request)
        self._access.check(user, vhost.name, "configure", "queue", _QUEUE)
        self._access.check(user, vhost.name, "write", "exchange", "")
        self._access.check(user, vhost.name, "read", "queue", _QUEUE)
        body = _publish_and_get(user, vhost)
        if body != _BODY:
            return json_response({"status": "failed", "reason": "the published message is missing"}, status=503)
        return json_response({"status": "ok"})


def _publish_and_get(user: User, vhost: VirtualHost) -> bytes | None:
    declaration = QueueDeclaration(_QUEUE, False, False, None, None, ())
    queue = vhost.declare_queue(declaration, lambda _: None)
    publish(vhost, "", _QUEUE, encode_content_header(len(_BODY)), _BODY, http_origin(user), lambda: None)
    entry = queue.get(None)
    if entry is None:
        return None
    vhost.statistics.channels.get_no_ack += 1
    return entry[1].body
