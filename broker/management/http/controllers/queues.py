"""Lists, shows, explains, declares, deletes and purges queues; and the named consumers and readers of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.policy_effects import explain_queue
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.queues.stream_queue import StreamQueue
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.fields import READER
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.documents.clients import consumer_name_document
from leveret.broker.management.http.documents.queues import (
    SORT_KEYS,
    queue_document,
    queue_without_stats,
    single_queue_document,
)
from leveret.broker.management.http.documents.views import document_maker
from leveret.broker.management.http.durability import wait_until_stored
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import (
    check_length,
    read_arguments,
    read_flag,
    read_object,
    require_keys,
)
from leveret.broker.management.http.responses import (
    bad_request,
    bad_request_if,
    existing,
    json_response,
    not_found,
    object_response,
)
from leveret.broker.management.http.statistics import Rates, stats_are_disabled, totals_are_enabled
from leveret.broker.operations import queues
from leveret.policies.stream_arguments import read_place
from leveret.storage.readers.named_readers import NamedReaders


class Queues(Controller):
    """The resource ``/api/queues``, except its messages."""

    @route("GET", "queues")
    async def list(self, request: web.Request) -> web.Response:
        """List all queues, or those of one virtual host."""
        _, vhosts = self._access.listed_vhosts(request)
        return await self._list(request, vhosts)

    @route("GET", "queues/")
    async def list_default(self, request: web.Request) -> web.Response:
        """List the queues of the virtual host ``/`` at ``/api/queues//``, which Celery Flower requests."""
        user = self._access.require(request, "management")
        vhost = self._broker.vhosts.get("/")
        if vhost is None or not self._access.can_see(user, vhost.name):
            raise not_found()
        return await self._list(request, [vhost])

    @route("GET", "queues/{vhost}")
    async def list_of_vhost(self, request: web.Request) -> web.Response:
        """List the queues of one virtual host."""
        return await self.list(request)

    @route("GET", "queues/{vhost}/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show one queue."""
        _, queue = self._require_queue(request)
        if stats_are_disabled(request):
            return object_response(request, queue_without_stats(queue, self._node_name, totals_are_enabled(request)))
        rates, timeout = Rates(request, self._broker), self._context.settings.consumer_timeout
        return object_response(request, single_queue_document(queue, self._node_name, rates, timeout))

    @route("GET", "queues/{vhost}/{name}/explain")
    async def explain(self, request: web.Request) -> web.Response:
        """Show each setting with argument, policy, operator policy, effective value and reason, and the fill level."""
        vhost, queue = self._require_queue(request)
        return object_response(request, explain_queue(queue, vhost.policies))

    @route("PUT", "queues/{vhost}/{name}")
    async def declare(self, request: web.Request) -> web.Response:
        """Declare a queue. The body may have durable, auto_delete, arguments and node."""
        principal = self._access.require_vhost_for_change(request)
        name = check_length(request.match_info["name"], "queue")
        document = await read_object(request)
        flags = read_flag(document, "durable"), read_flag(document, "auto_delete")
        arguments = read_arguments(document)
        node = document.get("node")
        if node not in (None, "", self._node_name):
            raise bad_request(f"Node {node} could not be contacted")
        existed = name in principal.vhost.queues
        queues.declare(principal, name, *flags, arguments).renew_expiry()
        return web.Response(status=204 if existed else 201)

    @route("DELETE", "queues/{vhost}/{name}")
    async def delete(self, request: web.Request) -> web.Response:
        """Delete a queue; with if-empty only if it is empty, with if-unused only if it has no consumers."""
        principal, name = self._access.require_vhost_for_change(request), request.match_info["name"]
        if name not in principal.vhost.queues and not principal.vhost.unrestored.has("queue", name):
            raise not_found()
        if_unused, if_empty = (request.query.get(key) == "true" for key in ("if-unused", "if-empty"))
        queues.delete(principal, name, if_unused, if_empty)
        return web.Response(status=204)

    @route("DELETE", "queues/{vhost}/{name}/contents")
    async def purge(self, request: web.Request) -> web.Response:
        """Drop the ready messages of a queue."""
        principal, name = self._access.require_vhost_for_change(request), request.match_info["name"]
        if name not in principal.vhost.queues:
            raise not_found()
        queues.purge(principal, name)
        return web.Response(status=204)

    @route("POST", "queues/{vhost}/{name}/actions")
    async def run_action(self, request: web.Request) -> web.Response:
        """Accept the actions sync and cancel_sync, which do nothing: there are no mirrors."""
        vhost = self._access.require_vhost_for_change(request, "administrator").vhost
        document = await read_object(request, "action")
        if document["action"] not in ("sync", "cancel_sync"):
            raise bad_request(["unknown", document["action"]])
        if request.match_info["name"] not in vhost.queues:
            raise not_found()
        return web.Response(status=204)

    def _require_queue(self, request: web.Request) -> tuple[VirtualHost, Queue]:
        _, vhost = self._access.require_vhost(request)
        queue = existing(vhost.queues.get(request.match_info["name"]))
        return vhost, queue

    async def _list(self, request: web.Request, vhosts: Iterable[VirtualHost]) -> web.Response:
        found = [queue for vhost in vhosts for queue in vhost.queues.values()]
        # Columns that are not shown cannot be sorted by.
        keys = {} if stats_are_disabled(request) else SORT_KEYS
        view = View(self._describe(request), order=_default_order, keys=keys, name=_name)
        return await list_response(request, found, view, paginated=True)

    def _describe(self, request: web.Request) -> Callable[[Queue], dict[str, Any]]:
        if stats_are_disabled(request):
            with_totals = totals_are_enabled(request)
            return lambda queue: queue_without_stats(queue, self._node_name, with_totals)
        rates = Rates(request, self._broker)
        return lambda queue: queue_document(queue, self._node_name, rates)


def _name(queue: Queue) -> str:
    return queue.name


def _default_order(queue: Queue) -> tuple[str, str]:
    return queue.vhost_name, queue.name


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
