"""Lists and drops the named readers of streaming queries. RabbitMQ does not have this resource."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import not_found
from leveret.broker.management.http.responses import json_response
from leveret.storage.readers.named_readers import ReaderState


class Readers(Controller):
    """The resource ``/api/readers``: for monitors, and for administrators to drop one."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [*resource("readers", GET=self.list), *resource("readers/{reader}", GET=self.show, DELETE=self.drop)]

    async def list(self, request: web.Request) -> web.Response:
        """List all readers: what they read, when they were seen last, and what is kept for them."""
        self._access.require(request, "monitoring")
        return json_response([_document(each) for each in self._broker.stores.readers])

    async def show(self, request: web.Request) -> web.Response:
        """Show one reader."""
        self._access.require(request, "monitoring")
        name = request.match_info["reader"]
        found = next((each for each in self._broker.stores.readers if each.file.name == name), None)
        if found is None:
            raise not_found()
        return json_response(_document(found))

    async def drop(self, request: web.Request) -> web.Response:
        """Drop a reader: nothing is kept for it any more, and its query is told."""
        self._access.require(request, "administrator")
        if not self._broker.stores.drop_reader(request.match_info["reader"]):
            raise not_found()
        return web.Response(status=204)


def _document(reader: ReaderState) -> dict[str, Any]:
    file = reader.file
    return {
        "name": file.name,
        "vhost": file.vhost,
        "queue": file.queue,
        "created": file.created // 1000,
        "seen": file.seen // 1000,
        "held_bytes": reader.held_bytes,
    }
