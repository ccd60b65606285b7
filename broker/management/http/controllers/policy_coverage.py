"""Lists the queues and exchanges of a policy. RabbitMQ does not have these resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.queues.explanation import fill_percent
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.slices import in_slices
from leveret.broker.core.vhost_policies.coverage import PolicyMatch, matching_exchanges, matching_queues
from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.errors import bad_request, not_found
from leveret.broker.management.http.listing import View, list_response

_FLAGS: Final = {"true": True, "false": False}


class PolicyCoverage(Controller):
    """The resources below one policy: ``queues`` and ``exchanges``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [
            *resource("{kind:policies}/{vhost}/{name}/queues", GET=self.queues),
            *resource("{kind:operator-policies}/{vhost}/{name}/queues", GET=self.queues),
            *resource("policies/{vhost}/{name}/exchanges", GET=self.exchanges),
        ]

    async def queues(self, request: web.Request) -> web.Response:
        """List the queues that match a policy's pattern: whether it is in force, and if not, the reason.

        The query may restrict the list with ``in_force=true`` or ``in_force=false``.
        """
        _, vhost = self._access.require_vhost(request)
        operator = request.match_info["kind"] == "operator-policies"
        policy = vhost.policies.table(operator).get(request.match_info["name"])
        if policy is None:
            raise not_found()
        return await _list(request, matching_queues(vhost, policy, operator))

    async def exchanges(self, request: web.Request) -> web.Response:
        """List the exchanges that match a policy's pattern, with the same fields."""
        _, vhost = self._access.require_vhost(request)
        policy = vhost.policies.policies.get(request.match_info["name"])
        if policy is None:
            raise not_found()
        return await _list(request, matching_exchanges(vhost, policy))


async def _list(request: web.Request, candidates: Iterator[PolicyMatch | None]) -> web.Response:
    wanted = request.query.get("in_force")
    if wanted is not None and wanted not in _FLAGS:
        raise bad_request(f"Invalid in_force: {wanted}, must be true or false")
    found = [
        covered
        async for covered in in_slices(candidates)
        if covered is not None and (wanted is None or covered.in_force is _FLAGS[wanted])
    ]
    return await list_response(request, found, View(_describe, order=_name, name=_name), paginated=True)


def _name(covered: PolicyMatch) -> str:
    return covered.subject.name


def _describe(covered: PolicyMatch) -> dict[str, Any]:
    subject = covered.subject
    document = {
        "name": subject.name,
        "vhost": subject.vhost_name,
        "type": covered.type_name,
        "in_force": covered.in_force,
        "rival": covered.rival,
        "reason": covered.reason,
    }
    if isinstance(subject, Queue):
        document["messages_ready"] = subject.store.ready_count
        document["message_bytes_ready"] = subject.store.ready_bytes
        document["fill_percent"] = fill_percent(subject)
    return document
