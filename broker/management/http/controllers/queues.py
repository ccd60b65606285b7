"""Queues: what is in them, and what is in force on them."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.core.broker import Broker
from broker.core.policies import effective_definition
from broker.core.queues.queue import Queue
from broker.management.http.access import Access, not_found
from broker.management.http.json_tables import table_to_json


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
        ]

    async def list(self, request: web.Request) -> web.Response:
        """All queues, or those of one virtual host."""
        self._access.require(request, "management")
        wanted = request.match_info.get("vhost")
        if wanted is not None and wanted not in self._broker.vhosts:
            raise not_found()
        vhosts = self._broker.vhosts.values() if wanted is None else [self._broker.vhosts[wanted]]
        return web.json_response([_describe(queue) for vhost in vhosts for queue in vhost.queues.values()])

    async def show(self, request: web.Request) -> web.Response:
        """One queue."""
        self._access.require(request, "management")
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        queue = None if vhost is None else vhost.queues.get(request.match_info["name"])
        if queue is None:
            raise not_found()
        return web.json_response(_describe(queue))


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
        "messages": ready + queue.unacked_count,
        "messages_ready": ready,
        "messages_unacknowledged": queue.unacked_count,
        "message_bytes_ready": queue.store.ready_bytes,
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
