"""Declares, deletes and purges queues."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_flag, require_keys
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.operations import queues


class QueueActions(Controller):
    """Changing methods of the resource ``/api/queues``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        path = "queues/{vhost}/{name}"
        return [
            *resource(path, PUT=self.declare, DELETE=self.delete),
            *resource(f"{path}/contents", DELETE=self.purge),
            *resource(f"{path}/actions", POST=self.run_action),
        ]

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
        queues.declare(principal, name, *flags, arguments).expiry.renew()
        return web.Response(status=204 if existed else 201)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a queue; with if-empty only if it is empty, with if-unused only if it has no consumers."""
        principal, name = self._access.require_vhost_for_change(request), request.match_info["name"]
        if name not in principal.vhost.queues and not principal.vhost.unrestored.has("queue", name):
            raise not_found()
        if_unused, if_empty = (request.query.get(key) == "true" for key in ("if-unused", "if-empty"))
        queues.delete(principal, name, if_unused, if_empty)
        return web.Response(status=204)

    async def purge(self, request: web.Request) -> web.Response:
        """Drop the ready messages of a queue."""
        principal, name = self._access.require_vhost_for_change(request), request.match_info["name"]
        if name not in principal.vhost.queues:
            raise not_found()
        queues.purge(principal, name)
        return web.Response(status=204)

    async def run_action(self, request: web.Request) -> web.Response:
        """Accept the actions sync and cancel_sync, which do nothing: there are no mirrors."""
        vhost = self._access.require_vhost_for_change(request, "administrator").vhost
        document = await read_object(request)
        require_keys(document, "action")
        if document["action"] not in ("sync", "cancel_sync"):
            raise bad_request(["unknown", document["action"]])
        if request.match_info["name"] not in vhost.queues:
            raise not_found()
        return web.Response(status=204)
