"""Creates and deletes bindings."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from aiohttp import web

from leveret.broker.auth.users import User
from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.core.exchanges.bindings import Binding, Destination
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.controller import RequestContext, resource
from leveret.broker.management.http.controllers.exchange_actions import exchange_name
from leveret.broker.management.http.documents.topology import matches_properties_key, properties_key
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_as_text
from leveret.broker.management.http.request_bodies import read_object


class BindingActions:
    """Changing methods of the resource ``/api/bindings``.

    Args:
        context: The broker and its users.
    """

    def __init__(self, context: RequestContext) -> None:
        self._accounts = context.accounts
        self._access = context.access

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        routes: list[web.RouteDef] = []
        for kind in ("q", "e"):
            path = f"bindings/{{vhost}}/e/{{source}}/{{kind:{kind}}}/{{destination}}"
            routes += resource(path, POST=self.bind)
            routes += resource(f"{path}/{{props}}", DELETE=self.unbind)
        return routes

    async def bind(self, request: web.Request) -> web.Response:
        """Create a binding. The body may have routing_key and arguments."""
        user, vhost = self._access.require_vhost_for_change(request)
        document = await read_object(request)
        key = check_length(read_as_text(document.get("routing_key", "")), "routing_key")
        arguments = read_arguments(document)
        source_name, destination_name, to_queue = _names(request)
        self._check(user, vhost, source_name, destination_name, to_queue)
        source = vhost.topology.exchange(source_name)
        self._check_topic(user, vhost, source, key)
        destination: Destination = (
            vhost.queue(destination_name, None) if to_queue else vhost.topology.exchange(destination_name)
        )
        vhost.topology.bind(source, destination, key, arguments)
        props = properties_key(Binding(source, destination, key, arguments))
        location = f"{quote(destination_name, safe='', errors='surrogateescape')}/{quote(props, safe='~')}"
        return web.Response(status=201, headers={"location": location})

    async def unbind(self, request: web.Request) -> web.Response:
        """Delete the binding with a properties key."""
        user, vhost = self._access.require_vhost_for_change(request)
        source_name, destination_name, to_queue = _names(request)
        self._refuse_default(vhost, source_name, destination_name, to_queue)
        binding = _find(vhost, source_name, destination_name, to_queue, request.match_info["props"])
        self._check(user, vhost, source_name, destination_name, to_queue)
        self._check_topic(user, vhost, binding.source, binding.routing_key)
        vhost.topology.unbind(binding.source, binding.destination, binding.routing_key, binding.arguments)
        return web.Response(status=204)

    def _check(self, user: User, vhost: VirtualHost, source: str, destination: str, to_queue: bool) -> None:
        """Refuse the default exchange, and a source or destination that the user may not bind."""
        self._refuse_default(vhost, source, destination, to_queue)
        self._access.check(user, vhost.name, "write", "queue" if to_queue else "exchange", destination)
        self._access.check(user, vhost.name, "read", "exchange", source)

    def _check_topic(self, user: User, vhost: VirtualHost, source: Exchange, key: str) -> None:
        """Refuse a routing key that the user may not read from a topic exchange."""
        if source.type_name == "topic":
            self._accounts.check_topic(user, vhost.name, "read", source.name, key)

    def _refuse_default(self, vhost: VirtualHost, source: str, destination: str, to_queue: bool) -> None:
        if not to_queue:
            vhost.topology.refuse_default(destination)
        vhost.topology.refuse_default(source)


def _names(request: web.Request) -> tuple[str, str, bool]:
    """Return the names of source and destination, and whether the destination is a queue."""
    match = request.match_info
    to_queue = match["kind"] == "q"
    destination = match["destination"] if to_queue else exchange_name(match["destination"])
    return exchange_name(match["source"]), destination, to_queue


def _find(vhost: VirtualHost, source: str, destination: str, to_queue: bool, props: str) -> Binding:
    """Return the binding between a source and a destination with a properties key.

    Raises:
        HTTPNotFound: It does not exist.
    """
    table = vhost.queues if to_queue else vhost.topology.exchanges
    end = cast("Destination | None", table.get(destination))
    if end is not None:
        for binding in vhost.topology.bindings_of(end):
            if binding.source.name == source and matches_properties_key(properties_key(binding), props):
                return binding
    raise not_found()
