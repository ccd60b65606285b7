"""The overview, and the cluster: its nodes, name, feature flags, configuration and replication."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from aiohttp import web

from leveret.broker.auth.accounts import User
from leveret.broker.config.declaration import option_values
from leveret.broker.config.options import OPTIONS
from leveret.broker.core.broker import CLUSTER_NAME
from leveret.broker.core.clients import ClientConnection
from leveret.broker.core.node import Replica
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.management.http import openapi
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.overview import (
    MemoryBreakdown,
    listeners,
    node_document,
    overview_document,
    overview_stats,
    short_node,
    web_contexts,
)
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import read_object, read_text
from leveret.broker.management.http.responses import (
    bad_request,
    bad_request_if,
    json_response,
    not_found,
    object_response,
)
from leveret.broker.management.http.statistics import Rates, count_all, stats_are_disabled, totals_are_enabled


class Overview(Controller):
    """The resources ``/api/overview``, ``/api/version``, ``/api/openapi.json`` and ``/api/extensions``."""

    @route("GET", "overview")
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

    @route("GET", "version", tag="management")
    async def version(self, request: web.Request) -> web.Response:
        """Show the version of the API, which newer clients request first."""
        return json_response(overview_document(self._broker, self._context.node)["rabbitmq_version"])

    @route("GET", "extensions", tag="management")
    async def extensions(self, request: web.Request) -> web.Response:
        """List the extensions of RabbitMQ's web pages."""
        return json_response([{"javascript": "dispatcher.js"}])

    @route("GET", "openapi.json", tag="management")
    async def describe_api(self, request: web.Request) -> web.Response:
        """Describe the API in the format OpenAPI."""
        return json_response(await asyncio.to_thread(openapi.document))

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


class Nodes(Controller):
    """The resource ``/api/nodes``: the node that is the broker, and the others of its cluster."""

    @route("GET", "nodes", tag="monitoring")
    async def list(self, request: web.Request) -> web.Response:
        """List all nodes."""
        documents = [await self._describe(request), *self._others()]
        if stats_are_disabled(request):
            documents = [{name: each.get(name) for name in documents[0] if name in each} for each in documents]
        view = View[dict[str, Any]](lambda each: each, order=lambda each: each["name"])
        return await list_response(request, documents, view)

    def _others(self) -> Sequence[dict[str, Any]]:
        return [] if self._context.replication is None else self._context.replication.nodes()

    @route("GET", "nodes/{node}", tag="monitoring")
    async def show(self, request: web.Request) -> web.Response:
        """Show a node; with ``memory=true`` the memory breakdown of the one that is the broker, too."""
        for each in self._others():
            if each["name"] == request.match_info["node"]:
                return object_response(request, each)
        self._require_node(request)
        document = await self._describe(request)
        if request.query.get("memory") == "true":
            document["memory"] = (await self._break_down()).document()
        return object_response(request, document)

    @route("GET", "nodes/{node}/memory", tag="monitoring")
    async def memory(self, request: web.Request) -> web.Response:
        """Show the memory breakdown in bytes."""
        self._require_node(request)
        return object_response(request, {"memory": (await self._break_down()).document()})

    @route("GET", "nodes/{node}/memory/relative", tag="monitoring")
    async def memory_shares(self, request: web.Request) -> web.Response:
        """Show the memory breakdown in per cent."""
        self._require_node(request)
        return object_response(request, {"memory": (await self._break_down()).shares()})

    def _require_node(self, request: web.Request) -> None:
        if request.match_info["node"] != self._context.node.name:
            raise not_found()

    async def _describe(self, request: web.Request) -> dict[str, Any]:
        context, broker = self._context, self._broker
        if stats_are_disabled(request):
            return short_node(broker, context.node, context.settings)
        rates = Rates(request, broker)
        churn = broker.statistics.row((await count_all(broker)).total())
        return node_document(broker, context.node, context.settings, rates, churn)

    async def _break_down(self) -> MemoryBreakdown:
        breakdown = MemoryBreakdown(self._broker)
        queues = [queue for vhost in self._broker.vhosts.values() for queue in vhost.queues.values()]
        async for queue in in_slices(queues):
            breakdown.add(queue)
        return breakdown


