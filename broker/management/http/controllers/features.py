"""Feature flags, and resetting of statistics: what RabbitMQ's tools ask for, though nothing changes here."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.management.http.answers import json_answer
from leveret.broker.management.http.context import RequestContext
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.listing import View, list_answer
from leveret.broker.management.http.routes import resource

_QUORUM: Final = "https://www.rabbitmq.com/quorum-queues.html"
#: Flags of 3.10 whose feature is there: name, description, page, application.
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
    ("user_limits", "Configure connection and channel limits for a user", "", "rabbit"),
    ("virtual_host_metadata", "Virtual host metadata (description, tags, etc)", "", "rabbit"),
)


class Features:
    """The resources ``/api/feature-flags``, ``/api/deprecated-features`` and ``/api/reset``.

    Args:
        context: Who may ask.
    """

    def __init__(self, context: RequestContext) -> None:
        self._access = context.access
        self._node = context.node.name

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return [
            *resource("feature-flags", GET=self.list),
            *resource("feature-flags/{flag}/enable", PUT=self.enable),
            *resource("deprecated-features", GET=self.list_deprecated),
            *resource("deprecated-features/used", GET=self.list_deprecated),
            *resource("reset", DELETE=self.reset),
            *resource("reset/{node}", DELETE=self.reset),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """The flags, all of which are enabled for good."""
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
        return await list_answer(request, flags, view)

    async def enable(self, request: web.Request) -> web.Response:
        """Enable a flag: it is, or there is none of that name."""
        self._access.require(request, "administrator")
        if request.match_info["flag"] not in {flag[0] for flag in _FLAGS}:
            raise bad_request("unsupported")
        return web.Response(status=204)

    async def list_deprecated(self, request: web.Request) -> web.Response:
        """Features that are to go: none."""
        self._access.require(request, "management")
        return json_answer([])

    async def reset(self, request: web.Request) -> web.Response:
        """Reset statistics: accepted for the sake of RabbitMQ's pages; what was counted stays."""
        self._access.require(request, "administrator")
        if request.match_info.get("node", self._node) != self._node:
            raise not_found()
        return web.Response(status=204)
