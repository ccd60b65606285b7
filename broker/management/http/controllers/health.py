"""Health checks, with RabbitMQ's paths and answers.

Source: https://www.rabbitmq.com/docs/monitoring#health-checks
"""

from __future__ import annotations

from aiohttp import web

from broker.core.broker import Broker
from broker.management.http.access import Access


class HealthChecks:
    """Answers whether the broker is well, to every user.

    Args:
        broker: The broker that is asked.
        access: Who may ask.
    """

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker = broker
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        prefix = "/api/health/checks"
        return [
            web.get(f"{prefix}/alarms", self.alarms),
            web.get(f"{prefix}/local-alarms", self.alarms),
            web.get(f"{prefix}/virtual-hosts", self.virtual_hosts),
        ]

    async def alarms(self, request: web.Request) -> web.Response:
        """Status 200 while no resource alarm is set, 503 otherwise."""
        self._access.login(request)
        alarms = self._broker.alarms
        if alarms.any:
            return web.json_response({"status": "failed", "reason": alarms.reason}, status=503)
        return web.json_response({"status": "ok"})

    async def virtual_hosts(self, request: web.Request) -> web.Response:
        """Status 200: a virtual host runs as long as the broker does."""
        self._access.login(request)
        return web.json_response({"status": "ok"})
