"""The cluster, which is one node: its name, and what keeps clusters in balance."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.global_parameters import CLUSTER_NAME
from leveret.broker.management.http.access import read_object
from leveret.broker.management.http.answers import json_answer
from leveret.broker.management.http.bodies import read_text, require_keys
from leveret.broker.management.http.context import RequestContext
from leveret.broker.management.http.routes import resource


class Cluster:
    """The resources ``/api/cluster-name`` and ``/api/rebalance/queues``.

    Args:
        context: Which broker, and who may change it.
    """

    def __init__(self, context: RequestContext) -> None:
        self._broker = context.broker
        self._access = context.access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return [
            *resource("cluster-name", GET=self.show_name, PUT=self.put_name),
            *resource("rebalance/queues", POST=self.rebalance),
        ]

    async def show_name(self, request: web.Request) -> web.Response:
        """The cluster's name."""
        self._access.require(request, "management")
        return json_answer({"name": self._broker.cluster_name})

    async def put_name(self, request: web.Request) -> web.Response:
        """Give the cluster another name, for the connections it gets from now on."""
        self._access.require(request, "administrator")
        document = await read_object(request)
        require_keys(document, "name")
        self._broker.global_parameters.set(CLUSTER_NAME, read_text(document, "name"))
        return web.Response(status=204)

    async def rebalance(self, request: web.Request) -> web.Response:
        """Nothing is to be done: all queues are on this node."""
        self._access.require(request, "administrator")
        return web.Response(status=204)
