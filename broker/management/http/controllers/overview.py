"""Overview of the broker: versions, totals, listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from leveret.broker.auth.users import User
from leveret.broker.core.clients import ClientConnection
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.documents.overview import listeners, overview_document, overview_stats, web_contexts
from leveret.broker.management.http.responses import json_response, object_response
from leveret.broker.management.http.statistics import Rates, count_all, stats_are_disabled, totals_are_enabled


class Overview(Controller):
    """The resources ``/api/overview``, ``/api/version`` and ``/api/extensions``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("overview", GET=self.show),
            *resource("version", GET=self.version),
            *resource("extensions", GET=self.extensions),
        ]

    async def show(self, request: web.Request) -> web.Response:
        """Show versions, totals and listeners. Without the tag monitoring, totals of the user's virtual hosts."""
        user = self._access.require(request, "management")
        disabled = stats_are_disabled(request)
        context, broker = self._context, self._broker
        document = {
            **overview_document(broker, context.node),
            "disable_stats": disabled,
            "enable_queue_totals": disabled and totals_are_enabled(request),
        }
        sees_all = has_tag(user, "monitoring")
        totals = self._object_totals(user, sees_all)
        if disabled:
            document["object_totals"] = {name: totals[name] for name in ("queues", "exchanges", "connections")}
        else:
            rates = Rates(request, broker)
            vhosts = None if sees_all else [name for name in broker.vhosts if self._access.can_see(user, name)]
            document |= overview_stats(broker, await count_all(broker), vhosts, rates)
            document["object_totals"] = totals
        if sees_all:
            document["node"] = context.node.name
        else:
            totals.pop("consumers")
        if sees_all and not disabled:
            document["listeners"] = listeners(context.node)
            document["contexts"] = web_contexts(context.node, context.settings, with_node=True)
        return object_response(request, document)

    async def version(self, request: web.Request) -> web.Response:
        """Show the version of the API, which newer clients request first."""
        self._access.require(request, "management")
        return json_response(overview_document(self._broker, self._context.node)["rabbitmq_version"])

    async def extensions(self, request: web.Request) -> web.Response:
        """List the extensions of RabbitMQ's web pages."""
        self._access.require(request, "management")
        return json_response([{"javascript": "dispatcher.js"}])

    def _object_totals(self, user: User, sees_all: bool) -> dict[str, Any]:
        vhosts = [vhost for vhost in self._broker.vhosts.values() if sees_all or self._access.can_see(user, vhost.name)]
        connections: Iterable[ClientConnection] = [
            connection for connection in self._broker.connections if sees_all or connection.username == user.name
        ]
        return {
            "connections": len(list(connections)),
            "channels": sum(len(connection.channels) for connection in connections),
            "queues": sum(len(vhost.queues) for vhost in vhosts),
            "exchanges": sum(len(vhost.topology.exchanges) for vhost in vhosts),
            "consumers": sum(len(channel.consumers) for connection in connections for channel in connection.channels),
        }
