"""Lists policy keys and queue arguments, for forms. RabbitMQ does not have these resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web

from leveret.broker.management.http.controller import Controller, resource
from leveret.broker.management.http.listing import View, list_response
from leveret.policies.keys import ARGUMENTS, KEYS, Operator, Setting
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
        return await list_response(request, KEYS.values(), View[Setting](_describe_key, order=lambda key: key.name))

    async def arguments(self, request: web.Request) -> web.Response:
        """List the arguments of queues."""
        self._access.require(request, "management")
        view = View[Setting](_describe_argument, order=lambda row: row.argument)
        return await list_response(request, ARGUMENTS.values(), view)


def _describe_key(key: Setting) -> dict[str, Any]:
    types = _ordered(key.queue_types)
    return {
        "key": key.name,
        "argument": key.argument if types else key.name,
        **_describe_values(key.values),
        "queue_types": types,
        "exchanges": not types,
        "unfit_queue_types": _ordered(key.unfit),
        "operator": key.operator is not None,
        "argument_merge": {name: key.merge_for(name).value for name in types},
        "operator_merge": _operator_merge(key),
        "has_effect": not types or key.field in QueueSettings.__dataclass_fields__,
        "summary": key.summary,
    }


def _operator_merge(key: Setting) -> str | None:
    """Return how the value of an operator policy is combined with that of a policy; None if it cannot have one."""
    if key.operator is None:
        return None
    rule: str = (key.operator if key.operator is Operator.REPLACES else Operator.MIN).value
    return rule


def _describe_argument(row: Setting) -> dict[str, Any]:
    return {
        "argument": row.argument,
        "key": row.name if row.refusal else None,
        **_describe_values(row.argument_values or row.values),
        "queue_types": [name for name in _QUEUE_TYPES if row.takes_argument(name)],
        "summary": row.summary,
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
