"""Lists and shows channels and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web

from leveret.broker.core.clients import ClientChannel, ClientConnection, ClientConsumer
from leveret.broker.management.http.controller import Controller, RequestContext, resource
from leveret.broker.management.http.controllers.connections import find_connection, visible_connections
from leveret.broker.management.http.documents.clients import (
    CHANNEL_SORT_KEYS,
    channel_document,
    channel_name,
    client_provided_name,
    consumer_document,
)
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.responses import object_response
from leveret.broker.management.http.statistics import Rates, require_stats


class Channels(Controller):
    """The resources ``/api/channels`` and ``/api/consumers``."""

    def __init__(self, context: RequestContext) -> None:
        super().__init__(context)
        self._consumer_timeout = context.settings.consumer_timeout

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("channels", GET=self.list),
            *resource("channels/{name}", GET=self.show),
            *resource("connections/{name}/channels", GET=self.list_of_connection),
            *resource("vhosts/{vhost}/channels", GET=self.list_of_vhost),
            *resource("consumers", GET=self.list_consumers),
            *resource("consumers/{vhost}", GET=self.list_consumers),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List all channels. Without the tag monitoring, those of the user's own connections."""
        user = self._access.require(request, "management")
        return await self._list(request, visible_connections(self._broker.connections, user, request))

    async def list_of_connection(self, request: web.Request) -> web.Response:
        """List the channels of a connection."""
        user = self._access.require(request, "management")
        connection = find_connection(self._broker.connections, user, request.match_info["name"])
        return await self._list(request, [connection])

    async def list_of_vhost(self, request: web.Request) -> web.Response:
        """List the channels of all connections to a virtual host."""
        user, vhost = self._access.require_vhost(request)
        connections = visible_connections(self._broker.connections, user, request)
        return await self._list(request, [each for each in connections if each.vhost_name == vhost.name])

    async def show(self, request: web.Request) -> web.Response:
        """Show the channel of a name, with its consumers."""
        user = self._access.require(request, "management")
        require_stats(request)
        name = request.match_info["name"]
        connection = find_connection(self._broker.connections, user, name.rpartition(" (")[0])
        channel = next((each for each in connection.channels if channel_name(each) == name), None)
        if channel is None:
            raise not_found()
        consumers = [
            consumer_document(consumer, self._node_name, self._consumer_timeout)
            for consumer in channel.consumers.values()
        ]
        document = channel_document(channel, self._node_name, Rates(request, self._broker))
        return object_response(request, {**document, "consumer_details": consumers, "deliveries": [], "publishes": []})

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
            lambda consumer: consumer_document(consumer, self._node_name, self._consumer_timeout),
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
            alias=lambda channel: client_provided_name(channel.client),
        )
        return await list_response(request, channels, view, paginated=True)

    def _describe(self, request: web.Request) -> Callable[[ClientChannel], dict[str, Any]]:
        rates = Rates(request, self._broker)
        return lambda channel: channel_document(channel, self._node_name, rates)
