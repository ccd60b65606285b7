"""Lists, shows, declares and deletes exchanges, publishes to them, and lists, shows, creates and deletes bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from leveret.broker.core.exchanges.base import Binding, Exchange
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.topology import (
    EXCHANGE_SORT_KEYS,
    binding_document,
    default_binding,
    exchange_document,
    matches_properties_key,
    properties_key,
    single_exchange_document,
)
from leveret.broker.management.http.durability import wait_until_stored
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import (
    check_length,
    read_arguments,
    read_as_text,
    read_base64,
    read_flag,
    read_object,
    read_table,
)
from leveret.broker.management.http.responses import (
    bad_request,
    bad_request_if,
    existing,
    json_response,
    not_found,
    object_response,
)
from leveret.broker.management.http.statistics import Rates, stats_are_disabled
from leveret.broker.operations import exchanges
from leveret.broker.operations.exchanges import Ends
from leveret.broker.operations.publishing import publish
from leveret.policies.permissions import DEFAULT_EXCHANGE
from leveret.protocol.faults import AmqpFault
from leveret.protocol.properties import FLAGS, encode_content_header, encode_headers, encode_text

#: Numeric properties with their size in bytes.
_NUMBERS: Final = {"delivery_mode": 1, "priority": 1, "timestamp": 8}


class Exchanges(Controller):
    """The resource ``/api/exchanges``."""

    @route("GET", "exchanges", "exchanges/{vhost}")
    async def list(self, request: web.Request) -> web.Response:
        """List all exchanges, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        rates = self._rates(request)
        found = [exchange for vhost in vhosts for exchange in vhost.topology.exchanges.values()]
        view = View[Exchange](
            lambda exchange: exchange_document(exchange, self._node_name, rates),
            order=lambda exchange: (exchange.vhost_name, exchange.name),
            keys=EXCHANGE_SORT_KEYS,
            name=lambda exchange: exchange.name,
        )
        return await list_response(request, found, view, paginated=True)

    @route("GET", "exchanges/{vhost}/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show one exchange."""
        _, vhost = self._access.require_vhost(request)
        exchange = existing(vhost.topology.exchanges.get(exchange_name(request.match_info["name"])))
        return object_response(request, single_exchange_document(exchange, self._node_name, self._rates(request)))

    @route("PUT", "exchanges/{vhost}/{name}")
    async def declare(self, request: web.Request) -> web.Response:
        """Declare an exchange. The body has type, durable, auto_delete, internal and arguments."""
        principal = self._access.require_vhost_for_change(request)
        name = check_length(exchange_name(request.match_info["name"]), "exchange")
        document = await read_object(request)
        flags = [read_flag(document, key) for key in ("durable", "auto_delete", "internal")]
        arguments = read_arguments(document)
        type_name = read_as_text(document.get("type", "direct"))
        existed = name in principal.vhost.topology.exchanges
        exchanges.declare(principal, name, type_name, flags[0], flags[1], flags[2], arguments)
        return web.Response(status=204 if existed else 201)

    @route("DELETE", "exchanges/{vhost}/{name}")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete an exchange; with if-unused only if no binding has it as its source."""
        principal = self._access.require_vhost_for_change(request)
        name, vhost = exchange_name(request.match_info["name"]), principal.vhost
        if name not in vhost.topology.exchanges and not vhost.unrestored.has("exchange", name):
            raise not_found()
        exchanges.delete(principal, name, request.query.get("if-unused") == "true")
        return web.Response(status=204)

    @route("POST", "exchanges/{vhost}/{name}/publish")
    async def publish(self, request: web.Request) -> web.Response:
        """Publish a message; respond whether it was routed to a queue, or with 400 if a queue refuses it."""
        principal = self._access.require_connect(request)
        document = await read_object(request, "routing_key", "properties", "payload", "payload_encoding")
        body, properties = _read_payload(document), document["properties"] or {}
        if not isinstance(properties, Mapping):
            raise bad_request("properties must be an object")
        header = _encode_properties(properties, len(body))
        routing_key = check_length(read_as_text(document["routing_key"]), "routing_key")
        name = exchange_name(request.match_info["name"])
        with bad_request_if(AmqpFault):
            accepted = publish(principal, name, routing_key, header, body, http_origin(principal.user))
        if not all(accepted):
            raise bad_request("rejected Unable to publish message. Check queue limits.")
        await wait_until_stored(self._broker)
        return json_response({"routed": bool(accepted)})

    def _rates(self, request: web.Request) -> Rates | None:
        return None if stats_are_disabled(request) else Rates(request, self._broker)


def exchange_name(segment: str) -> str:
    """Return the exchange that a path segment names. The default exchange has a name in paths."""
    return "" if segment == DEFAULT_EXCHANGE else segment


def _read_payload(document: Mapping[str, Any]) -> bytes:
    payload, encoding = document["payload"], document["payload_encoding"]
    if not isinstance(payload, str):
        raise bad_request("payload_not_string")
    if encoding == "string":
        return payload.encode("utf-8", "surrogateescape")
    if encoding != "base64":
        raise bad_request(["unsupported_encoding", encoding])
    return read_base64(payload)


def _encode_properties(properties: Mapping[str, Any], body_size: int) -> bytes:
    """Return the content header of properties given as JSON. Unknown properties are ignored."""
    values: dict[int, bytes] = {}
    for flag, name in FLAGS:
        if name not in properties:
            continue
        value = properties[name]
        if name == "headers":
            values[flag] = encode_headers(read_table(value or {}, name))
        elif name in _NUMBERS:
            values[flag] = _encode_number(name, value)
        elif not isinstance(value, str):
            raise bad_request(["not_string", name])
        else:
            values[flag] = encode_text(check_length(value, name))
    return encode_content_header(body_size, values)


def _encode_number(name: str, value: Any) -> bytes:
    size = _NUMBERS[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request(["not_int", name])
    if not 0 <= value < 1 << (8 * size):
        raise bad_request(f"{name} must be between 0 and {(1 << (8 * size)) - 1}, is {value}")
    return value.to_bytes(size, "big")


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
