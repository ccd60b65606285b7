"""Lists and shows exchanges."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.exchanges.base import Exchange
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.controllers.exchange_actions import exchange_name
from leveret.broker.management.http.documents.topology import exchange_document
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.responses import object_response
from leveret.broker.management.http.statistics import Rates, stats_are_disabled


class Exchanges(Controller):
    """Reading methods of the resource ``/api/exchanges``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("exchanges", GET=self.list),
            *resource("exchanges/{vhost}", GET=self.list),
            *resource("exchanges/{vhost}/{name}", GET=self.show),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """List all exchanges, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        rates = self._rates(request)
        exchanges = [exchange for vhost in vhosts for exchange in vhost.topology.exchanges.values()]
        view = View[Exchange](
            lambda exchange: exchange_document(exchange, rates),
            order=lambda exchange: (exchange.vhost_name, exchange.name),
            keys={
                "name": lambda exchange: exchange.name,
                "vhost": lambda exchange: exchange.vhost_name,
                "type": lambda exchange: exchange.type_name,
                "durable": lambda exchange: exchange.durable,
            },
        )
        return await list_response(request, exchanges, view, paginated=True)

    async def show(self, request: web.Request) -> web.Response:
        """Show one exchange."""
        _, vhost = self._access.require_vhost(request)
        exchange = vhost.topology.exchanges.get(exchange_name(request.match_info["name"]))
        if exchange is None:
            raise not_found()
        document = exchange_document(exchange, self._rates(request))
        return object_response(request, {**document, "incoming": [], "outgoing": []})

    def _rates(self, request: web.Request) -> Rates | None:
        return None if stats_are_disabled(request) else Rates(request, self._broker)
