"""Policies and operator policies: what they apply to, and the keys that they may have, with the arguments of queues."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from leveret.broker.core.definitions import describe_policy
from leveret.broker.core.policy_effects import (
    PolicyMatch,
    Preview,
    count_in_force,
    describe_gaps,
    fill_percent,
    follow_letters,
    matching_exchanges,
    matching_queues,
    preview_policy,
)
from leveret.broker.core.queues.queue import Queue
from leveret.broker.core.scheduling.slices import in_slices, result_in_slices, run_in_slices
from leveret.broker.core.vhosts.vhost import VirtualHost
from leveret.broker.management.http.access import OBJECT_REFUSAL
from leveret.broker.management.http.controller import Controller, route
from leveret.broker.management.http.object_lists import View, list_response
from leveret.broker.management.http.request_bodies import compile_in_thread, read_object
from leveret.broker.management.http.responses import LongText, bad_request, encode, existing, notice, object_response
from leveret.broker.operations.virtual_hosts import clear_policy, policy_error_text, set_policy, takes_unlimited
from leveret.policies.policy import Policy, PolicyError, read_policy
from leveret.policies.policy_keys import ARGUMENTS, KEYS, Operator, Setting
from leveret.policies.queue_settings import QueueSettings
from leveret.policies.value_checks import Values

log = logging.getLogger("leveret.policy")

#: Paths of policies.
_KIND: Final = "{kind:policies|operator-policies}"
_ONE: Final = f"{_KIND}/{{vhost}}/{{name}}"
_FLAGS: Final = {"true": True, "false": False}


class Policies(Controller):
    """The resources ``/api/policies`` and ``/api/operator-policies``."""

    @route("GET", _KIND, f"{_KIND}/{{vhost}}")
    async def list(self, request: web.Request) -> web.Response:
        """List all policies, or those of one virtual host, ascending by priority.

        With counts=true each policy has the number of queues and exchanges on which it is in force.
        """
        _, vhosts = self._access.listed_vhosts(request)
        operator = _operator(request)
        policies = [(vhost, policy) for vhost in vhosts for policy in vhost.policies.table(operator).values()]
        if request.query.get("counts") != "true":
            return await list_response(request, policies, _VIEW)
        counted: Counter[tuple[str, str, str]] = Counter()
        await run_in_slices(count_in_force(vhosts, operator, counted))
        view = replace(_VIEW, describe=lambda placed: {**_describe(placed), **_counts(placed, counted)})
        return await list_response(request, policies, view)

    @route("GET", _ONE)
    async def show(self, request: web.Request) -> web.Response:
        """Show one policy, to users that may change it. The list is for all users."""
        _, vhost = self._require_vhost(request)
        return object_response(request, _describe((vhost, _policy(request, vhost))))

    @route("PUT", _ONE)
    async def put(self, request: web.Request) -> web.Response:
        """Add or replace a policy; with dry_run=true only preview the effect.

        If it is not in force on all queues that it matches, or its dead-letter exchange does not exist, a header of the
        answer says so.
        """
        operator, vhost = self._require_vhost(request)
        document = await read_object(request)
        await compile_in_thread(document.get("pattern"))
        try:
            name, unlimited = request.match_info["name"], takes_unlimited(vhost)
            policy = read_policy(name, document, operator, takes_unlimited=unlimited)
        except PolicyError as error:
            raise bad_request(policy_error_text(error, operator)) from None
        if request.query.get("dry_run") == "true":
            return await _preview(vhost, policy, operator)
        is_new, steps = set_policy(vhost, policy, operator)
        await run_in_slices(steps)
        matches = [match async for match in in_slices(matching_queues(vhost, policy, operator)) if match is not None]
        notes = [describe_gaps(policy, matches), _missing_exchange(vhost, policy)]
        return web.Response(status=201 if is_new else 204, headers=notice("; ".join(filter(None, notes))))

    @route("DELETE", _ONE)
    async def delete(self, request: web.Request) -> web.Response:
        """Clear a policy."""
        operator, vhost = self._require_vhost(request)
        await run_in_slices(existing(clear_policy(vhost, request.match_info["name"], operator)))
        return web.Response(status=204)

    @route("GET", f"{_ONE}/queues")
    async def queues(self, request: web.Request) -> web.Response:
        """List the queues that match a policy's pattern: whether it is in force, and if not, the reason.

        The query may restrict the list with ``in_force=true`` or ``in_force=false``.
        """
        _, vhost = self._access.require_vhost(request)
        return await _list_matches(request, matching_queues(vhost, _policy(request, vhost), _operator(request)))

    @route("GET", "{kind:policies}/{vhost}/{name}/exchanges")
    async def exchanges(self, request: web.Request) -> web.Response:
        """List the exchanges that match a policy's pattern, with the same fields."""
        _, vhost = self._access.require_vhost(request)
        return await _list_matches(request, matching_exchanges(vhost, _policy(request, vhost)))

    def _require_vhost(self, request: web.Request) -> tuple[bool, VirtualHost]:
        operator = _operator(request)
        tag = "administrator" if operator else "policymaker"
        return operator, self._access.require_vhost_for_change(request, tag, OBJECT_REFUSAL).vhost


