"""Lists, shows, creates and deletes bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from aiohttp import web

from leveret.broker.core.exchanges.base import Binding
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.controllers.exchanges import exchange_name
from leveret.broker.management.http.documents.topology import (
    binding_document,
    default_binding,
    matches_properties_key,
    properties_key,
)
from leveret.broker.management.http.error_responses import not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_as_text
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import object_response
from leveret.broker.operations import exchanges
from leveret.broker.operations.exchanges import Ends


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


#: Path of the bindings between an exchange and a queue or another exchange.
_BETWEEN: Final = "bindings/{vhost}/e/{source}/{kind:q|e}/{destination}"


class Bindings(Controller):
    """The resource ``/api/bindings``, and the bindings of one queue or exchange."""

    @route("GET", "bindings", "bindings/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List all bindings, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        return await list_response(request, (binding for vhost in vhosts for binding in _all_bindings(vhost)), _VIEW)

    @route("GET", _BETWEEN)
    async def list_between(self, request: web.Request) -> web.Response:
        """List the bindings between an exchange and a queue or another exchange."""
        vhost = self._vhost(request)
        return await list_response(request, () if vhost is None else _between(vhost, _ends(request)), _VIEW)

    @route("GET", f"{_BETWEEN}/{{props}}")
    async def show(self, request: web.Request) -> web.Response:
        """Show the binding with a properties key."""
        _, vhost = self._access.require_vhost(request)
        return object_response(request, binding_document(_find(vhost, _ends(request), request.match_info["props"])))

    @route("GET", "queues/{vhost}/{name}/bindings")
    async def list_of_queue(self, request: web.Request) -> web.Response:
        """List the bindings of a queue."""
        found = _bindings_to(self._vhost(request), request.match_info["name"], to_queue=True)
        return await list_response(request, found, _TO, paginated=True)

    @route("GET", "exchanges/{vhost}/{name}/bindings/source")
    async def list_of_source(self, request: web.Request) -> web.Response:
        """List the bindings whose source is an exchange."""
        found = _bindings_from(self._vhost(request), exchange_name(request.match_info["name"]))
        return await list_response(request, found, _FROM, paginated=True)

    @route("GET", "exchanges/{vhost}/{name}/bindings/destination")
    async def list_of_destination(self, request: web.Request) -> web.Response:
        """List the bindings whose destination is an exchange."""
        found = _bindings_to(self._vhost(request), exchange_name(request.match_info["name"]), to_queue=False)
        return await list_response(request, found, _TO, paginated=True)

    @route("POST", _BETWEEN)
    async def bind(self, request: web.Request) -> web.Response:
        """Create a binding. The body may have routing_key and arguments."""
        principal = self._access.require_vhost_for_change(request)
        document = await read_object(request)
        key = check_length(read_as_text(document.get("routing_key", "")), "routing_key")
        ends = _ends(request)
        binding, history = exchanges.bind(principal, ends, key, read_arguments(document))
        await run_in_slices(history)
        name, props = quote(ends.destination, safe="", errors="surrogateescape"), properties_key(binding)
        return web.Response(status=201, headers={"location": f"{name}/{quote(props, safe='~')}"})

    @route("DELETE", f"{_BETWEEN}/{{props}}")
    async def unbind(self, request: web.Request) -> web.Response:
        """Delete the binding with a properties key."""
        principal = self._access.require_vhost_for_change(request)
        ends = _ends(request)
        exchanges.refuse_default(ends)
        binding = _find(principal.vhost, ends, request.match_info["props"])
        exchanges.unbind(principal, ends, binding.routing_key, binding.arguments)
        return web.Response(status=204)

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


def _ends(request: web.Request) -> Ends:
    match = request.match_info
    to_queue = match["kind"] == "q"
    destination = match["destination"] if to_queue else exchange_name(match["destination"])
    return Ends(exchange_name(match["source"]), destination, to_queue)


def _between(vhost: VirtualHost, ends: Ends) -> list[Binding]:
    to_destination = _bindings_to(vhost, ends.destination, ends.to_queue)
    return [binding for binding in to_destination if binding.identity.source == ends.source]


def _find(vhost: VirtualHost, ends: Ends, props: str) -> Binding:
    """Return the binding between two ends with a properties key.

    Raises:
        HTTPNotFound: It does not exist.
    """
    for binding in _between(vhost, ends):
        if matches_properties_key(properties_key(binding), props):
            return binding
    raise not_found()


def _bindings_from(vhost: VirtualHost | None, name: str) -> Iterable[Binding]:
    """Return the bindings whose source is an exchange; none if it does not exist."""
    if vhost is None:
        return ()
    if not name:
        return _default_bindings(vhost)
    exchange = vhost.topology.exchanges.get(name)
    return () if exchange is None else list(exchange.bindings.values())


def _bindings_to(vhost: VirtualHost | None, name: str, to_queue: bool) -> list[Binding]:
    """Return the bindings whose destination is a queue or an exchange; none if it does not exist."""
    if vhost is None:
        return []
    topology = vhost.topology
    if to_queue:
        queue = vhost.queues.get(name)
        return [] if queue is None else [default_binding(vhost, queue), *topology.bindings_of(queue)]
    exchange = topology.exchanges.get(name)
    return [] if exchange is None else list(topology.bindings_of(exchange))
