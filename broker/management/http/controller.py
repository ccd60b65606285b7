"""The interface of the controllers: what they are made with, and the routes they return."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from leveret.broker.auth.accounts import Accounts
from leveret.broker.config.options import Settings
from leveret.broker.core.broker import Broker
from leveret.broker.core.node import Node, Replica
from leveret.broker.management.http.access import Access
from leveret.broker.operations.audit import Audit
from leveret.broker.operations.backups import Backups
from leveret.broker.operations.jobs.runner import Jobs
from leveret.broker.shovels.shovels import Shovels

if TYPE_CHECKING:
    from leveret.broker.auth.oauth2.code_flow import CodeFlow

_SEGMENT: Final = re.compile(r"\{(\w+)\}")
#: Name of the attribute of handlers that has their routes.
_ROUTES: Final = "_routes"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parts of the broker that controllers read and change.

    Args:
        broker: Virtual hosts, connections, alarms, statistics.
        accounts: Users and permissions.
        node: Name and addresses of the node.
        access: Authentication and authorization.
        save: Makes changes durable; called after every request that may have changed something.
        jobs: Long work on messages.
        shovels: What moves messages between brokers.
        replication: What is known of the cluster, and how to let another node lead; None for a broker alone.
        backups: What is known of the backups that the broker takes; None if it can take none.
        audit: The audit log; None if there is none.
        sign_on: Logs people in at an OAuth 2 provider; None without one.
    """

    broker: Broker
    accounts: Accounts
    node: Node
    settings: Settings
    access: Access
    save: Callable[[], None]
    jobs: Jobs
    shovels: Shovels
    replication: Replica | None = None
    backups: Backups | None = None
    audit: Audit | None = None
    sign_on: CodeFlow | None = None


class Controller:
    """Serves one resource of the API: the methods with the decorator ``route`` handle its requests.

    Args:
        context: The broker, its node, users and configuration.
    """

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._broker = context.broker
        self._accounts = context.accounts
        self._access = context.access
        self._node_name = context.node.name

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers, each path once, in the order of the methods."""
        found: dict[str, list[web.RouteDef]] = {}
        for function in vars(type(self)).values():
            for method, path, tag, options in getattr(function, _ROUTES, ()):
                handler = function.__get__(self)
                handler = handler if tag is None else partial(self._handle_for, tag, handler)
                found.setdefault(path, []).append(web.RouteDef(method, pattern_of(path), handler, options))
        return [route for routes in found.values() for route in routes]

    async def _handle_for(self, tag: str, handler: Handler, request: web.Request) -> web.StreamResponse:
        """Handle a request of a user who has the rights of a tag."""
        self._access.require(request, tag)
        return await handler(request)


Handling = TypeVar("Handling", bound=Callable[..., Awaitable[web.StreamResponse]])


def route(method: str, *paths: str, tag: str | None = None, with_head: bool = True) -> Callable[[Handling], Handling]:
    """Return a decorator for a method of a controller that handles requests.

    Args:
        method: The HTTP method.
        paths: Paths below ``/api/``, for example ``queues/{vhost}/{name}``; a slash at the end is accepted. Or whole
            paths, with a slash in front. ``{vhost}`` is one segment of any characters, percent-decoded in
            ``request.match_info``. It may be empty, as in RabbitMQ: in ``exchanges/v//publish`` the name is "". The
            last segment may be empty only before a slash: ``users/`` is the list of users, ``users//`` the user
            without a name. Several controllers may serve methods of one path.
        tag: The tag whose rights the user needs, see Access.require(); None if the method checks the user.
        with_head: Whether GET also serves HEAD; in RabbitMQ it does nearly everywhere.
    """
    # aiohttp adds HEAD to GET automatically.
    options = {"allow_head": False} if method == "GET" and not with_head else {}

    def register(handler: Handling) -> Handling:
        handler.__dict__.setdefault(_ROUTES, []).extend((method, path, tag, options) for path in paths)
        return handler

    return register


def pattern_of(path: str) -> str:
    """Return a path of route() as one of aiohttp."""
    if path.startswith("/"):
        return path
    segments = _SEGMENT.sub(r"{\1:(?=[^/]|/)[^/]*}", path)
    return f"/api/{segments}{{slash_:/?}}"
