"""Lists, shows and closes connections, and lists and shows channels and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.auth.accounts import User
from leveret.broker.core.broker import Broker
from leveret.broker.core.clients import (
    ClientChannel,
    ClientConnection,
    ClientConsumer,
    channel_name,
    client_provided_name,
)
from leveret.broker.management.fields import CONNECTION
from leveret.broker.management.http.access import OBJECT_REFUSAL, Access, has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.clients import (
    CHANNEL_SORT_KEYS,
    ConnectionView,
    channel_document,
    connection_document,
    consumer_document,
    short_connection,
)
from leveret.broker.management.http.documents.views import sort_keys
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.responses import existing, json_response, not_authorised, not_found, object_response
from leveret.broker.management.http.statistics import Rates, require_stats, stats_are_disabled
from leveret.protocol.faults import ConnectionFault, ReplyCode

_REASON: Final = "Closed via management plugin"


class Connections(Controller):
    """The resources ``/api/connections`` and ``/api/connections/username/{user}``."""

    @route("GET", "connections", "vhosts/{vhost}/connections")
    async def list(self, request: web.Request) -> web.Response:
        """List all connections, or those to one virtual host. Without the tag monitoring, the user's own."""
        connections, alarmed = listed_connections(self._access, self._broker, request), self._broker.alarms.any
        view = View(
            self._describe(request),
            order=lambda connection: (connection.vhost_name, connection.name),
            keys=sort_keys(CONNECTION, lambda connection: ConnectionView(connection, self._node_name, alarmed)),
            name=lambda connection: connection.name,
            alias=lambda connection: client_provided_name(connection) or "",
        )
        return await list_response(request, connections, view, paginated=True)

    @route("GET", "connections/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show the connection of a name."""
        _, connection = self._find(request)
        return object_response(request, self._describe(request)(connection))

    @route("DELETE", "connections/{name}")
    async def close(self, request: web.Request) -> web.Response:
        """Close a connection. The header X-Reason has the reason."""
        user, connection = self._find(request)
        if user.name != connection.username and not has_tag(user, "administrator"):
            raise not_authorised(OBJECT_REFUSAL)
        reason = request.headers.get("x-reason") or _REASON
        connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
        return web.Response(status=204)

    @route("GET", "connections/username/{user}")
    async def list_of_user(self, request: web.Request) -> web.Response:
        """List the connections of a user, with few columns."""
        return json_response(
            [short_connection(connection, self._node_name) for connection in self._find_of_user(request)]
        )

    @route("DELETE", "connections/username/{user}")
    async def close_of_user(self, request: web.Request) -> web.Response:
        """Close the connections of a user, if any. The header X-Reason has the reason."""
        reason = request.headers.get("x-reason") or _REASON
        for connection in self._find_of_user(request):
            connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
        return web.Response(status=204)

    def _find_of_user(self, request: web.Request) -> Sequence[ClientConnection]:
        user, name = self._access.require(request, "management"), request.match_info["user"]
        if user.name != name and not has_tag(user, "monitoring"):
            raise not_authorised(OBJECT_REFUSAL)
        if request.method == "DELETE" and user.name != name and not has_tag(user, "administrator"):
            raise not_authorised(OBJECT_REFUSAL)
        return [connection for connection in self._broker.connections if connection.username == name]

    def _describe(self, request: web.Request) -> Callable[[ClientConnection], dict[str, Any]]:
        if stats_are_disabled(request):
            return lambda connection: short_connection(connection, self._node_name)
        rates = Rates(request, self._broker)
        alarmed = self._broker.alarms.any
        return lambda connection: connection_document(connection, self._node_name, rates, alarmed)

    def _find(self, request: web.Request) -> tuple[User, ClientConnection]:
        user = self._access.require(request, "management")
        return user, find_connection(self._broker.connections, user, request.match_info["name"])


def visible_connections(
    connections: Iterable[ClientConnection], user: User, request: web.Request
) -> list[ClientConnection]:
    """Return the connections that a user may see; with the header X-Vhost, those of that virtual host."""
    vhost = request.headers.get("x-vhost")
    sees_all = has_tag(user, "monitoring")
    return [
        connection
        for connection in connections
        if (sees_all or connection.username == user.name) and (not vhost or connection.vhost_name == vhost)
    ]


def listed_connections(access: Access, broker: Broker, request: web.Request) -> list[ClientConnection]:
    """Return the connections that the user of a request may see: all, or those to the virtual host in its path."""
    if "vhost" not in request.match_info:
        return visible_connections(broker.connections, access.require(request, "management"), request)
    user, vhost = access.require_vhost(request)
    return [each for each in visible_connections(broker.connections, user, request) if each.vhost_name == vhost.name]


def find_connection(connections: Iterable[ClientConnection], user: User, name: str) -> ClientConnection:
    """Return the connection of a name.

    Raises:
        HTTPNotFound: It does not exist.
        HTTPUnauthorized: The user may not see it.
    """
    for connection in connections:
        if connection.name == name:
            if connection.username != user.name and not has_tag(user, "monitoring"):
                raise not_authorised(OBJECT_REFUSAL)
            return connection
    raise not_found()


class Channels(Controller):
    """The resources ``/api/channels`` and ``/api/consumers``."""

    @route("GET", "channels", "vhosts/{vhost}/channels")
    async def list(self, request: web.Request) -> web.Response:
        """List all channels, or those to one virtual host. Without the tag monitoring, those of the user."""
        return await self._list(request, listed_connections(self._access, self._broker, request))

    @route("GET", "connections/{name}/channels")
    async def list_of_connection(self, request: web.Request) -> web.Response:
        """List the channels of a connection."""
        user = self._access.require(request, "management")
        connection = find_connection(self._broker.connections, user, request.match_info["name"])
        return await self._list(request, [connection])

    @route("GET", "channels/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show the channel of a name, with its consumers."""
        user = self._access.require(request, "management")
        require_stats(request)
        name = request.match_info["name"]
        connection = find_connection(self._broker.connections, user, name.rpartition(" (")[0])
        channel = existing(next((each for each in connection.channels if channel_name(each) == name), None))
        consumers = [
            consumer_document(consumer, self._node_name, self._context.settings.consumer_timeout)
            for consumer in channel.consumers.values()
        ]
        document = channel_document(channel, self._node_name, Rates(request, self._broker))
        return object_response(request, {**document, "consumer_details": consumers, "deliveries": [], "publishes": []})

    @route("GET", "consumers", "consumers/{vhost}")
    async def list_consumers(self, request: web.Request) -> web.Response:
        """List all consumers, or those of one virtual host. Without the tag monitoring, the user's own."""
        user = self._access.require(request, "management")
        require_stats(request)
        name = request.match_info.get("vhost")
        if name is not None and name not in self._broker.vhosts:
            raise not_found()
        consumers = [
            consumer
            for connection in visible_connections(self._broker.connections, user, request)
            if name in (None, connection.vhost_name)
            for channel in connection.channels
            for consumer in channel.consumers.values()
        ]
        view = View[ClientConsumer](
            lambda consumer: consumer_document(consumer, self._node_name, self._context.settings.consumer_timeout),
            order=lambda consumer: (channel_name(consumer.channel), consumer.tag),
            keys={"queue.name": lambda consumer: consumer.queue.name},
        )
        return await list_response(request, consumers, view)

    async def _list(self, request: web.Request, connections: Iterable[ClientConnection]) -> web.Response:
        require_stats(request)
        channels = [channel for connection in connections for channel in connection.channels]
        view = View(
            self._describe(request),
            order=lambda channel: (channel.client.vhost_name, channel.client.name, channel.number),
            keys=CHANNEL_SORT_KEYS,
            name=channel_name,
            alias=lambda channel: client_provided_name(channel.client) or "",
        )
        return await list_response(request, channels, view, paginated=True)

    def _describe(self, request: web.Request) -> Callable[[ClientChannel], dict[str, Any]]:
        rates = Rates(request, self._broker)
        return lambda channel: channel_document(channel, self._node_name, rates)
