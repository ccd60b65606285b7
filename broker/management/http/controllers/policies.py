"""Policies and operator policies."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from broker.core.broker import Broker
from broker.core.vhost import VirtualHost
from broker.management.http.access import Access, bad_request, failure, not_found, read_object
from broker.management.http.vhosts import find_vhost, listed_vhosts
from policies.policy import Policy, PolicyError, read_policy


class Policies:
    """The resources ``/api/policies`` and ``/api/operator-policies``.

    Args:
        broker: Whose policies.
        access: Who may see and change them.
    """

    def __init__(self, broker: Broker, access: Access) -> None:
        self._broker = broker
        self._access = access

    def routes(self) -> list[web.RouteDef]:
        """The paths and their handlers."""
        routes = []
        for kind in ("policies", "operator-policies"):
            routes += [
                web.get(f"/api/{{kind:{kind}}}", self.list),
                web.get(f"/api/{{kind:{kind}}}/{{vhost}}", self.list),
                web.get(f"/api/{{kind:{kind}}}/{{vhost}}/{{name}}", self.show),
                web.put(f"/api/{{kind:{kind}}}/{{vhost}}/{{name}}", self.put),
                web.delete(f"/api/{{kind:{kind}}}/{{vhost}}/{{name}}", self.delete),
            ]
        return routes

    async def list(self, request: web.Request) -> web.Response:
        """All policies, or those of one virtual host; ascending by priority."""
        self._access.require(request, "management")
        vhosts = listed_vhosts(self._broker, request)
        described = [
            _describe(vhost, policy) for vhost in vhosts for policy in vhost.policies.table(_operator(request)).values()
        ]
        return web.json_response(sorted(described, key=lambda entry: (entry["priority"], entry["name"])))

    async def show(self, request: web.Request) -> web.Response:
        """One policy."""
        self._access.require(request, "management")
        vhost = find_vhost(self._broker, request)
        policy = vhost.policies.table(_operator(request)).get(request.match_info["name"])
        if policy is None:
            raise not_found()
        return web.json_response(_describe(vhost, policy))

    async def put(self, request: web.Request) -> web.Response:
        """Add or replace a policy."""
        operator = _operator(request)
        self._access.require(request, "administrator" if operator else "policymaker")
        vhost = self._broker.vhosts.get(request.match_info["vhost"])
        if vhost is None:
            raise failure(web.HTTPNotFound, "not_found", "vhost_not_found")
        document = await read_object(request)
        try:
            policy = read_policy(request.match_info["name"], document, operator)
        except PolicyError as error:
            # RabbitMQ escapes markup in these texts, though not in those of operator policies.
            text = str(error)
            raise bad_request(text if operator else text.replace("<", "&lt;").replace(">", "&gt;")) from None
        return web.Response(status=201 if vhost.policies.set(policy, operator) else 204)

    async def delete(self, request: web.Request) -> web.Response:
        """Clear a policy."""
        operator = _operator(request)
        self._access.require(request, "administrator" if operator else "policymaker")
        if not find_vhost(self._broker, request).policies.clear(request.match_info["name"], operator):
            raise not_found()
        return web.Response(status=204)


def _operator(request: web.Request) -> bool:
    return request.match_info["kind"] == "operator-policies"


def _describe(vhost: VirtualHost, policy: Policy) -> dict[str, Any]:
    return {
        "vhost": vhost.name,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": dict(policy.definition),
        "priority": policy.priority,
    }
