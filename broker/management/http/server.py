"""The HTTP servers: the API on the management port, metrics on the Prometheus port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Middleware

from leveret.broker.accepting import Acceptor, Refused
from leveret.broker.addresses import format_address
from leveret.broker.config.options import Settings
from leveret.broker.core.resources.sockets import Clients
from leveret.broker.management.http.connection_watch import KEEP_ALIVE_SECONDS, ConnectionWatch
from leveret.broker.management.http.context import RequestContext
from leveret.broker.management.http.controllers.aliveness import Aliveness
from leveret.broker.management.http.controllers.binding_actions import BindingActions
from leveret.broker.management.http.controllers.bindings import Bindings
from leveret.broker.management.http.controllers.browser_session import BrowserSession
from leveret.broker.management.http.controllers.channels import Channels
from leveret.broker.management.http.controllers.cluster import Cluster
from leveret.broker.management.http.controllers.configuration import Configuration
from leveret.broker.management.http.controllers.connection_actions import ConnectionActions
from leveret.broker.management.http.controllers.connections import Connections
from leveret.broker.management.http.controllers.definitions import Definitions
from leveret.broker.management.http.controllers.exchange_actions import ExchangeActions
from leveret.broker.management.http.controllers.exchanges import Exchanges
from leveret.broker.management.http.controllers.features import Features
from leveret.broker.management.http.controllers.health import HealthChecks
from leveret.broker.management.http.controllers.limits import Limits
from leveret.broker.management.http.controllers.losses import Losses
from leveret.broker.management.http.controllers.nodes import Nodes
from leveret.broker.management.http.controllers.overview import Overview
from leveret.broker.management.http.controllers.parameters import Parameters
from leveret.broker.management.http.controllers.permissions import Permissions
from leveret.broker.management.http.controllers.policies import Policies
from leveret.broker.management.http.controllers.policy_coverage import PolicyCoverage
from leveret.broker.management.http.controllers.policy_keys import PolicyKeys
from leveret.broker.management.http.controllers.queue_actions import QueueActions
from leveret.broker.management.http.controllers.queue_explanations import QueueExplanations
from leveret.broker.management.http.controllers.queue_messages import QueueMessages
from leveret.broker.management.http.controllers.queues import Queues
from leveret.broker.management.http.controllers.sessions import Sessions
from leveret.broker.management.http.controllers.users import Users
from leveret.broker.management.http.controllers.vhosts import VirtualHosts
from leveret.broker.management.http.cors import allow_origins
from leveret.broker.management.http.cross_origin import refuse_cross_origin_changes
from leveret.broker.management.http.login_delay import delay_failed_logins
from leveret.broker.management.http.middleware import format_responses, save_after_changes, wait_for_changes
from leveret.broker.management.http.pages import Pages
from leveret.broker.management.http.prefix import with_path_prefix
from leveret.broker.management.http.prometheus.controller import Metrics
from leveret.broker.management.http.protocol_log import protocol_log
from leveret.broker.management.http.server_name import NamedHandler, set_server_header
from leveret.broker.management.http.stats_switches import SETTINGS
from leveret.broker.management.http.tools_page import ToolsPage
from leveret.broker.tls import Tls
from leveret.broker.tls_handshake import HandshakeFailed, encrypt

log = logging.getLogger("leveret.http")


class Controller(Protocol):
    """Serves one resource of the API."""

    def __init__(self, context: RequestContext) -> None:
        pass

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers; see ``routes.resource``."""


#: All controllers. If two paths match a request, the first one is used.
CONTROLLERS: Final[tuple[type[Controller], ...]] = (
    HealthChecks,
    Sessions,
    BrowserSession,
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
    PolicyCoverage,
    PolicyKeys,
    Queues,
    QueueActions,
    QueueMessages,
    QueueExplanations,
    Losses,
    ExchangeActions,
    BindingActions,
)


