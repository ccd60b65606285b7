"""Queues: what is in them, and what is in force on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from broker.auth.users import User
from broker.core.broker import Broker
from broker.core.definitions import table_from_json
from broker.core.policies import effective_definition
from broker.core.queues.declaration import QueueDeclaration, check_locked, check_unreserved
from broker.core.queues.queue import Queue
from broker.management.http.access import Access, bad_request, not_found, read_object
from broker.management.http.json_tables import table_to_json
from broker.management.http.vhosts import find_vhost, listed_vhosts
from protocol.faults import AmqpFault


class Queues:
    """The resource ``/api/queues``.

    Args:
        broker: Whose queues.
        access: Who may ask.
    """

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker = broker
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return [
            web.get("/api/queues", self.list),
            web.get("/api/queues/{vhost}", self.list),
            web.get("/api/queues/{vhost}/{name}", self.show),
            web.put("/api/queues/{vhost}/{name}", self.declare),
            web.delete("/api/queues/{vhost}/{name}", self.delete),
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All queues, or those of one virtual host."""
        self._access.require(request, "management")
        vhosts = listed_vhosts(self._broker, request)
        return web.json_response([_describe(queue) for vhost in vhosts for queue in vhost.queues.values()])

    async def show(self, request: web.Request) -> web.Response:
        """One queue."""
        self._access.require(request, "management")
        return web.json_response(_describe(self._find(request)))

    async def declare(self, request: web.Request) -> web.Response:
        """Declare a queue: durable, auto_delete and arguments come in the body."""
        user = self._access.require(request, "management")
        vhost = find_vhost(self._broker, request)
        name = request.match_info["name"]
        document = await read_object(request)
        arguments = document.get("arguments") or {}
        if not isinstance(arguments, Mapping):
            raise bad_request("arguments must be an object")
        existed = name in vhost.queues
        durable, auto_delete = bool(document.get("durable", False)), bool(document.get("auto_delete", False))
        declaration = QueueDeclaration(name, durable, auto_delete, None, None, table_from_json(arguments))
        try:
            check_unreserved(name)
            self._access.check(user, vhost.name, "configure", "queue", name)
            vhost.declare_queue(declaration, partial(self._check_dead_letters, user, vhost.name, name))
        except AmqpFault as fault:
            raise bad_request(fault.explanation) from None
        return web.Response(status=204 if existed else 201)

    async def delete(self, request: web.Request) -> web.Response:
        """Delete a queue."""
        user = self._access.require(request, "management")
        queue = self._find(request)
        try:
            self._access.check(user, queue.vhost_name, "configure", "queue", queue.name)
            check_locked(queue, None)
        except AmqpFault as fault:
            raise bad_request(fault.explanation) from None
        find_vhost(self._broker, request).delete_queue(queue)
        return web.Response(status=204)

    def _check_dead_letters(self, user: User, vhost_name: str, name: str, exchange: str) -> None:
        self._access.check(user, vhost_name, "read", "queue", name)
        self._access.check(user, vhost_name, "write", "exchange", exchange)

    def _find(self, request: web.Request) -> Queue:
        queue = find_vhost(self._broker, request).queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        return queue


def _describe(queue: Queue) -> dict[str, Any]:
    ready, counters = queue.ready_count(), queue.counters
    policy, operator_policy = queue.policy, queue.operator_policy
    return {
        "name": queue.name,
        "vhost": queue.vhost_name,
        "type": queue.queue_type,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": table_to_json(queue.arguments),
        "state": "running",
        "policy": None if policy is None else policy.name,
        "operator_policy": None if operator_policy is None else operator_policy.name,
        "effective_policy_definition": effective_definition(policy, operator_policy),
        "consumers": len(queue.consumers),
        "messages": ready + queue.unacked_count + queue.retained_count,
        "messages_ready": ready,
        "messages_unacknowledged": queue.unacked_count,
        "message_bytes": queue.store.ready_bytes + queue.unacked_bytes,
        "message_bytes_ready": queue.store.ready_bytes,
        "message_bytes_unacknowledged": queue.unacked_bytes,
        "message_stats": {
            "publish": counters.published,
            "publish_refused": counters.refused,
            "deliver_get": counters.delivered + counters.got,
            "ack": counters.acknowledged,
            "redeliver": counters.redelivered,
            "dropped": dict(counters.dropped),
            "dead_lettered": dict(counters.dead_lettered),
        },
    }
