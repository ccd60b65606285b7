"""Lists, shows, makes and deletes bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from aiohttp import web

from leveret.broker.core.exchanges.base import Binding, Destination
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.controllers.exchanges import exchange_name
from leveret.broker.management.http.documents.topology import (
    binding_document,
    default_binding,
    matches_properties_key,
    properties_key,
)
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_as_text
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import object_response
from leveret.broker.operations import bindings
from leveret.broker.operations.bindings import Ends


def _default_order(binding: Binding) -> tuple[str, ...]:
    """Return the default sort key. The destination's type comes last."""
    source, destination_type, destination, routing_key = binding.identity[:4]
    return binding.source.vhost_name, source, destination, routing_key, destination_type


_VIEW: Final[View[Binding]] = View(
    binding_document,
    order=_default_order,
    keys={
        "source": lambda binding: binding.identity.source,
        "vhost": lambda binding: binding.source.vhost_name,
        "destination": lambda binding: binding.identity.destination,
        "destination_type": lambda binding: binding.identity.destination_type,
        "routing_key": lambda binding: binding.identity.routing_key,
    },
)
#: The filter searches the routing key and the end that the path does not name.
_FROM: Final = replace(_VIEW, name=lambda binding: f"{binding.identity.destination} {binding.identity.routing_key}")
_TO: Final = replace(_VIEW, name=lambda binding: f"{binding.identity.source} {binding.identity.routing_key}")


class Bindings(Controller):
    """Reading methods of the resource ``/api/bindings``, and the bindings of one queue or exchange."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        between = "bindings/{vhost}/e/{source}"
        exchange = "exchanges/{vhost}/{name}"
        return [
            *resource("bindings", GET=self.list),
            *resource("bindings/{vhost}", GET=self.list),
            *resource(f"{between}/{{kind:q}}/{{destination}}", GET=self.list_between),
            *resource(f"{between}/{{kind:e}}/{{destination}}", GET=self.list_between),
            *resource(f"{between}/{{kind:q}}/{{destination}}/{{props}}", GET=self.show),
            *resource(f"{between}/{{kind:e}}/{{destination}}/{{props}}", GET=self.show),
            *resource("queues/{vhost}/{name}/bindings", GET=self.list_of_queue),
            *resource(f"{exchange}/bindings/source", GET=self.list_of_source),
            *resource(f"{exchange}/bindings/destination", GET=self.list_of_destination),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List all bindings, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        return await list_response(request, (binding for vhost in vhosts for binding in _all_bindings(vhost)), _VIEW)

    async def list_between(self, request: web.Request) -> web.Response:
        """List the bindings between an exchange and a queue or another exchange."""
        vhost = self._vhost(request)
        return await list_response(request, () if vhost is None else _between(request, vhost), _VIEW)

    async def show(self, request: web.Request) -> web.Response:
        """Show the binding with a properties key."""
        _, vhost = self._access.require_vhost(request)
        for binding in _between(request, vhost):
            document = binding_document(binding)
            if matches_properties_key(document["properties_key"], request.match_info["props"]):
                return object_response(request, document)
        raise not_found()

    async def list_of_queue(self, request: web.Request) -> web.Response:
        """List the bindings of a queue."""
        bindings = _bindings_to(self._vhost(request), "q", request.match_info["name"])
        return await list_response(request, bindings, _TO, paginated=True)

    async def list_of_source(self, request: web.Request) -> web.Response:
        """List the bindings whose source is an exchange."""
        bindings = _bindings_from(self._vhost(request), exchange_name(request.match_info["name"]))
        return await list_response(request, bindings, _FROM, paginated=True)

    async def list_of_destination(self, request: web.Request) -> web.Response:
        """List the bindings whose destination is an exchange."""
        bindings = _bindings_to(self._vhost(request), "e", exchange_name(request.match_info["name"]))
        return await list_response(request, bindings, _TO, paginated=True)

    def _vhost(self, request: web.Request) -> VirtualHost | None:
        """Return the virtual host in the path. None if it does not exist: the list is then empty."""
        try:
            return self._access.require_vhost(request)[1]
        except web.HTTPNotFound:
            return None


def _default_bindings(vhost: VirtualHost) -> Iterator[Binding]:
    # A copy, because other connections may change the dictionary between slices.
    return (default_binding(vhost, queue) for queue in list(vhost.queues.values()))


def _all_bindings(vhost: VirtualHost) -> Iterator[Binding]:
    yield from _default_bindings(vhost)
    for exchange in list(vhost.topology.exchanges.values()):
        yield from list(exchange.bindings.values())


def _between(request: web.Request, vhost: VirtualHost) -> list[Binding]:
    match = request.match_info
    source, kind = exchange_name(match["source"]), match["kind"]
    destination = match["destination"] if kind == "q" else exchange_name(match["destination"])
    return [binding for binding in _bindings_to(vhost, kind, destination) if binding.identity.source == source]


def _bindings_from(vhost: VirtualHost | None, name: str) -> Iterable[Binding]:
    """Return the bindings whose source is an exchange; none if it does not exist."""
    if vhost is None:
        return ()
    if not name:
        return _default_bindings(vhost)
    exchange = vhost.topology.exchanges.get(name)
    return () if exchange is None else list(exchange.bindings.values())


def _bindings_to(vhost: VirtualHost | None, kind: str, name: str) -> list[Binding]:
    """Return the bindings whose destination is a queue (q) or an exchange (e); none if it does not exist."""
    if vhost is None:
        return []
    topology = vhost.topology
    if kind == "e":
        exchange = topology.exchanges.get(name)
        return [] if exchange is None else list(topology.bindings_of(exchange))
    queue = vhost.queues.get(name)
    return [] if queue is None else [default_binding(vhost, queue), *topology.bindings_of(queue)]


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
