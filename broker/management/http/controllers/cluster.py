"""The cluster, which has one node: its name, feature flags, and the effective configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from aiohttp import web

from leveret.broker.config.declaration import option_values
from leveret.broker.config.options import OPTIONS
from leveret.broker.core.broker import CLUSTER_NAME
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.json_fields import read_text, require_keys
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import json_response

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


class Features(Controller):
    """The resources ``/api/feature-flags``, ``/api/deprecated-features`` and ``/api/reset``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("feature-flags", GET=self.list),
            *resource("feature-flags/{flag}/enable", PUT=self.enable),
            *resource("deprecated-features", GET=self.list_deprecated),
            *resource("deprecated-features/used", GET=self.list_deprecated),
            *resource("reset", DELETE=self.reset),
            *resource("reset/{node}", DELETE=self.reset),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List the flags. All of them are always enabled."""
        self._access.require(request, "administrator")
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

    async def enable(self, request: web.Request) -> web.Response:
        """Accept enabling an existing flag, which always is enabled."""
        self._access.require(request, "administrator")
        if request.match_info["flag"] not in {flag[0] for flag in _FLAGS}:
            raise bad_request("unsupported")
        return web.Response(status=204)

    async def list_deprecated(self, request: web.Request) -> web.Response:
        """List deprecated features, of which there are none."""
        self._access.require(request, "management")
        return json_response([])

    async def reset(self, request: web.Request) -> web.Response:
        """Accept a reset of statistics, as RabbitMQ's pages send it. Counters are not reset."""
        self._access.require(request, "administrator")
        if request.match_info.get("node", self._node_name) != self._node_name:
            raise not_found()
        return web.Response(status=204)


class Configuration(Controller):
    """The resource ``/api/config/effective``: every option by its dotted name, with secrets masked."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._settings = context.settings

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("config/effective", GET=self.show)

    async def show(self, request: web.Request) -> web.Response:
        """Show all options with their values at startup."""
        self._access.require(request, "administrator")
        values = option_values(self._settings)
        return json_response({name: _json(option.shown(values[name])) for name, option in OPTIONS.items()})


def _json(value: object) -> _Json:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return str(value)
