"""The named consumers of streams, and the named readers of streaming queries. RabbitMQ has neither."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.management.fields import READER
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.clients import consumer_name_document
from leveret.broker.management.http.documents.views import document_maker
from leveret.broker.management.http.durability import wait_until_stored
from leveret.broker.management.http.request_bodies import read_object, require_keys
from leveret.broker.management.http.responses import bad_request_if, existing, json_response, not_found
from leveret.broker.operations import queues
from leveret.policies.stream_arguments import read_place
from leveret.storage.readers.named_readers import NamedReaders


class ConsumerNames(Controller):
    """The resource ``/api/queues/{vhost}/{name}/consumer-names``."""

    @route("GET", "queues/{vhost}/{name}/consumer-names")
    async def list(self, request: web.Request) -> web.Response:
        """List all names of a stream, and where each goes on."""
        stream = self._open(request)
        names = stream.names.by_name.values()
        return json_response([consumer_name_document(stream, each, self._node_name) for each in names])

    @route("GET", "queues/{vhost}/{name}/consumer-names/{consumer}")
    async def show(self, request: web.Request) -> web.Response:
        """Show one name."""
        stream, name = self._open(request), request.match_info["consumer"]
        found = stream.names.by_name.get(name)
        if found is None:
            raise queues.unknown_consumer_name(stream, name)
        return json_response(consumer_name_document(stream, found, self._node_name))

    @route("PUT", "queues/{vhost}/{name}/consumer-names/{consumer}")
    async def set(self, request: web.Request) -> web.Response:
        """Set where a name goes on. The body has `next`: a place in the stream."""
        document = await read_object(request)
        stream = self._open(request)
        require_keys(document, "next")
        with bad_request_if(ValueError):
            place = read_place("next", document["next"])
        is_new = queues.set_consumer_name(stream, request.match_info["consumer"], place)
        await wait_until_stored(self._broker)
        return web.Response(status=201 if is_new else 204)

    @route("DELETE", "queues/{vhost}/{name}/consumer-names/{consumer}")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a name."""
        queues.delete_consumer_name(self._open(request), request.match_info["consumer"])
        await wait_until_stored(self._broker)
        return web.Response(status=204)

    def _open(self, request: web.Request) -> StreamQueue:
        return queues.open_stream(self._access.require_connect(request), request.match_info["name"])


_document: Final = document_maker(READER)


class Readers(Controller):
    """The resource ``/api/readers``: for monitors, and for administrators to drop one."""

    @route("GET", "readers", tag="monitoring")
    async def list(self, request: web.Request) -> web.Response:
        """List all readers: what they read, when they were seen last, and what is kept for them."""
        return json_response([_document(each) for each in self._readers.states])

    @route("GET", "readers/{reader}", tag="monitoring")
    async def show(self, request: web.Request) -> web.Response:
        """Show one reader."""
        by_name = {each.file.name: each for each in self._readers.states}
        return json_response(_document(existing(by_name.get(request.match_info["reader"]))))

    @route("DELETE", "readers/{reader}", tag="administrator")
    async def drop(self, request: web.Request) -> web.Response:
        """Drop a reader: nothing is kept for it any more, and its query is told."""
        if not self._readers.drop(request.match_info["reader"]):
            raise not_found()
        return web.Response(status=204)

    @property
    def _readers(self) -> NamedReaders:
        return self._broker.stores.engine.readers
