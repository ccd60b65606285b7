"""Creates and deletes bindings."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from leveret.broker.core.exchanges.base import Binding, Destination
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.controllers.exchange_actions import exchange_name
from leveret.broker.management.http.documents.topology import matches_properties_key, properties_key
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_as_text
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.operations import bindings
from leveret.broker.operations.bindings import Ends


class BindingActions(Controller):
    """Changing methods of the resource ``/api/bindings``."""

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
        principal = self._access.require_vhost_for_change(request)
        document = await read_object(request)
        key = check_length(read_as_text(document.get("routing_key", "")), "routing_key")
        ends = _ends(request)
        binding = bindings.bind(principal, ends, key, read_arguments(document))
        name, props = quote(ends.destination, safe="", errors="surrogateescape"), properties_key(binding)
        return web.Response(status=201, headers={"location": f"{name}/{quote(props, safe='~')}"})

    async def unbind(self, request: web.Request) -> web.Response:
        """Delete the binding with a properties key."""
        principal = self._access.require_vhost_for_change(request)
        ends = _ends(request)
        bindings.refuse_default(principal.vhost, ends)
        binding = _find(principal.vhost, ends, request.match_info["props"])
        bindings.unbind(principal, ends, binding.routing_key, binding.arguments)
        return web.Response(status=204)


def _ends(request: web.Request) -> Ends:
    match = request.match_info
    to_queue = match["kind"] == "q"
    destination = match["destination"] if to_queue else exchange_name(match["destination"])
    return Ends(exchange_name(match["source"]), destination, to_queue)


def _find(vhost: VirtualHost, ends: Ends, props: str) -> Binding:
    """Return the binding between two ends with a properties key.

    Raises:
        HTTPNotFound: It does not exist.
    """
    queues, topology = vhost.queues, vhost.topology
    end: Destination | None = (queues if ends.to_queue else topology.exchanges).get(ends.destination)
    for binding in () if end is None else topology.bindings_of(end):
        if binding.source.name == ends.source and matches_properties_key(properties_key(binding), props):
            return binding
    raise not_found()
