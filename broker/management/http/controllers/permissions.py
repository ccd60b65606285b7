"""Permissions and topic permissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.auth.user_definitions import dump_permissions, dump_topic_permissions
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.json_fields import compile_in_thread, read_text, require_keys
from leveret.broker.management.http.listing import View, list_response
from leveret.broker.management.http.request_bodies import read_object
from leveret.broker.management.http.responses import object_response
from leveret.policies.invalid_pattern import InvalidPattern


class Permissions(Controller):
    """The resources ``/api/permissions`` and ``/api/topic-permissions``, for administrators only."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        one, topic = "permissions/{vhost}/{user}", "topic-permissions/{vhost}/{user}"
        return [
            *resource("permissions", GET=self.list),
            *resource("users/{user}/permissions", GET=self.list),
            *resource("vhosts/{vhost}/permissions", GET=self.list),
            *resource(one, GET=self.show, PUT=self.put, DELETE=self.delete),
            *resource("topic-permissions", GET=self.list_topic),
            *resource("users/{user}/topic-permissions", GET=self.list_topic),
            *resource("vhosts/{vhost}/topic-permissions", GET=self.list_topic),
            *resource(topic, GET=self.show_topic, PUT=self.put_topic, DELETE=self.delete_topic),
            # Only DELETE uses the exchange in the path.
            *resource(f"{topic}/{{exchange}}", GET=self.show_topic, PUT=self.put_topic, DELETE=self.delete_topic),
        ]

    # -- permissions --------------------------------------------------------------------------------------

    async def list(self, request: web.Request) -> web.Response:
        """List all permissions, those of a user, or those in a virtual host."""
        user, vhost = self._optional_names(request)
        found = [
            dump_permissions(user_name, vhost_name, granted)
            for (user_name, vhost_name), granted in self._accounts.all_permissions.items()
            if user in (None, user_name) and vhost in (None, vhost_name)
        ]
        return await list_response(request, found, _VIEW)

    async def show(self, request: web.Request) -> web.Response:
        """Show the permissions of a user in a virtual host."""
        user, vhost = self._names(request)
        granted = self._accounts.permissions(user, vhost)
        if granted is None:
            raise not_found()
        return object_response(request, dump_permissions(user, vhost, granted))

    async def put(self, request: web.Request) -> web.Response:
        """Set the permissions of a user in a virtual host. The body has configure, write and read."""
        user, vhost = self._names(request)
        document = await read_object(request)
        self._check_exist(user, vhost)
        require_keys(document, "configure", "write", "read")
        patterns = [read_text(document, key) for key in ("configure", "write", "read")]
        for pattern in patterns:
            await compile_in_thread(pattern)
        existed = self._accounts.permissions(user, vhost) is not None
        try:
            self._accounts.set_permissions(user, vhost, *patterns)
        except InvalidPattern as invalid:
            raise bad_request(invalid.as_json()) from None
        return web.Response(status=204 if existed else 201)

    async def delete(self, request: web.Request) -> web.Response:
        """Clear the permissions of a user in a virtual host. Its connections stay open without permissions."""
        user, vhost = self._names(request)
        if self._accounts.permissions(user, vhost) is None:
            raise not_found()
        self._accounts.clear_permissions(user, vhost)
        return web.Response(status=204)

    # -- topic permissions --------------------------------------------------------------------------------

    async def list_topic(self, request: web.Request) -> web.Response:
        """List all topic permissions, those of a user, or those in a virtual host."""
        user, vhost = self._optional_names(request)
        return await list_response(request, self._topic(user, vhost), _VIEW)

    async def show_topic(self, request: web.Request) -> web.Response:
        """List the topic permissions of a user in a virtual host, one entry for each exchange."""
        user, vhost = self._names(request)
        found = self._topic(user, vhost)
        if not found:
            raise not_found()
        return await list_response(request, found, _VIEW)

    async def put_topic(self, request: web.Request) -> web.Response:
        """Set the routing keys that a user may use on a topic exchange. The body has exchange, write and read."""
        user, vhost = self._names(request)
        document = await read_object(request)
        self._check_exist(user, vhost)
        require_keys(document, "exchange", "write", "read")
        exchange, write, read = (read_text(document, key) for key in ("exchange", "write", "read"))
        for pattern in (write, read):
            await compile_in_thread(pattern)
        existed = bool(self._topic(user, vhost))
        try:
            self._accounts.set_topic_permissions(user, vhost, exchange, write, read)
        except InvalidPattern as invalid:
            raise bad_request(invalid.as_json(invalid.source)) from None
        return web.Response(status=204 if existed else 201)

    async def delete_topic(self, request: web.Request) -> web.Response:
        """Clear the topic permissions of a user in a virtual host, on one exchange or on all."""
        user, vhost = self._names(request)
        if not self._topic(user, vhost):
            raise not_found()
        self._accounts.clear_topic_permissions(user, vhost, request.match_info.get("exchange"))
        return web.Response(status=204)

    # -- internals ----------------------------------------------------------------------------------------

    def _topic(self, user: str | None, vhost: str | None) -> Sequence[dict[str, Any]]:
        return [
            dump_topic_permissions(user_name, vhost_name, exchange, granted)
            for (user_name, vhost_name, exchange), granted in self._accounts.all_topic_permissions.items()
            if user in (None, user_name) and vhost in (None, vhost_name)
        ]

    def _optional_names(self, request: web.Request) -> tuple[str | None, str | None]:
        """Return the user and the virtual host in the path, which must exist; None for all."""
        self._access.require(request, "administrator")
        user, vhost = request.match_info.get("user"), request.match_info.get("vhost")
        if (user is not None and user not in self._accounts.users) or (
            vhost is not None and vhost not in self._broker.vhosts
        ):
            raise not_found()
        return user, vhost

    def _names(self, request: web.Request) -> tuple[str, str]:
        self._access.require(request, "administrator")
        return request.match_info["user"], request.match_info["vhost"]

    def _check_exist(self, user: str, vhost: str) -> None:
        if user not in self._accounts.users or vhost not in self._broker.vhosts:
            raise bad_request("vhost_or_user_not_found")


_VIEW: Final[View[dict[str, Any]]] = View(
    describe=dict, order=lambda entry: (entry["vhost"], entry["user"], entry.get("exchange", ""))
)
