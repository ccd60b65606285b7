"""Connections: listing and closing them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.core.broker import Broker, ClientConnection
from broker.management.http.access import Access, not_found
from broker.management.http.json_tables import table_to_json
from protocol.faults import ConnectionFault, ReplyCode


class Connections:
    """The resource ``/api/connections``.

    Args:
        broker: Whose connections.
        access: Who may ask.
    """

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker = broker
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return [
            web.get("/api/connections", self.list),
            web.get("/api/connections/{name}", self.show),
            web.delete("/api/connections/{name}", self.close),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All connections."""
        self._access.require(request, "monitoring")
        return web.json_response([_describe(connection) for connection in self._broker.connections])

    async def show(self, request: web.Request) -> web.Response:
        """One connection by its name."""
        self._access.require(request, "monitoring")
        return web.json_response(_describe(self._find(request)))

    async def close(self, request: web.Request) -> web.Response:
        """Close a connection; the header X-Reason says why."""
        self._access.require(request, "administrator")
        reason = request.headers.get("x-reason") or "Closed via management plugin"
        self._find(request).terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
        return web.Response(status=204)

    def _find(self, request: web.Request) -> ClientConnection:
        name = request.match_info["name"]
        for connection in self._broker.connections:
            if connection.name == name:
                return connection
        raise not_found()


def _describe(connection: ClientConnection) -> dict[str, Any]:
    properties = table_to_json(connection.client_properties)
    return {
        "name": connection.name,
        "user": connection.username,
        "vhost": connection.vhost_name,
        "state": "running",
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "channels": len(connection.channels),
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "client_properties": properties,
        "user_provided_name": properties.get("connection_name"),
    }
