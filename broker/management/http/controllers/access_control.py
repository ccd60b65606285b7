"""Users, virtual hosts, permissions, and definitions that hold them."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from broker.auth.accounts import Accounts
from broker.config.errors import DefinitionsError
from broker.core.broker import Broker
from broker.definitions import import_definitions
from broker.management.http.access import Access, bad_request, not_found, read_object
from protocol.faults import ConnectionFault, ReplyCode


class AccessControl:
    """Changes to who may connect, and what to.

    Args:
        broker: Has the virtual hosts and connections.
        accounts: Has the users and permissions.
        access: Who may make changes: administrators.
    """

    def __init__(self, broker: Broker, accounts: Accounts, access: Access) -> None:
        self._broker = broker
        self._accounts = accounts
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        return [
            web.post("/api/definitions", self.post_definitions),
            web.put("/api/vhosts/{vhost}", self.put_vhost),
            web.delete("/api/vhosts/{vhost}", self.delete_vhost),
            web.put("/api/users/{user}", self.put_user),
            web.delete("/api/users/{user}", self.delete_user),
            web.put("/api/permissions/{vhost}/{user}", self.put_permissions),
            web.delete("/api/permissions/{vhost}/{user}", self.delete_permissions),
        ]

    async def post_definitions(self, request: web.Request) -> web.Response:
        """Import a definitions document."""
        self._access.require(request, "administrator")
        document = await read_object(request)
        self._import(document)
        return web.Response(status=204)

    async def put_vhost(self, request: web.Request) -> web.Response:
        """Make a virtual host; whoever does gets all permissions there."""
        user = self._access.require(request, "administrator")
        name = request.match_info["vhost"]
        if name in self._broker.vhosts:
            return web.Response(status=204)
        self._broker.add_vhost(name)
        self._accounts.set_permissions(user.name, name, ".*", ".*", ".*")
        return web.Response(status=201)

    async def delete_vhost(self, request: web.Request) -> web.Response:
        """Delete a virtual host and close its connections."""
        self._access.require(request, "administrator")
        name = request.match_info["vhost"]
        if name not in self._broker.vhosts:
            raise not_found()
        self._close(f"vhost '{name}' is deleted", vhost=name)
        self._broker.delete_vhost(name)
        self._accounts.forget_vhost(name)
        return web.Response(status=204)

    async def put_user(self, request: web.Request) -> web.Response:
        """Make or replace a user."""
        self._access.require(request, "administrator")
        name = request.match_info["user"]
        existed = name in self._accounts.users
        self._import({"users": [{**await read_object(request), "name": name}]})
        return web.Response(status=204 if existed else 201)

    async def delete_user(self, request: web.Request) -> web.Response:
        """Delete a user and close its connections."""
        self._access.require(request, "administrator")
        name = request.match_info["user"]
        if name not in self._accounts.users:
            raise not_found()
        self._accounts.delete_user(name)
        self._close(f"user '{name}' is deleted", user=name)
        return web.Response(status=204)

    async def put_permissions(self, request: web.Request) -> web.Response:
        """Set what a user may do in a virtual host."""
        self._access.require(request, "administrator")
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        existed = self._accounts.permissions(user, vhost) is not None
        self._import({"permissions": [{**await read_object(request), "user": user, "vhost": vhost}]})
        return web.Response(status=204 if existed else 201)

    async def delete_permissions(self, request: web.Request) -> web.Response:
        """Take a user's permissions in a virtual host."""
        self._access.require(request, "administrator")
        user, vhost = request.match_info["user"], request.match_info["vhost"]
        if self._accounts.permissions(user, vhost) is None:
            raise not_found()
        self._accounts.clear_permissions(user, vhost)
        return web.Response(status=204)

    def _import(self, document: Mapping[str, object]) -> None:
        try:
            import_definitions(document, self._broker, self._accounts)
        except DefinitionsError as error:
            raise bad_request(str(error)) from None

    def _close(self, reason: str, user: str | None = None, vhost: str | None = None) -> None:
        for connection in list(self._broker.connections):
            if user in (None, connection.username) and vhost in (None, connection.vhost_name):
                connection.terminate(ConnectionFault(ReplyCode.CONNECTION_FORCED, reason, 0))
