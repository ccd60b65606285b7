"""Lists, shows, declares and deletes exchanges, and publishes to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.management.http.access import http_origin
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.topology import (
    EXCHANGE_SORT_KEYS,
    exchange_document,
    single_exchange_document,
)
from leveret.broker.management.http.durability import wait_until_stored
from leveret.broker.management.http.error_responses import bad_request, not_found
from leveret.broker.management.http.json_fields import (
    check_length,
    read_arguments,
    read_as_text,
    read_base64,
    read_flag,
    read_table,
    require_keys,
)
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import json_response, object_response
from leveret.broker.management.http.statistics import Rates, stats_are_disabled
from leveret.broker.operations import exchanges
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
        exchange = vhost.topology.exchanges.get(exchange_name(request.match_info["name"]))
        if exchange is None:
            raise not_found()
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
        document = await read_object(request)
        require_keys(document, "routing_key", "properties", "payload", "payload_encoding")
        body, properties = _read_payload(document), document["properties"] or {}
        if not isinstance(properties, Mapping):
            raise bad_request("properties must be an object")
        header = _encode_properties(properties, len(body))
        routing_key = check_length(read_as_text(document["routing_key"]), "routing_key")
        name = exchange_name(request.match_info["name"])
        try:
            accepted = publish(principal, name, routing_key, header, body, http_origin(principal.user))
        except AmqpFault as fault:
            raise bad_request(str(fault)) from None
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