def _missing_exchange(vhost: VirtualHost, policy: Policy) -> str:
    """Return that the dead-letter exchange of a policy does not exist, and log it; "" if it does."""
    name = policy.definition.get("dead-letter-exchange")
    if name is None or name in vhost.topology.exchanges:
        return ""
    text = f"dead letters are lost: exchange '{name}' does not exist"
    log.warning("policy '%s' in vhost '%s': %s", policy.name, vhost.name, text)
    return text


async def _preview(vhost: VirtualHost, policy: Policy, operator: bool) -> web.Response:
    """Return the response with the effect of a policy on each queue, and the totals."""
    previews = [preview async for preview in in_slices(preview_policy(vhost, policy, operator))]
    cascade = await result_in_slices(follow_letters(vhost, previews))
    direct = sum(preview.drop.messages for preview in previews if preview.dead_letters_to is None)
    summary = {
        "policy": _describe((vhost, policy)),
        "operator": operator,
        "matching": sum(preview.matches for preview in previews),
        "in_force": sum(preview.is_in_force for preview in previews),
        "would_drop": {
            "messages": sum(preview.drop.messages for preview in previews),
            "bytes": sum(preview.drop.body_bytes for preview in previews),
            "estimated": any(preview.drop.is_estimate for preview in previews),
            "dead_lettered": sum(preview.drop.messages for preview in previews if preview.dead_letters_to is not None),
            "lost": direct + cascade.lost,
            "lost_estimated": cascade.is_estimate,
        },
        "dead_letters": [
            {"queue": name, "arriving": each.arriving, "leaving": each.leaving, "lost": each.lost}
            for name, each in sorted(cascade.reached.items(), key=lambda item: (-item[1].leaving, item[0]))
        ],
        "missing_exchanges": sorted(
            {preview.missing_exchange for preview in previews if preview.missing_exchange is not None}
        ),
    }
    text = LongText()
    text.add(f'{encode(summary)[:-1]},"queues":[')
    await text.add_all(previews, _describe_preview)
    text.add("]}")
    return text.response()


def _describe_preview(preview: Preview) -> dict[str, Any]:
    queue, drop = preview.queue, preview.drop
    return {
        "name": queue.name,
        "type": queue.queue_type,
        "matches": preview.matches,
        "in_force": preview.is_in_force,
        "rival": preview.rival,
        "changes": {key: {"from": before, "to": after} for key, (before, after) in preview.changes.items()},
        "messages_ready": queue.store.ready_count,
        "message_bytes_ready": queue.store.ready_bytes,
        "would_drop": {
            "messages": drop.messages,
            "bytes": drop.body_bytes,
            "estimated": drop.is_estimate,
            "dead_lettered": 0 if preview.dead_letters_to is None else drop.messages,
            "dead_letter_exchange": preview.dead_letters_to,
            "missing_exchange": preview.missing_exchange,
        },
    }


def _operator(request: web.Request) -> bool:
    return request.match_info["kind"] == "operator-policies"


def _policy(request: web.Request, vhost: VirtualHost) -> Policy:
    """Return the policy that a path names."""
    return existing(vhost.policies.table(_operator(request)).get(request.match_info["name"]))


def _describe(placed: tuple[VirtualHost, Policy]) -> dict[str, Any]:
    vhost, policy = placed
    return describe_policy(vhost.name, policy)


def _counts(placed: tuple[VirtualHost, Policy], counted: Counter[tuple[str, str, str]]) -> dict[str, int]:
    place = placed[0].name, placed[1].name
    return {"queues_in_force": counted[*place, "queue"], "exchanges_in_force": counted[*place, "exchange"]}


_VIEW: Final[View[tuple[VirtualHost, Policy]]] = View(
    describe=_describe, order=lambda placed: (placed[1].priority, placed[1].name, placed[0].name)
)


async def _list_matches(request: web.Request, candidates: Iterator[PolicyMatch | None]) -> web.Response:
    wanted = request.query.get("in_force")
    if wanted is not None and wanted not in _FLAGS:
        raise bad_request(f"Invalid in_force: {wanted}, must be true or false")
    found = [
        covered
        async for covered in in_slices(candidates)
        if covered is not None and (wanted is None or covered.in_force is _FLAGS[wanted])
    ]
    return await list_response(
        request, found, View(_describe_match, order=_subject_name, name=_subject_name), paginated=True
    )


def _subject_name(covered: PolicyMatch) -> str:
    return covered.subject.name


def _describe_match(covered: PolicyMatch) -> dict[str, Any]:
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


#: Queue types in the order of the web pages.
_QUEUE_TYPES: Final = ("classic", "quorum", "stream")


class PolicyKeys(Controller):
    """The resources ``/api/policy-keys`` and ``/api/queue-arguments``."""

    @route("GET", "policy-keys", tag="management")
    async def keys(self, request: web.Request) -> web.Response:
        """List the keys of policies."""
        return await list_response(request, KEYS.values(), View[Setting](_describe_key, order=lambda key: key.name))

    @route("GET", "queue-arguments", tag="management")
    async def arguments(self, request: web.Request) -> web.Response:
        """List the arguments of queues."""
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
