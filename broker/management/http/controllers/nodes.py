"""Shows the node: its use of resources and its memory breakdown."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.documents.memory import MemoryBreakdown
from leveret.broker.management.http.documents.overview import node_document, short_node
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.responses import object_response
from leveret.broker.management.http.statistics import Rates, count_all, stats_are_disabled


class Nodes(Controller):
    """The resource ``/api/nodes``. There is one node."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("nodes", GET=self.list),
            *resource("nodes/{node}", GET=self.show),
            *resource("nodes/{node}/memory", GET=self.memory),
            *resource("nodes/{node}/memory/relative", GET=self.memory_shares),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List all nodes."""
        self._access.require(request, "monitoring")
        document = await self._describe(request)
        view = View[dict[str, Any]](lambda each: each, order=lambda each: each["name"])
        return await list_response(request, [document], view)

    async def show(self, request: web.Request) -> web.Response:
        """Show the node; with ``memory=true`` also its memory breakdown."""
        self._require_node(request)
        document = await self._describe(request)
        if request.query.get("memory") == "true":
            document["memory"] = (await self._break_down()).document()
        return object_response(request, document)

    async def memory(self, request: web.Request) -> web.Response:
        """Show the memory breakdown in bytes."""
        self._require_node(request)
        return object_response(request, {"memory": (await self._break_down()).document()})

    async def memory_shares(self, request: web.Request) -> web.Response:
        """Show the memory breakdown in per cent."""
        self._require_node(request)
        return object_response(request, {"memory": (await self._break_down()).shares()})

    def _require_node(self, request: web.Request) -> None:
        self._access.require(request, "monitoring")
        if request.match_info["node"] != self._context.node.name:
            raise not_found()

    async def _describe(self, request: web.Request) -> dict[str, Any]:
        context, broker = self._context, self._broker
        if stats_are_disabled(request):
            return short_node(context.node)
        rates = Rates(request, broker)
        churn = broker.statistics.row((await count_all(broker)).total())
        return node_document(broker, context.node, context.settings, rates, churn)

    async def _break_down(self) -> MemoryBreakdown:
        breakdown = MemoryBreakdown(self._broker)
        queues = [queue for vhost in self._broker.vhosts.values() for queue in vhost.queues.values()]
        async for queue in in_slices(queues):
            breakdown.add(queue)
        return breakdown
