"""Lists policy keys and queue arguments, for forms. RabbitMQ does not have these resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web

from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.listing import View, list_response
from leveret.policies.arguments import ARGUMENTS, Argument
from leveret.policies.keys import KEYS, Merge, PolicyKey, operator_replaces
from leveret.policies.settings import QueueSettings
from leveret.policies.values import Values

#: Queue types in the order of the web pages.
_QUEUE_TYPES: Final = ("classic", "quorum", "stream")


class PolicyKeys(Controller):
    """The resources ``/api/policy-keys`` and ``/api/queue-arguments``."""

    def routes(self) -> list[web.RouteDef]:
        """Return the paths and their handlers."""
        return [*resource("policy-keys", GET=self.keys), *resource("queue-arguments", GET=self.arguments)]

    async def keys(self, request: web.Request) -> web.Response:
        """List the keys of policies."""
        self._access.require(request, "management")
        return await list_response(request, KEYS.values(), View[PolicyKey](_describe_key, order=lambda key: key.name))

    async def arguments(self, request: web.Request) -> web.Response:
        """List the arguments of queues."""
        self._access.require(request, "management")
        view = View[Argument](_describe_argument, order=lambda argument: argument.name)
        return await list_response(request, ARGUMENTS.values(), view)


def _describe_key(key: PolicyKey) -> dict[str, Any]:
    types = _ordered(key.queue_types)
    return {
        "key": key.name,
        "argument": key.argument if types else key.name,
        **_describe_values(key.valid),
        "queue_types": types,
        "exchanges": not types,
        "unfit_queue_types": _ordered(key.unfit),
        "operator": key.operator,
        "argument_merge": {name: key.merge_for(name).value for name in types},
        "operator_merge": _operator_merge(key),
        "has_effect": not types or key.field in QueueSettings.__dataclass_fields__,
        "summary": key.summary,
    }


def _operator_merge(key: PolicyKey) -> str | None:
    """Return how the value of an operator policy is combined with that of a policy; None if it cannot have one."""
    if not key.operator:
        return None
    return "the operator policy comes before the policy" if operator_replaces(key.name) else Merge.MIN.value


def _describe_argument(argument: Argument) -> dict[str, Any]:
    key = KEYS.get(argument.name.removeprefix("x-")) or KEYS.get(argument.name)
    values = argument.values or (Values("string") if key is None else key.valid)
    return {
        "argument": argument.name,
        "key": None if key is None else key.name,
        **_describe_values(values),
        "queue_types": _ordered(argument.queue_types),
        "summary": argument.summary or ("" if key is None else key.summary),
    }


def _describe_values(values: Values) -> dict[str, Any]:
    return {
        "type": values.type_name,
        "minimum": values.least,
        "maximum": values.most,
        "values": list(values.choices) or None,
        "unit": values.unit,
    }


def _ordered(queue_types: Iterable[str]) -> list[str]:
    return [name for name in _QUEUE_TYPES if name in frozenset(queue_types)]
