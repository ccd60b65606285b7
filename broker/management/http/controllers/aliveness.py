"""The aliveness test: publishes a message to a queue and gets it back."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.responses import json_response
from leveret.broker.operations import queues
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.publishing import publish
from leveret.protocol.properties import encode_content_header

_QUEUE: Final = "aliveness-test"
_BODY: Final = b"test_message"


class Aliveness(Controller):
    """The resource ``/api/aliveness-test``."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._vhosts = context.broker.vhosts

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("aliveness-test/{vhost}", GET=self.test)

    async def test(self, request: web.Request) -> web.Response:
        """Declare a queue, publish to it and get the message back, with the permissions of the user."""
        self._access.require(request, "management")
        if request.match_info["vhost"] not in self._vhosts:
            raise not_found()
        principal = self._access.require_connect(request)
        principal.check("configure", "queue", _QUEUE)
        principal.check("write", "exchange", "")
        principal.check("read", "queue", _QUEUE)
        body = _publish_and_get(principal)
        if body != _BODY:
            return json_response({"status": "failed", "reason": "the published message is missing"}, status=503)
        return json_response({"status": "ok"})


def _publish_and_get(principal: Principal) -> bytes | None:
    queue = queues.declare(principal, _QUEUE, False, False, ())
    publish(principal, "", _QUEUE, encode_content_header(len(_BODY)), _BODY, http_origin(principal.user))
    entry = queues.get(queue, None, principal.vhost.statistics.channels)
    return None if entry is None else entry[1].body
