"""Explains the effective settings of a queue. RabbitMQ does not have this resource."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.queues.explanation import explain_queue
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.responses import object_response


class QueueExplanations(Controller):
    """The resource ``/api/queues/{vhost}/{name}/explain``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("queues/{vhost}/{name}/explain", GET=self.explain)

    async def explain(self, request: web.Request) -> web.Response:
        """Show each setting with argument, policy, operator policy, effective value and reason, and the fill level."""
        _, vhost = self._access.require_vhost(request)
        queue = vhost.queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        return object_response(request, explain_queue(queue, vhost.policies))