class HttpServer:
    """Serves one aiohttp application.

    Args:
        app: The application.
        settings: The configuration.
        clients: Counts connections and limits their number.
    """

    def __init__(self, app: web.Application, settings: Settings, clients: Clients) -> None:
        self._settings = settings
        self._clients = clients
        self._watch = ConnectionWatch()
        open_sockets = clients.open
        clients.open = lambda: open_sockets() + len(self._watch)
        # aiohttp waits forever if the timeout is 0.
        timeout = max(settings.shutdown_timeout, 1) / 1000
        app.on_response_prepare.append(set_server_header)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=timeout)
        self._servers: list[asyncio.Server] = []
        self._acceptors: list[Acceptor] = []
        self._setting_up = asyncio.Lock()

    async def start(self, sock: socket, tls: Tls | None = None) -> None:
        """Listen on a socket. May be called again for further sockets.

        Args:
            sock: A bound socket. The server closes it.
            tls: TLS of the socket; None for no encryption.
        """
        if tls is None:
            make, backlog = await self._protocol_factory(), self._settings.tcp_listen_options.backlog
            self._servers.append(await asyncio.get_running_loop().create_server(make, sock=sock, backlog=backlog))
        else:
            acceptor = Acceptor(partial(self.serve, tls))
            acceptor.start(sock)
            self._acceptors.append(acceptor)

    async def serve(self, tls: Tls | None, sock: socket) -> None:
        """Serve an accepted connection.

        Args:
            tls: TLS of the connection; None for no encryption.
            sock: The accepted socket. The server closes it.
        """
        make, peer = await self._protocol_factory(), "?"
        if tls is not None and self._clients.refuse(with_handshake=True):
            sock.close()
            return
        self._clients.handshakes += tls is not None
        try:
            peer = format_address(*sock.getpeername()[:2])
            if tls is None:
                await asyncio.get_running_loop().connect_accepted_socket(make, sock)
            else:
                await encrypt(sock, make, tls, self._settings.ssl_handshake_timeout / 1000)
        except HandshakeFailed as failure:
            log.error("closing HTTPS connection from %s: TLS: %s", peer, failure)
        except OSError:
            # The client has disconnected.
            sock.close()
        finally:
            self._clients.handshakes -= tls is not None

    async def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        """Set up the server if necessary; return the factory of its protocols."""
        async with self._setting_up:
            if self._runner.server is None:
                await self._runner.setup()
                assert self._runner.server is not None
                self._runner.server.request_handler = self._watch.handler(self._runner.server.request_handler)
        return self._protocol

    def _protocol(self) -> asyncio.Protocol:
        assert self._runner.server is not None
        if self._is_full():
            return Refused()
        made = NamedHandler(
            self._runner.server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            logger=protocol_log(),
            # A small body could inflate to a thousand times its size.
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        return self._watch.protocol(made)

    def _is_full(self) -> bool:
        """Check whether a client must be refused. First tries to close an idle connection to make room."""
        if self._clients.is_full and self._watch.make_room():
            return False
        return self._clients.refuse()

    async def stop(self) -> None:
        """Stop listening, and end open requests within the shutdown timeout."""
        for listening in self._servers:
            listening.close()
        for acceptor in self._acceptors:
            await acceptor.stop()
        self._watch.stop()
        await self._runner.cleanup()


def management_app(context: RequestContext) -> web.Application:
    """Return the application of the management port.

    Args:
        context: The broker, its users and its configuration.
    """
    app = web.Application(middlewares=_middlewares(context))
    for controller in CONTROLLERS:
        app.add_routes(controller(context).routes())
    app.add_routes(Pages().routes())
    app.add_routes(ToolsPage().routes())
    app[SETTINGS] = context.settings
    return with_path_prefix(app, context.settings.management.path_prefix)


def _middlewares(context: RequestContext) -> list[Middleware]:
    """Return the middlewares of all requests, the outermost first."""
    cors = context.settings.management.cors
    refuse_other_origins = refuse_cross_origin_changes(cors.allow_origins)
    return [
        allow_origins(cors),
        format_responses,
        refuse_other_origins,
        delay_failed_logins(context.accounts.throttle),
        wait_for_changes(context.broker.gate),
        save_after_changes(context.save),
    ]


def prometheus_app(context: RequestContext) -> web.Application:
    """Return the application of the Prometheus port.

    Args:
        context: The broker that is measured.
    """
    app = web.Application()
    app.add_routes(Metrics(context).routes())
    return app
