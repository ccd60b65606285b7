"""The applications of the HTTP servers: the API and the web pages, and the metrics for Prometheus."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from leveret.broker.management.http.access import answer_questions
from leveret.broker.management.http.controller import Controller, RequestContext
from leveret.broker.management.http.controllers.audit import AuditRecords
from leveret.broker.management.http.controllers.cluster import (
    Cluster,
    Features,
    Nodes,
    Overview,
    Replication,
)
from leveret.broker.management.http.controllers.connections import Channels, Connections
from leveret.broker.management.http.controllers.definitions import Definitions
from leveret.broker.management.http.controllers.exchanges import Bindings, Exchanges
from leveret.broker.management.http.controllers.health import Aliveness, HealthChecks, Probes
from leveret.broker.management.http.controllers.jobs import BackupResources, JobResources
from leveret.broker.management.http.controllers.losses import Losses
from leveret.broker.management.http.controllers.messages import DelayedMessages, QueueMessages
from leveret.broker.management.http.controllers.parameters import Limits, Parameters
from leveret.broker.management.http.controllers.policies import Policies, PolicyKeys
from leveret.broker.management.http.controllers.queues import ConsumerNames, Queues, Readers
from leveret.broker.management.http.controllers.sessions import BrowserSession, OAuthSessions, Sessions
from leveret.broker.management.http.controllers.shovels import ShovelResources
from leveret.broker.management.http.controllers.tables import IcebergCatalog, SqlStatements
from leveret.broker.management.http.controllers.users import Permissions, Users
from leveret.broker.management.http.controllers.vhosts import VirtualHosts
from leveret.broker.management.http.durability import save_after_changes, wait_for_changes
from leveret.broker.management.http.logins import delay_failed_logins
from leveret.broker.management.http.middleware import act_for_requests, format_responses
from leveret.broker.management.http.origins import allow_origins, refuse_cross_origin_changes
from leveret.broker.management.http.pages import Pages, ToolsPage
from leveret.broker.management.http.prometheus.metrics_controller import Metrics
from leveret.broker.management.http.request_bodies import SETTINGS
from leveret.broker.management.http.responses import not_found

#: All controllers. If two paths match a request, the first one is used.
CONTROLLERS: Final[tuple[type[Controller], ...]] = (
    Probes,
    HealthChecks,
    Sessions,
    BrowserSession,
    OAuthSessions,
    Overview,
    Nodes,
    Features,
    Exchanges,
    DelayedMessages,
    Channels,
    Bindings,
    Aliveness,
    Connections,
    Users,
    VirtualHosts,
    Permissions,
    Limits,
    Parameters,
    Definitions,
    Cluster,
    Policies,
    PolicyKeys,
    Queues,
    QueueMessages,
    ConsumerNames,
    Readers,
    Replication,
    AuditRecords,
    BackupResources,
    JobResources,
    ShovelResources,
    SqlStatements,
    Losses,
)


def management_app(context: RequestContext) -> web.Application:
    """Return the application of the management port.

    Args:
        context: The broker, its users and its configuration.
    """
    app = web.Application(middlewares=_middlewares(context))
    for controller in CONTROLLERS:
        app.add_routes(controller(context).routes())
    app.add_routes(IcebergCatalog(context).routes())
    app.add_routes(Pages().routes())
    app.add_routes(ToolsPage().routes())
    app[SETTINGS] = context.settings
    return with_path_prefix(app, context.settings.management.path_prefix)


def _middlewares(context: RequestContext) -> list[Middleware]:
    """Return the middlewares of all requests, the outermost first."""
    cors = context.settings.management.cors
    refuse_other_origins = refuse_cross_origin_changes(cors.allow_origins)
    return [
        act_for_requests(context.broker.events),
        allow_origins(cors),
        format_responses,
        refuse_other_origins,
        delay_failed_logins(context.accounts.throttle),
        wait_for_changes(context.broker.gate),
        save_after_changes(context.save),
        answer_questions,
    ]


def prometheus_app(context: RequestContext) -> web.Application:
    """Return the application of the Prometheus port."""
    app = web.Application()
    app.add_routes(Metrics(context).routes())
    return app


def with_path_prefix(app: web.Application, prefix: str) -> web.Application:
    """Return an application whose paths have a prefix; without a prefix, the application itself.

    Args:
        prefix: The prefix, with or without slashes at its ends.
    """
    path = prefix.strip("/")
    if not path:
        return app
    outer = web.Application()
    outer.router.add_get(f"/{path}", _add_slash)
    outer.add_subapp(f"/{path}", app)
    outer.router.add_route("*", "/{path:.*}", _not_found)
    return outer


async def _add_slash(request: web.Request) -> web.Response:
    """Redirect to the index with a slash at the end, because its links are relative."""
    return web.Response(status=301, headers={"location": f"{request.path}/"})


async def _not_found(request: web.Request) -> web.Response:
    error = not_found()
    return web.Response(status=error.status, body=error.body, headers={"content-type": "application/json"})
