"""Lists and shows queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from leveret.broker.core.queues.explanation import fill_percent
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.documents.queues import queue_document, queue_without_stats, single_queue_document
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.responses import object_response
from leveret.broker.management.http.statistics import Rates, stats_are_disabled, totals_are_enabled


class Queues(Controller):
    """Reading methods of the resource ``/api/queues``."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._consumer_timeout = context.settings.consumer_timeout

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("queues", GET=self.list),
            *resource("queues/", GET=self.list_default),
            *resource("queues/{vhost}", GET=self.list),
            *resource("queues/{vhost}/{name}", GET=self.show),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List all queues, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        return await self._list(request, vhosts)

    async def list_default(self, request: web.Request) -> web.Response:
        """List the queues of the virtual host ``/`` at ``/api/queues//``, which Celery Flower requests."""
        user = self._access.require(request, "management")
        vhost = self._broker.vhosts.get("/")
        if vhost is None or not self._access.can_see(user, vhost.name):
            raise not_found()
        return await self._list(request, [vhost])

    async def show(self, request: web.Request) -> web.Response:
        """Show one queue."""
        _, vhost = self._access.require_vhost(request)
        queue = vhost.queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        if stats_are_disabled(request):
            return object_response(request, queue_without_stats(queue, self._node_name, totals_are_enabled(request)))
        rates = Rates(request, self._broker)
        return object_response(request, single_queue_document(queue, self._node_name, rates, self._consumer_timeout))

    async def _list(self, request: web.Request, vhosts: Iterable[VirtualHost]) -> web.Response:
        queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
        describe = self._describe(request)
        if stats_are_disabled(request):
            # Columns that are not shown cannot be sorted by.
            return await list_response(request, queues, View(describe, order=_default_order), paginated=True)
        view = View(
            describe,
            order=_default_order,
            keys={
                "name": lambda queue: queue.name,
                "vhost": lambda queue: queue.vhost_name,
                "type": lambda queue: queue.queue_type,
                "durable": lambda queue: queue.durable,
                "node": lambda _: self._node_name,
                "state": lambda _: "running",
                "policy": lambda queue: None if queue.policy is None else queue.policy.name,
                "consumers": lambda queue: len(queue.consumers),
                "messages": lambda queue: queue.store.ready_count + queue.unacked_count + queue.retained_count,
                "messages_ready": lambda queue: queue.store.ready_count,
                "messages_unacknowledged": lambda queue: queue.unacked_count,
                "message_bytes": lambda queue: queue.store.ready_bytes + queue.unacked_bytes,
                "message_bytes_ready": lambda queue: queue.store.ready_bytes,
                "fill": _fill,
                "fill.percent": _fill,
            },
        )
        return await list_response(request, queues, view, paginated=True)

    def _describe(self, request: web.Request) -> Callable[[Queue], dict[str, Any]]:
        if stats_are_disabled(request):
            with_totals = totals_are_enabled(request)
            return lambda queue: queue_without_stats(queue, self._node_name, with_totals)
        rates = Rates(request, self._broker)
        return lambda queue: queue_document(queue, self._node_name, rates)


def _default_order(queue: Queue) -> tuple[str, str]:
    return queue.vhost_name, queue.name


def _fill(queue: Queue) -> Any:
    """Return the fill level in per cent; missing (...) without limits, so that descending order shows these last."""
    percent = fill_percent(queue)
    return ... if percent is None else percent
