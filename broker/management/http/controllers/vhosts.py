"""Lists, shows, creates, changes and deletes virtual hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from leveret.broker.core.scheduling.slices import result_in_slices
from leveret.broker.core.vhosts.metadata import InvalidMetadata, VirtualHostMetadata, read_metadata
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.access import has_tag
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.overview import vhost_stats
from leveret.broker.management.http.documents.topology import vhost_document
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import check_length, read_object
from leveret.broker.management.http.responses import bad_request, existing, not_found, object_response
from leveret.broker.management.http.statistics import Rates, count_all, stats_are_disabled
from leveret.broker.operations.virtual_hosts import delete_vhost, put_vhost


class VirtualHosts(Controller):
    """The resource ``/api/vhosts``."""

    @route("GET", "vhosts")
    async def list(self, request: web.Request) -> web.Response:
        """List the virtual hosts that the user may see: with the tag monitoring all of them."""
        user = self._access.require(request, "management")
        sees_all = has_tag(user, "monitoring")
        vhosts = [vhost for vhost in self._broker.vhosts.values() if sees_all or self._access.can_see(user, vhost.name)]
        view = View[VirtualHost](
            describe=await self._descriptions(request),
            order=lambda vhost: vhost.name,
            keys={"name": lambda vhost: vhost.name},
            name=lambda vhost: vhost.name,
        )
        return await list_response(request, vhosts, view, paginated=True)

    @route("GET", "vhosts/{vhost}", tag="administrator")
    async def show(self, request: web.Request) -> web.Response:
        """Show one virtual host."""
        vhost = existing(self._broker.vhosts.get(request.match_info["vhost"]))
        return object_response(request, (await self._descriptions(request))(vhost))

    @route("PUT", "vhosts/{vhost}")
    async def put(self, request: web.Request) -> web.Response:
        """Create a virtual host, or change its metadata. Its creator gets all permissions in it."""
        user = self._access.require(request, "administrator")
        name = check_length(request.match_info["vhost"], "vhost")
        document = await read_object(request)
        existed = name in self._broker.vhosts
        known = self._broker.vhosts[name].metadata if existed else VirtualHostMetadata()
        try:
            metadata = read_metadata(document, known)
        except InvalidMetadata as invalid:
            raise bad_request(invalid.reason) from None
        put_vhost(self._broker, self._accounts, user, name, metadata)
        return web.Response(status=204 if existed else 201)

    @route("DELETE", "vhosts/{vhost}", tag="administrator")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a virtual host with all its objects, and close its connections."""
        name = request.match_info["vhost"]
        vhost = self._broker.vhosts.get(name)
        if vhost is None or not await result_in_slices(delete_vhost(self._broker, self._accounts, vhost)):
            raise not_found()
        return web.Response(status=204)

    @route("POST", "vhosts/{vhost}/start/{node}", tag="administrator")
    async def start(self, request: web.Request) -> web.Response:
        """Accept starting a virtual host, which does nothing: virtual hosts do not fail."""
        node = request.match_info["node"]
        if node != self._node_name:
            raise bad_request(f"Request to node {node} failed with nodedown")
        if request.match_info["vhost"] not in self._broker.vhosts:
            raise not_found()
        return web.Response(status=204)

    async def _descriptions(self, request: web.Request) -> Callable[[VirtualHost], dict[str, Any]]:
        """Return a function that describes a virtual host. Counters are added up once for all of them."""
        if stats_are_disabled(request):
            return lambda vhost: vhost_document(vhost, self._node_name)
        rates, counted = Rates(request, self._broker), (await count_all(self._broker)).vhosts

        def describe(vhost: VirtualHost) -> dict[str, Any]:
            statistics = vhost.statistics
            row = counted.get(vhost.name) or statistics.row()
            return {**vhost_document(vhost, self._node_name), **vhost_stats(statistics, row, rates)}

        return describe
