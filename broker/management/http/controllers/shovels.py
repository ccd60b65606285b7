"""Lists, restarts and deletes shovels. They are set as parameters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from leveret.broker.management.http.access import OBJECT_REFUSAL, has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.responses import existing, not_authorised, not_found
from leveret.broker.shovels.shovels import RunningShovel


class ShovelResources(Controller):
    """The resource ``/api/shovels``, for monitors; to change something, they need the tag policymaker, too."""

    @route("GET", "shovels", "shovels/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List the shovels of all virtual hosts that the user may see, and static ones; or those of one."""
        user, vhost = self._access.require(request, "monitoring"), request.match_info.get("vhost")
        if vhost is not None and vhost not in self._broker.vhosts:
            raise not_found()
        found = [
            shovel
            for shovel in self._context.shovels.listed()
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
        self._context.shovels.delete(self._find(request, for_change=True))
        return web.Response(status=204)

    @route("DELETE", "shovels/vhost/{vhost}/{name}/restart")
    async def restart(self, request: web.Request) -> web.Response:
        """Stop a shovel and start it again."""
        self._context.shovels.restart(self._find(request, for_change=True))
        return web.Response(status=204)

    async def _respond(self, request: web.Request, found: Sequence[RunningShovel]) -> web.Response:
        view = View[RunningShovel](
            lambda each: _document(each, self._node_name), order=lambda each: (each.vhost or "", each.name)
        )
        return await list_response(request, found, view)

    def _find(self, request: web.Request, for_change: bool = False) -> RunningShovel:
        user = self._access.require(request, "monitoring")
        vhost, name = request.match_info["vhost"], request.match_info["name"]
        if for_change and not has_tag(user, "policymaker"):
            raise not_authorised(OBJECT_REFUSAL)
        return existing(self._context.shovels.find(vhost, name) if self._access.can_see(user, vhost) else None)


def _document(shovel: RunningShovel, node: str) -> dict[str, Any]:
    """Return a shovel. Where it takes messages from and puts them is known while it is running."""
    progress, definition = shovel.progress, shovel.definition
    document: dict[str, Any] = {
        "node": node,
        "timestamp": datetime.fromtimestamp(progress.since // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "name": shovel.name,
        **({} if shovel.vhost is None else {"vhost": shovel.vhost}),
        "type": "static" if shovel.vhost is None else "dynamic",
        "state": progress.state,
    }
    if progress.reason:
        document["reason"] = progress.reason
    if progress.state == "running":
        document |= {
            "src_uri": progress.source,
            "src_protocol": "amqp091",
            "dest_protocol": "amqp091",
            "dest_uri": progress.destination,
            **definition.source.named("src", "_"),
            **definition.destination.named("dest", "_"),
        }
    document |= {"forwarded": progress.forwarded, "pending": progress.pending}
    if progress.remaining is not None:
        document["remaining"] = progress.remaining
    return document
