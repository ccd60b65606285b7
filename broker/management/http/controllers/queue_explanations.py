"""Why a queue is as it is; beyond what RabbitMQ offers."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.queues.explanation import explain_queue
from leveret.broker.management.http.answers import object_answer
from leveret.broker.management.http.context import RequestContext
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.routes import resource


class QueueExplanations:
    """The resource ``/api/queues/{vhost}/{name}/explain``.

    Args:
        context: Whose queues, and who may ask.
    """

    def __init__(self, context: RequestContext) -> None:
        self._access = context.access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return resource("queues/{vhost}/{name}/explain", GET=self.explain)

    async def explain(self, request: web.Request) -> web.Response:
        """Every setting with argument, policy, operator policy, what is in force and why; and how full the queue is."""
        _, vhost = self._access.require_vhost(request)
        queue = vhost.queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        return object_answer(request, explain_queue(queue, vhost.policies))
