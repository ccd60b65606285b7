"""Lists, restarts and deletes shovels. They are set as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from leveret.broker.management.http.access import OBJECT_REFUSAL, has_tag
from leveret.broker.management.http.controller import Controller, RequestContext, route
from leveret.broker.management.http.documents.shovels import shovel_document
from leveret.broker.management.http.error_responses import not_authorised, not_found
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.shovels.shovels import RunningShovel


class ShovelResources(Controller):
    """The resource ``/api/shovels``, for monitors; to change something, they need the tag policymaker, too."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._shovels = context.shovels

    @route("GET", "shovels", "shovels/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List the shovels of all virtual hosts that the user may see, and static ones; or those of one."""
        user, vhost = self._access.require(request, "monitoring"), request.match_info.get("vhost")
        if vhost is not None and vhost not in self._broker.vhosts:
            raise not_found()
        found = [
            shovel
            for shovel in self._shovels.listed()
            if vhost in (None, shovel.vhost) and (shovel.vhost is None or self._access.can_see(user, shovel.vhost))
        ]
        return await self._respond(request, found)

    @route("GET", "shovels/vhost/{vhost}/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show a shovel. RabbitMQ 3.10.8 answers with a list, which has all of the virtual host."""
        return await self._respond(request, [self._find(request)])

    @route("DELETE", "shovels/vhost/{vhost}/{name}")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a shovel with its parameter."""
        self._shovels.delete(self._find(request, for_change=True))
        return web.Response(status=204)

    @route("DELETE", "shovels/vhost/{vhost}/{name}/restart")
    async def restart(self, request: web.Request) -> web.Response:
        """Stop a shovel and start it again."""
        self._shovels.restart(self._find(request, for_change=True))
        return web.Response(status=204)

    async def _respond(self, request: web.Request, found: Sequence[RunningShovel]) -> web.Response:
        def describe(shovel: RunningShovel) -> dict[str, Any]:
            return shovel_document(shovel, self._node_name)

        return await list_response(request, found, View(describe, order=lambda each: (each.vhost or "", each.name)))

    def _find(self, request: web.Request, for_change: bool = False) -> RunningShovel:
        user = self._access.require(request, "monitoring")
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        if for_change and not has_tag(user, "policymaker"):
            raise not_authorised(OBJECT_REFUSAL)
        found = self._shovels.find(vhost, name) if self._access.can_see(user, vhost) else None
        if found is None:
            raise not_found()
        return found