_QUORUM: Final = "https://www.rabbitmq.com/quorum-queues.html"
_STREAM: Final = "https://www.rabbitmq.com/stream.html"
#: The flags of 3.10.8: name, description, page, application.
_FLAGS: Final = (
    ("classic_mirrored_queue_version", "Support setting version for classic mirrored queues", "", "rabbit"),
    ("drop_unroutable_metric", "Count unroutable publishes to be dropped in stats", "", "rabbitmq_management_agent"),
    ("empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats", "", "rabbitmq_management_agent"),
    (
        "implicit_default_bindings",
        "Default bindings are now implicit, instead of being stored in the database",
        "",
        "rabbit",
    ),
    ("maintenance_mode_status", "Maintenance mode status", "", "rabbit"),
    ("quorum_queue", "Support queues of type `quorum`", _QUORUM, "rabbit"),
    ("stream_queue", "Support queues of type `stream`", _STREAM, "rabbit"),
    ("user_limits", "Configure connection and channel limits for a user", "", "rabbit"),
    ("virtual_host_metadata", "Virtual host metadata (description, tags, etc)", "", "rabbit"),
)
_Json: TypeAlias = "str | int | float | bool | list[_Json] | dict[str, _Json] | None"


class Cluster(Controller):
    """The resources ``/api/cluster-name``, ``/api/rebalance/queues`` and ``/api/config/effective``."""

    @route("GET", "cluster-name", tag="management")
    async def show_name(self, request: web.Request) -> web.Response:
        """Show the cluster's name."""
        return json_response({"name": self._broker.cluster_name})

    @route("PUT", "cluster-name", tag="administrator")
    async def put_name(self, request: web.Request) -> web.Response:
        """Set the cluster's name. New connections see it."""
        document = await read_object(request, "name")
        self._broker.global_parameters.set(CLUSTER_NAME, read_text(document, "name"))
        return web.Response(status=204)

    @route("POST", "rebalance/queues", tag="administrator")
    async def rebalance(self, request: web.Request) -> web.Response:
        """Do nothing: all queues are on this node."""
        return web.Response(status=204)

    @route("GET", "config/effective", tag="administrator")
    async def show_configuration(self, request: web.Request) -> web.Response:
        """Show all options with their values at startup."""
        values = option_values(self._context.settings)
        return json_response({name: _json(option.shown(values[name])) for name, option in OPTIONS.items()})


class Features(Controller):
    """The resources ``/api/feature-flags``, ``/api/deprecated-features`` and ``/api/reset``."""

    @route("GET", "feature-flags", tag="administrator")
    async def list(self, request: web.Request) -> web.Response:
        """List the flags. All of them are always enabled."""
        flags = [
            {
                "name": name,
                "desc": description,
                "doc_url": page,
                "state": "enabled",
                "stability": "stable",
                "provided_by": application,
            }
            for name, description, page, application in _FLAGS
        ]
        view = View[dict[str, str]](lambda flag: flag, order=lambda flag: flag["name"])
        return await list_response(request, flags, view)

    @route("PUT", "feature-flags/{flag}/enable", tag="administrator")
    async def enable(self, request: web.Request) -> web.Response:
        """Accept enabling an existing flag, which always is enabled."""
        if request.match_info["flag"] not in {flag[0] for flag in _FLAGS}:
            raise bad_request("unsupported")
        return web.Response(status=204)

    @route("GET", "deprecated-features", "deprecated-features/used", tag="management")
    async def list_deprecated(self, request: web.Request) -> web.Response:
        """List deprecated features, of which there are none."""
        return json_response([])

    @route("DELETE", "reset", "reset/{node}", tag="administrator")
    async def reset(self, request: web.Request) -> web.Response:
        """Accept a reset of statistics, as RabbitMQ's pages send it. Counters are not reset."""
        if request.match_info.get("node", self._node_name) != self._node_name:
            raise not_found()
        return web.Response(status=204)


def _json(value: object) -> _Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return str(value)


class Replication(Controller):
    """The resource ``/api/replication``, which RabbitMQ does not have."""

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
        with bad_request_if(RuntimeError):
            return json_response({"node": await self._require().hand_over(str(wanted))}, status=202)

    @route("DELETE", "replication/nodes/{node}", tag="administrator")
    async def forget(self, request: web.Request) -> web.Response:
        """Forget a node that does not come back."""
        with bad_request_if(RuntimeError):
            await self._require().forget(request.match_info["node"])
        return web.Response(status=204)

    @route("POST", "replication/promote", tag="administrator")
    async def promote(self, request: web.Request) -> web.Response:
        """Refuse to promote this node, which leads. Others answer this themselves."""
        self._require()
        raise bad_request("this node leads already; send it to the one that should lead")

    def _require(self) -> Replica:
        if self._context.replication is None:
            raise bad_request("replication.register is none: there is no other node")
        return self._context.replication
