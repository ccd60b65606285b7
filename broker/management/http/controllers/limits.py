"""Limits of virtual hosts and of users."""

from __future__ import annotations

from aiohttp import web

from leveret.broker.core.definitions.exporting import vhost_limits
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import bad_request, missing, not_found
from leveret.broker.management.http.json_fields import require_keys
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import json_response
from leveret.broker.operations.parameters import InvalidLimits, set_limits
from leveret.policies.values import USER_LIMITS, limits_error


class Limits(Controller):
    """The resources ``/api/vhost-limits`` and ``/api/user-limits``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("vhost-limits", with_head=False, GET=self.list_vhosts),
            *resource("vhost-limits/{vhost}", with_head=False, GET=self.list_vhosts),
            *resource("vhost-limits/{vhost}/{limit}", PUT=self.put_vhost, DELETE=self.delete_vhost),
            *resource("user-limits", with_head=False, GET=self.list_users),
            *resource("user-limits/{user}", with_head=False, GET=self.list_users),
            *resource("user-limits/{user}/{limit}", PUT=self.put_user, DELETE=self.delete_user),
        ]

    # -- virtual hosts ------------------------------------------------------------------------------------

    async def list_vhosts(self, request: web.Request) -> web.Response:
        """List the limits of all virtual hosts that have limits, or of one."""
        _, vhosts = self._access.listed_vhosts(request)
        limits = [(vhost, vhost_limits(vhost)) for vhost in vhosts]
        # In the list of all virtual hosts, RabbitMQ shows removed limits as an empty list.
        lists_all = "vhost" not in request.match_info
        return json_response(
            [
                {"vhost": vhost.name, "value": value or []}
                for vhost, value in limits
                if value or (lists_all and vhost.has_limits)
            ]
        )

    async def put_vhost(self, request: web.Request) -> web.Response:
        """Set a limit to ``value``. A negative number means no limit."""
        self._access.require(request, "administrator")
        name, limit = request.match_info["vhost"], request.match_info["limit"]
        if name not in self._broker.vhosts:
            raise missing("vhost_not_found")
        document = await read_object(request)
        require_keys(document, "value")
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise missing("vhost_not_found")
        try:
            set_limits(self._broker, vhost, {**vhost_limits(vhost), limit: document["value"]})
        except InvalidLimits as invalid:
            raise bad_request(f"Validation failed\n\n{invalid}\n") from None
        return web.Response(status=204)

    async def delete_vhost(self, request: web.Request) -> web.Response:
        """Remove a limit, if it is set."""
        self._access.require(request, "administrator")
        name, limit = request.match_info["vhost"], request.match_info["limit"]
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise not_found()
        # As in RabbitMQ, the virtual host then counts as having limits even if the limit was not set.
        left = {key: value for key, value in vhost_limits(vhost).items() if key != limit}
        set_limits(self._broker, vhost, left)
        return web.Response(status=204)

    # -- users --------------------------------------------------------------------------------------------

    async def list_users(self, request: web.Request) -> web.Response:
        """List the limits of all users that have limits, or of one."""
        self._access.require(request, "management")
        name = request.match_info.get("user")
        if name is not None and name not in self._accounts.users:
            raise not_found()
        limits = [
            (user.name, user.limits.document()) for user in self._accounts.users.values() if name in (None, user.name)
        ]
        return json_response([{"user": user, "value": value} for user, value in limits if value])

    async def put_user(self, request: web.Request) -> web.Response:
        """Set a limit to ``value``. A negative number means no limit. It applies to open connections, too."""
        self._access.require(request, "administrator")
        name, limit = request.match_info["user"], request.match_info["limit"]
        document = await read_object(request)
        require_keys(document, "value")
        if name not in self._accounts.users:
            raise bad_request(["no_such_user", name])
        refusal = limits_error({limit: document["value"]}, USER_LIMITS, "user-limits")
        if refusal is not None:
            raise bad_request(refusal)
        self._set_user_limit(name, limit, document["value"])
        return web.Response(status=204)

    async def delete_user(self, request: web.Request) -> web.Response:
        """Remove a limit, if it is set."""
        self._access.require(request, "administrator")
        name, limit = request.match_info["user"], request.match_info["limit"]
        if name not in self._accounts.users:
            raise not_found()
        if limit in USER_LIMITS:
            self._set_user_limit(name, limit, None)
        return web.Response(status=204)

    def _set_user_limit(self, name: str, limit: str, value: int | None) -> None:
        limits = self._accounts.users[name].limits
        connections = value if limit == "max-connections" else limits.max_connections
        channels = value if limit == "max-channels" else limits.max_channels
        self._accounts.set_user_limits(name, connections, channels)
