"""Declares, deletes and purges queues."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from leveret.broker.auth.users import User
from leveret.broker.core.names import generate_name, strip_line_ends
from leveret.broker.core.queues.declaration import QueueDeclaration, check_locked, check_unreserved
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.vhost import VirtualHost
from leveret.broker.management.http.controller import RequestContext, resource
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.json_fields import check_length, read_arguments, read_flag, require_keys
from leveret.broker.management.http.request_bodies import read_object
from leveret.protocol.faults import not_implemented, precondition_failed


class QueueActions:
    """Changing methods of the resource ``/api/queues``.

    Args:
        context: The broker, its node and its users.
    """

    def __init__(self, context: RequestContext) -> None:
        self._access = context.access
        self._node_name = context.node.name

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
        user, vhost = self._access.require_vhost_for_change(request)
        name = strip_line_ends(check_length(request.match_info["name"], "queue")) or generate_name("amq.gen")
        document = await read_object(request)
        durable, auto_delete = read_flag(document, "durable"), read_flag(document, "auto_delete")
        declaration = QueueDeclaration(name, durable, auto_delete, None, None, read_arguments(document))
        node = document.get("node")
        if node not in (None, "", self._node_name):
            raise bad_request(f"Node {node} could not be contacted")
        existed = name in vhost.queues
        if not existed and request.match_info["name"]:
            check_unreserved(name)
        self._access.check(user, vhost.name, "configure", "queue", name)
        queue = vhost.declare_queue(declaration, partial(self._check_dead_letters, user, vhost.name, name))
        queue.expiry.renew()
        return web.Response(status=204 if existed else 201)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a queue; with if-empty only if it is empty, with if-unused only if it has no consumers."""
        if_empty = request.query.get("if-empty") == "true"
        if self._delete_unrestored(request, if_empty):
            return web.Response(status=204)
        vhost, queue = self._require_queue(request, "configure")
        if_unused = request.query.get("if-unused") == "true"
        if (if_empty or if_unused) and not queue.supports_conditional_delete:
            raise not_implemented(
                f"cannot delete queue '{queue.name}' in vhost '{vhost.name}'. queue.delete operations with"
                f" {'if-empty' if if_empty else 'if-unused'} flag set are not supported by {queue.queue_type} queues"
            )
        if if_empty and queue.ready_count():
            raise precondition_failed(f"queue '{queue.name}' in vhost '{vhost.name}' not empty")
        if if_unused and len(queue.consumers):
            raise precondition_failed(f"queue '{queue.name}' in vhost '{vhost.name}' in use")
        vhost.delete_queue(queue)
        return web.Response(status=204)

    async def purge(self, request: web.Request) -> web.Response:
        """Drop the ready messages of a queue."""
        _, queue = self._require_queue(request, "read")
        queue.purge()
        return web.Response(status=204)

    async def run_action(self, request: web.Request) -> web.Response:
        """Accept the actions sync and cancel_sync, which do nothing: there are no mirrors."""
        _, vhost = self._access.require_vhost_for_change(request, "administrator")
        document = await read_object(request)
        require_keys(document, "action")
        if document["action"] not in ("sync", "cancel_sync"):
            raise bad_request(["unknown", document["action"]])
        if request.match_info["name"] not in vhost.queues:
            raise not_found()
        return web.Response(status=204)

    def _delete_unrestored(self, request: web.Request, if_empty: bool) -> bool:
        """Delete the queue in the path if it could not be restored at startup; return whether that is the case."""
        user, vhost = self._access.require_vhost_for_change(request)
        name = request.match_info["name"]
        if not vhost.unrestored.has("queue", name):
            return False
        self._access.check(user, vhost.name, "configure", "queue", name)
        if if_empty:
            raise precondition_failed(f"queue '{name}' in vhost '{vhost.name}' not empty")
        return vhost.unrestored.delete("queue", name)

    def _require_queue(self, request: web.Request, kind: str) -> tuple[VirtualHost, Queue]:
        """Return the queue in the path if the user has a permission on it."""
        user, vhost = self._access.require_vhost_for_change(request)
        queue = vhost.queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        self._access.check(user, vhost.name, "read" if kind == "read" else "configure", "queue", queue.name)
        check_locked(queue, None)
        return vhost, queue

    def _check_dead_letters(self, user: User, vhost_name: str, name: str, exchange: str) -> None:
        self._access.check(user, vhost_name, "read", "queue", name)
        self._access.check(user, vhost_name, "write", "exchange", exchange)
