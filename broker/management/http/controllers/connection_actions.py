"""Lists and closes the connections of a user."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import ClientConnection
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import not_authorised
from leveret.broker.management.http.responses import json_response
from leveret.protocol.faults import ConnectionFault, ReplyCode

_REASON: Final = "Closed via management plugin"


class ConnectionActions(Controller):
    """The resource ``/api/connections/username/{user}``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return resource("connections/username/{user}", GET=self.show, DELETE=self.close)

    async def show(self, request: web.Request) -> web.Response:
        """List the connections of a user, with few columns."""
        return json_response([self._describe(connection) for connection in self._find(request)])

    async def close(self, request: web.Request) -> web.Response:
        """Close the connections of a user, if any. The header X-Reason has the reason."""
        reason = request.headers.get("x-reason") or _REASON
        for connection in self._find(request):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
        return web.Response(status=204)

    def _find(self, request: web.Request) -> list[ClientConnection]:
        user, name = self._access.require(request, "management"), request.match_info["user"]
        if user.name != name and not has_tag(user, "monitoring"):
            raise not_authorised("User not authorised to access object")
        if request.method == "DELETE" and user.name != name and not has_tag(user, "administrator"):
            raise not_authorised("User not authorised to access object")
        return [connection for connection in self._broker.connections if connection.username == name]

    def _describe(self, connection: ClientConnection) -> dict[str, Any]:
        return {
            "name": connection.name,
            "vhost": connection.vhost_name,
            "user": connection.username,
            "node": self._node_name,
        }


def close_connections(broker: Broker, reason: str, user: str | None = None, vhost: str | None = None) -> None:
    """Close connections because their user or virtual host was deleted.

    Args:
        broker: The broker with the connections.
        reason: The text of connection.close.
        user: Close the connections of this user; None for any.
        vhost: Close the connections to this virtual host; None for any.
    """
    for connection in list(broker.connections):
        if user in (None, connection.username) and vhost in (None, connection.vhost_name):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
