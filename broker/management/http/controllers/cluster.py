"""The cluster, which has one node: its name, and rebalancing of queues."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.global_parameters import CLUSTER_NAME
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.json_fields import read_text, require_keys
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import json_response


class Cluster(Controller):
    """The resources ``/api/cluster-name`` and ``/api/rebalance/queues``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("cluster-name", GET=self.show_name, PUT=self.put_name),
            *resource("rebalance/queues", POST=self.rebalance),
        ]

    async def show_name(self, request: web.Request) -> web.Response:
        """Show the cluster's name."""
        self._access.require(request, "management")
        return json_response({"name": self._broker.cluster_name})

    async def put_name(self, request: web.Request) -> web.Response:
        """Set the cluster's name. New connections see it."""
        self._access.require(request, "administrator")
        document = await read_object(request)
        require_keys(document, "name")
        self._broker.global_parameters.set(CLUSTER_NAME, read_text(document, "name"))
        return web.Response(status=204)

    async def rebalance(self, request: web.Request) -> web.Response:
        """Do nothing: all queues are on this node."""
        self._access.require(request, "administrator")
        return web.Response(status=204)
