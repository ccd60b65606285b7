"""The HTTP servers: the API on the management port, metrics on the Prometheus port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from broker.auth.accounts import Accounts
from broker.core.broker import Broker
from broker.management.http.access import Access
from broker.management.http.controllers.access_control import AccessControl
from broker.management.http.controllers.connections import Connections
from broker.management.http.controllers.health import HealthChecks
from broker.management.http.controllers.policies import Policies
from broker.management.http.controllers.queues import Queues
from broker.management.http.metrics import Metrics

#: Definitions of a large broker have tens of thousands of entries.
_MAX_REQUEST_SIZE: Final = 64 * 1024 * 1024


class HttpServer:
    """Serves one aiohttp application on one port.

    Args:
        app: The application.
    """

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return host and port.

        Args:
            host: Address to listen on.
            port: 0..65535; 0 takes a free one.
        Raises:
            OSError: The address cannot be listened on.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        return bound_host, bound_port

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()


def management_app(broker: Broker, accounts: Accounts, save: Callable[[], None]) -> web.Application:
    """The application of the management port.

    Args:
        broker: What is asked about.
        accounts: Who may ask.
        save: Makes changes durable; called before a request that may have made some is answered.
    """

    @web.middleware
    async def save_changes(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        finally:
            if request.method not in ("GET", "HEAD"):
                save()

    app = web.Application(client_max_size=_MAX_REQUEST_SIZE, middlewares=[save_changes])
    access = Access(accounts)
    app.add_routes(HealthChecks(broker, access).routes())
    app.add_routes(Connections(broker, access).routes())
    app.add_routes(AccessControl(broker, accounts, access).routes())
    app.add_routes(Policies(broker, access).routes())
    app.add_routes(Queues(broker, access).routes())
    return app


def prometheus_app(broker: Broker) -> web.Application:
    """The application of the Prometheus port.

    Args:
        broker: What is measured.
    """
    app = web.Application()
    app.router.add_get("/metrics", Metrics(broker).handle)
    return app
