"""Runtime parameters, global parameters, and the limits of virtual hosts and users.

Runtime parameters are operator policies, the limits of virtual hosts, shovels, and rules for bodies. The first two also
have resources of their own. As parameters they are shown and set in their raw form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.definitions import export_parameters, vhost_limits
from leveret.broker.core.scheduling.slices import run_in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.access import OBJECT_REFUSAL
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import (
    check_depth,
    check_length,
    compile_in_thread,
    read_object,
)
from leveret.broker.management.http.responses import (
    bad_request,
    bad_request_if,
    existing,
    json_response,
    missing,
    not_found,
    object_response,
)
from leveret.broker.operations.body_rules import check_schemas, read_body_rule, set_body_rule
from leveret.broker.operations.principal import Principal
from leveret.broker.operations.virtual_hosts import (
    InvalidLimits,
    clear_limits,
    clear_policy,
    escape_markup,
    set_limits,
    set_policy,
    set_shovel,
    takes_unlimited,
)
from leveret.policies.policy import Policy, PolicyError, read_policy
from leveret.policies.shovel import COMPONENT as SHOVEL
from leveret.policies.shovel import InvalidShovel
from leveret.policies.value_checks import USER_LIMITS, limits_error
from leveret.protocol.erlang_terms import format_json, format_list, format_string, format_tuple
from leveret.storage.readers.body_rules import COMPONENT as BODIES
from leveret.storage.readers.body_rules import InvalidRule

#: Required keys of an operator policy in its raw form.
_REQUIRED: Final = ("definition", "pattern", "priority")


class Parameters(Controller):
    """The resources ``/api/parameters`` and ``/api/global-parameters``, for policymakers only."""

    # -- parameters ---------------------------------------------------------------------------------------

    @route("GET", "parameters", "parameters/{component}")
    async def list(self, request: web.Request) -> web.Response:
        """List all parameters, or those of one component. Policies are listed only if the path names them."""
        user = self._access.require(request, "policymaker")
        component = request.match_info.get("component")
        vhosts = [vhost for vhost in self._broker.vhosts.values() if self._access.can_see(user, vhost.name)]
        found = [entry for vhost in vhosts for entry in self._entries(vhost, component)]
        return await list_response(request, found, _VIEW)

    @route("GET", "parameters/{component}/{vhost}")
    async def list_vhost(self, request: web.Request) -> web.Response:
        """List the parameters of one component in one virtual host."""
        vhost = self._require_vhost(request)
        return await list_response(request, self._entries(vhost, request.match_info["component"]), _VIEW)

    @route("GET", "parameters/{component}/{vhost}/{name}")
    async def show(self, request: web.Request) -> web.Response:
        """Show one parameter."""
        vhost = self._require_vhost(request)
        by_name = {entry["name"]: entry for entry in reversed(self._entries(vhost, request.match_info["component"]))}
        return object_response(request, existing(by_name.get(request.match_info["name"])))

    @route("PUT", "parameters/{component}/{vhost}/{name}")
    async def put(self, request: web.Request) -> web.Response:
        """Set a parameter to ``value``."""
        principal, match = self._require_principal(request), request.match_info
        vhost = principal.vhost
        document = await read_object(request, "value")
        value, component, name = document["value"], match["component"], match["name"]
        if component == "policy":
            raise bad_request("policies may not be set using this method")
        if component == "operator_policy":
            await compile_in_thread(value.get("pattern") if isinstance(value, Mapping) else None)
            created, steps = set_policy(vhost, _read_operator_policy(vhost, name, value), operator=True)
            await run_in_slices(steps)
        elif component == "vhost-limits":
            created = self._set_limits(vhost, name, value)
        elif component == SHOVEL:
            created = self._set_shovel(principal, check_length(name), value)
        elif component == BODIES:
            created = await self._set_body_rule(vhost, check_length(name), value)
        else:
            raise bad_request(f"Validation failed\n\ncomponent {component} not found\n")
        return web.Response(status=201 if created else 204)

    @route("DELETE", "parameters/{component}/{vhost}/{name}")
    async def delete(self, request: web.Request) -> web.Response:
        """Clear a parameter."""
        vhost = self._require_vhost(request)
        component, name = request.match_info["component"], request.match_info["name"]
        if component == "policy":
            raise bad_request("policies may not be cleared using this method")
        if component == "operator_policy":
            await run_in_slices(existing(clear_policy(vhost, name, operator=True)))
        elif component == "vhost-limits" and name == "limits" and vhost.has_limits:
            clear_limits(self._broker, vhost)
        elif not self._broker.parameters.clear(vhost.name, component, name):
            raise not_found()
        return web.Response(status=204)

    def _require_vhost(self, request: web.Request) -> VirtualHost:
        return self._require_principal(request).vhost

    def _require_principal(self, request: web.Request) -> Principal:
        return self._access.require_vhost_for_change(request, "policymaker", OBJECT_REFUSAL)

    def _entries(self, vhost: VirtualHost, component: str | None) -> Sequence[dict[str, Any]]:
        """Return the parameters of a virtual host, or of one component. Policies are included only if named."""
        if component == "policy":
            return [
                {"value": policy.value, "vhost": vhost.name, "component": component, "name": policy.name}
                for policy in vhost.policies.policies.values()
            ]
        entries = export_parameters(self._broker, vhost)
        return [entry for entry in entries if component in (None, entry["component"])]

    def _set_shovel(self, principal: Principal, name: str, value: Any) -> bool:
        user = principal.user.name

        def refuses(vhost_name: str) -> str:
            if vhost_name in self._broker.vhosts and self._accounts.permissions(user, vhost_name) is not None:
                return ""
            return f"user {format_string(user)} may not connect to vhost {format_string(vhost_name)}"

        with bad_request_if(InvalidShovel, reason=lambda text: f"Validation failed\n\n{escape_markup(text)}"):
            return set_shovel(self._broker, principal.vhost, name, value, refuses)

    async def _set_body_rule(self, vhost: VirtualHost, name: str, value: Any) -> bool:
        with bad_request_if(InvalidRule, reason=_invalid):
            await asyncio.to_thread(check_schemas, [read_body_rule(vhost, name, value)])
            if self._broker.vhosts.get(vhost.name) is not vhost:
                raise not_found()
            return set_body_rule(self._broker, vhost, name, value)

    def _set_limits(self, vhost: VirtualHost, name: str, value: Any) -> bool:
        if name != "limits":
            raise bad_request(f"Validation failed\n\nthe name of this parameter is 'limits', not '{name}'\n")
        value = {} if value == [] else value
        if not isinstance(value, Mapping):
            raise bad_request(f"Validation failed\n\n{name} not a list {value}\n")
        created = not vhost.has_limits
        with bad_request_if(InvalidLimits, reason=_invalid):
            set_limits(self._broker, vhost, value)
        return created

    # -- global parameters --------------------------------------------------------------------------------

    @route("GET", "global-parameters", tag="policymaker")
    async def list_global(self, request: web.Request) -> web.Response:
        """List all global parameters."""
        found = [{"name": name, "value": value} for name, value in self._broker.global_parameters.values.items()]
        return await list_response(request, found, _GLOBAL_VIEW)

    @route("GET", "global-parameters/{name}", tag="policymaker")
    async def show_global(self, request: web.Request) -> web.Response:
        """Show one global parameter."""
        name, values = request.match_info["name"], self._broker.global_parameters.values
        if name not in values:
            raise not_found()
        return object_response(request, {"value": values[name], "name": name})

    @route("PUT", "global-parameters/{name}", tag="policymaker")
    async def put_global(self, request: web.Request) -> web.Response:
        """Set a global parameter to ``value``."""
        document = await read_object(request, "value")
        check_depth(document["value"])
        name = check_length(request.match_info["name"])
        created = self._broker.global_parameters.set(name, document["value"])
        return web.Response(status=201 if created else 204)

    @route("DELETE", "global-parameters/{name}", tag="policymaker")
    async def delete_global(self, request: web.Request) -> web.Response:
        """Clear a global parameter."""
        if not self._broker.global_parameters.clear(request.match_info["name"]):
            raise not_found()
        return web.Response(status=204)


def _read_operator_policy(vhost: VirtualHost, name: str, value: Any) -> Policy:
    """Return an operator policy given in its raw form, in which all keys are required."""
    if not isinstance(value, Mapping):
        raise bad_request(escape_markup(f"Validation failed\n\n{name} not a list {format_json(value)}\n"))
    unknown = [
        format_tuple(format_json(key), format_json(each))
        for key, each in sorted(value.items())
        if key not in ("apply-to", *_REQUIRED)
    ]
    problems = [f"Unrecognised terms {format_list(unknown)} in {name}\n"] if unknown else []
    problems += [f'Key "{key}" not found in {name}\n' for key in _REQUIRED if key not in value]
    if problems:
        raise bad_request(escape_markup(f"Validation failed\n\n{''.join(problems)}"))
    with bad_request_if(PolicyError, reason=escape_markup):
        return read_policy(name, value, operator=True, takes_unlimited=takes_unlimited(vhost))


def _invalid(text: str) -> str:
    return f"Validation failed\n\n{escape_markup(text)}\n"


_VIEW: Final[View[Mapping[str, Any]]] = View(
    describe=dict, order=lambda entry: (entry["vhost"], entry["name"], entry["component"])
)
_GLOBAL_VIEW: Final[View[Mapping[str, Any]]] = View(describe=dict, order=lambda entry: entry["name"])


class Limits(Controller):
    """The resources ``/api/vhost-limits`` and ``/api/user-limits``."""

    # -- virtual hosts ------------------------------------------------------------------------------------

    @route("GET", "vhost-limits", "vhost-limits/{vhost}", with_head=False)
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

    @route("PUT", "vhost-limits/{vhost}/{limit}", tag="administrator")
    async def put_vhost(self, request: web.Request) -> web.Response:
        """Set a limit to ``value``. A negative number means no limit."""
        name, limit = request.match_info["vhost"], request.match_info["limit"]
        if name not in self._broker.vhosts:
            raise missing("vhost_not_found")
        document = await read_object(request, "value")
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise missing("vhost_not_found")
        with bad_request_if(InvalidLimits, reason=lambda text: f"Validation failed\n\n{text}\n"):
            set_limits(self._broker, vhost, {**vhost_limits(vhost), limit: document["value"]})
        return web.Response(status=204)

    @route("DELETE", "vhost-limits/{vhost}/{limit}", tag="administrator")
    async def delete_vhost(self, request: web.Request) -> web.Response:
        """Remove a limit, if it is set."""
        name, limit = request.match_info["vhost"], request.match_info["limit"]
        vhost = existing(self._broker.vhosts.get(name))
        # As in RabbitMQ, the virtual host then counts as having limits even if the limit was not set.
        left = {key: value for key, value in vhost_limits(vhost).items() if key != limit}
        set_limits(self._broker, vhost, left)
        return web.Response(status=204)

    # -- users --------------------------------------------------------------------------------------------

    @route("GET", "user-limits", "user-limits/{user}", tag="management", with_head=False)
    async def list_users(self, request: web.Request) -> web.Response:
        """List the limits of all users that have limits, or of one."""
        name = request.match_info.get("user")
        if name is not None and name not in self._accounts.users:
            raise not_found()
        limits = [
            (user.name, user.limits.document()) for user in self._accounts.users.values() if name in (None, user.name)
        ]
        return json_response([{"user": user, "value": value} for user, value in limits if value])

    @route("PUT", "user-limits/{user}/{limit}", tag="administrator")
    async def put_user(self, request: web.Request) -> web.Response:
        """Set a limit to ``value``. A negative number means no limit. It applies to open connections, too."""
        name, limit = request.match_info["user"], request.match_info["limit"]
        document = await read_object(request, "value")
        if name not in self._accounts.users:
            raise bad_request(["no_such_user", name])
        refusal = limits_error({limit: document["value"]}, USER_LIMITS, "user-limits")
        if refusal is not None:
            raise bad_request(refusal)
        self._set_user_limit(name, limit, document["value"])
        return web.Response(status=204)

    @route("DELETE", "user-limits/{user}/{limit}", tag="administrator")
    async def delete_user(self, request: web.Request) -> web.Response:
        """Remove a limit, if it is set."""
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
