"""Compares the description of the HTTP API with its routes, in both directions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
from aiohttp.test_utils import make_mocked_request

import leveret.broker.management.http.applications as applications
from leveret.broker.auth.accounts import Accounts
from leveret.broker.auth.backends.chain import AuthBackends
from leveret.broker.config.options import Settings
from leveret.broker.core.node import Node
from leveret.broker.management.http.access import Access
from leveret.broker.management.http.controller import RequestContext
from leveret.broker.management.http.controllers.health import Probes
from leveret.broker.management.http.openapi import document
from leveret.broker.operations.jobs.runner import Jobs
from leveret.broker.shovels.shovels import Shovels
from leveret.storage.clock import Clock
from tests.support.manual_loop import ManualLoop
from tests.support.queues import new_broker

METHODS: Final = ("get", "put", "post", "delete")
#: A part of a route: a name and a regular expression, which may also have braces.
_PART: Final = re.compile(r"\{(\w+):((?:[^{}]|\{[^{}]*\})*)\}")


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def templated(path: str) -> list[str]:
    """Return a route's path in OpenAPI's syntax, for each text that a part may be if these are few."""
    found = _PART.search(path)
    if found is None:
        return [path]
    name, pattern = found.groups()
    texts = pattern.split("|") if re.fullmatch(r"[\w|-]+", pattern) else ["" if name == "slash_" else f"{{{name}}}"]
    return [each for text in texts for each in templated(path[: found.start()] + text + path[found.end() :])]


def make_context() -> RequestContext:
    loop, settings, accounts = ManualLoop(), Settings(), Accounts()
    made = new_broker(loop)
    access, jobs = Access(AuthBackends(accounts), made), Jobs(made, accounts)
    shovels = Shovels(made, AuthBackends(accounts), 0, {})
    return RequestContext(made, accounts, Node(Clock()), settings, access, lambda: None, jobs, shovels)


def routed() -> set[tuple[str, str]]:
    context = make_context()
    return {
        (path, route.method.lower())
        for controller in applications.CONTROLLERS
        for route in controller(context).routes()
        for path in templated(route.path)
    }


DOCUMENT: Final = document()
OPERATIONS: Final = list(operations(DOCUMENT))


def test_every_route_is_described_and_nothing_else() -> None:
    found = {(path, method) for path, method, _ in OPERATIONS}
    assert found == routed()


def test_a_probe_is_told_yes_or_no() -> None:
    context = make_context()
    probes, request = Probes(context), make_mocked_request("GET", "/health/ready")

    async def answers() -> list[tuple[int, str | None]]:
        replies = await probes.live(request), await probes.ready(request)
        return [(each.status, each.text) for each in replies]

    assert asyncio.run(answers()) == [(200, "yes\n"), (503, "no\n")]
    context.node.is_serving = True
    assert asyncio.run(answers()) == [(200, "yes\n"), (200, "yes\n")]


def test_templated() -> None:
    path = "/api/x/{vhost:[^/]+}/{kind:q|e-x}/{a:(?!b/?$)[^/]{1,3}}{slash_:/?}"
    assert templated(path) == ["/api/x/{vhost}/q/{a}", "/api/x/{vhost}/e-x/{a}"]


@pytest.mark.parametrize(
    ("path", "method", "operation"), OPERATIONS, ids=lambda each: each if str(each) == each else ""
)
def test_operations_describe_requests_and_responses(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"].endswith(".")
    assert {tag["name"] for tag in DOCUMENT["tags"]}.issuperset(operation["tags"])
    assert any(status.startswith(("2", "3")) for status in operation["responses"])
    is_open = operation.get("security") == []
    assert is_open or "401" in operation["responses"]
    shared = DOCUMENT["paths"][path].get("parameters", [])
    named = [resolve(each) for each in [*shared, *operation.get("parameters", [])]]
    in_path = {each["name"] for each in named if each["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", path))
    assert len({(each["in"], each["name"]) for each in named}) == len(named), "a parameter stands twice"


def resolve(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node that a reference names."""
    if "$ref" not in node:
        return node
    found: Any = DOCUMENT
    for key in node["$ref"].removeprefix("#/").split("/"):
        found = found[key]
    assert isinstance(found, Mapping)
    return found


def references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_all_components_exist_and_are_used() -> None:
    used = set(references(DOCUMENT))
    for reference in used:
        resolve({"$ref": reference})
    there = {
        f"#/components/{kind}/{name}"
        for kind in ("parameters", "responses", "schemas")
        for name in DOCUMENT["components"][kind]
    }
    assert there == used
