"""What is known of a cluster, and letting another node lead. RabbitMQ does not have this resource."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.error_responses import bad_request
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import json_response


class Replication(Controller):
    """The resource ``/api/replication``: for monitors, and for administrators to let another node lead."""

    @route("GET", "replication", "replication/local", tag="monitoring")
    async def show(self, request: web.Request) -> web.Response:
        """Show the role of this node, and the standbys."""
        cluster = self._context.replication
        if cluster is None:
            return json_response({"node": self._node_name, "role": "alone", "standbys": []})
        return json_response(cluster.report())

    @route("POST", "replication/failover", tag="administrator")
    async def fail_over(self, request: web.Request) -> web.Response:
        """Begin to let another node lead; respond with its name before this one closes its clients."""
        wanted = (await read_object(request)).get("node", "") if request.can_read_body else ""
        cluster = self._context.replication
        if cluster is None:
            raise bad_request("replication.register is none: there is no other node")
        try:
            successor = await cluster.hand_over(str(wanted))
        except RuntimeError as error:
            raise bad_request(str(error)) from error
        return json_response({"node": successor}, status=202)

    @route("DELETE", "replication/nodes/{node}", tag="administrator")
    async def forget(self, request: web.Request) -> web.Response:
        """Forget a node that does not come back."""
        cluster = self._context.replication
        if cluster is None:
            raise bad_request("replication.register is none: there is no other node")
        try:
            await cluster.forget(request.match_info["node"])
        except RuntimeError as error:
            raise bad_request(str(error)) from error
        return web.Response(status=204)

    @route("POST", "replication/promote", tag="administrator")
    async def promote(self, request: web.Request) -> web.Response:
        """Refuse to promote this node, which leads. Others answer this themselves."""
        if self._context.replication is None:
            raise bad_request("replication.register is none: there is no other node")
        raise bad_request("this node leads already; send it to the one that should lead")
