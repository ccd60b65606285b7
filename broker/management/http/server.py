"""The HTTP servers: the API on the management port, metrics on the Prometheus port."""

from __future__ import annotations

import ssl
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from broker.auth.attempts import LoginThrottle
from broker.management.http.context import Context
from broker.management.http.controllers.aliveness import Aliveness
from broker.management.http.controllers.binding_actions import BindingActions
from broker.management.http.controllers.bindings import Bindings
from broker.management.http.controllers.channels import Channels
from broker.management.http.controllers.cluster import Cluster
from broker.management.http.controllers.configuration import Configuration
from broker.management.http.controllers.connection_actions import ConnectionActions
from broker.management.http.controllers.connections import Connections
from broker.management.http.controllers.definitions import Definitions
from broker.management.http.controllers.exchange_actions import ExchangeActions
from broker.management.http.controllers.exchanges import Exchanges
from broker.management.http.controllers.features import Features
from broker.management.http.controllers.health import HealthChecks
from broker.management.http.controllers.limits import Limits
from broker.management.http.controllers.nodes import Nodes
from broker.management.http.controllers.overview import Overview
from broker.management.http.controllers.parameters import Parameters
from broker.management.http.controllers.permissions import Permissions
from broker.management.http.controllers.policies import Policies
from broker.management.http.controllers.queue_actions import QueueActions
from broker.management.http.controllers.queue_explanations import QueueExplanations
from broker.management.http.controllers.queue_messages import QueueMessages
from broker.management.http.controllers.queues import Queues
from broker.management.http.controllers.sessions import Sessions
from broker.management.http.controllers.users import Users
from broker.management.http.controllers.vhosts import VirtualHosts
from broker.management.http.login_delay import slow_logins
from broker.management.http.middleware import in_form, saving
from broker.management.http.prometheus.controller import Metrics

#: Definitions of a large broker have tens of thousands of entries.
_MAX_REQUEST_SIZE: Final = 64 * 1024 * 1024


class Controller(Protocol):
    """What serves one resource of the API."""

    def __init__(self, context: Context) -> None:
        pass

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers; see ``routes.resource``."""


#: All of them, one a line; of two paths that a request fits the first one counts.
CONTROLLERS: Final[tuple[type[Controller], ...]] = (
    HealthChecks,
    Sessions,
    Overview,
    Nodes,
    Features,
    Configuration,
    Exchanges,
    Channels,
    Bindings,
    Aliveness,
    ConnectionActions,
    Connections,
    Users,
    VirtualHosts,
    Permissions,
    Limits,
    Parameters,
    Definitions,
    Cluster,
    Policies,
    Queues,
    QueueActions,
    QueueMessages,
    QueueExplanations,
    ExchangeActions,
    BindingActions,
)


class HttpServer:
    """Serves one aiohttp application on one port.

    Args:
        app: The application.
    """

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Listen, on one more port if it has been called before; return host and port.

        Args:
            host: Address to listen on.
            port: 0..65535; 0 takes a free one.
            tls: Encrypts what goes over that port; None for no encryption.
        Raises:
            OSError: The address cannot be listened on.
        """
        if self._runner.server is None:
            await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        bound_host, bound_port = self._runner.addresses[-1][:2]
        return bound_host, bound_port

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()


def management_app(context: Context) -> web.Application:
    """The application of the management port.

    Args:
        context: What is asked about, and who may ask.
    """
    app = web.Application(client_max_size=_MAX_REQUEST_SIZE, middlewares=_middlewares(context))
    for controller in CONTROLLERS:
        app.add_routes(controller(context).routes())
    return app


def _middlewares(context: Context) -> list[Middleware]:
    """What every request goes through, the outermost first."""
    return [in_form, slow_logins(LoginThrottle()), saving(context.save)]


def prometheus_app(context: Context) -> web.Application:
    """The application of the Prometheus port.

    Args:
        context: What is measured.
    """
    app = web.Application()
    app.add_routes(Metrics(context).routes())
    return app
