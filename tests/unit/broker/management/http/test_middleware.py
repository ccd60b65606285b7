"""Middlewares, tested through a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from leveret.broker.management.http.controller import pattern_of
from leveret.broker.management.http.durability import save_after_changes
from leveret.broker.management.http.middleware import format_responses
from leveret.broker.management.http.responses import bad_request, json_response
from leveret.protocol.faults import access_refused, not_found, precondition_failed

Client = TestClient[web.Request, web.Application]
Handler = Callable[[web.Request], Awaitable[web.Response]]


async def echo(request: web.Request) -> web.Response:
    return json_response({key: value for key, value in request.match_info.items() if key != "slash_"})


def raising(error: Callable[[], Exception]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        raise error()

    return handle


FAULTS: dict[str, Callable[[], Exception]] = {
    "refused": lambda: access_refused("access to queue 'q' refused"),
    "missing": lambda: not_found("no queue 'q' in vhost '/'"),
    "unequal": lambda: precondition_failed("inequivalent arg"),
    "bad": lambda: bad_request(["not_boolean", "maybe"]),
    "broken": lambda: ValueError("a mistake"),
}


@pytest.fixture
def saved() -> list[int]:
    """Return a list that grows with each save."""
    return []


@pytest_asyncio.fixture
async def client(saved: list[int]) -> AsyncIterator[Client]:
    """Start a server with some resources."""
    app = web.Application(middlewares=[format_responses, save_after_changes(lambda: saved.append(1))])
    app.router.add_get(pattern_of("things/{vhost}"), echo)
    app.router.add_get(pattern_of("things/{vhost}/{name}"), echo)
    for method in ("PUT", "DELETE"):
        app.router.add_route(method, pattern_of("things/{vhost}/{name}"), echo)
    app.router.add_get(pattern_of("between/{source:[^/]*}/end"), echo)
    for name, error in FAULTS.items():
        app.router.add_get(pattern_of(f"faults/{name}"), raising(error))
    async with TestClient(TestServer(app)) as made:
        yield made


async def ask(client: Client, method: str, path: str, **headers: str) -> tuple[int, Any]:
    async with client.request(method, path, headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text) if text else None


@pytest.mark.parametrize(
    ("name", "status", "document"),
    [
        ("refused", 401, {"error": "not_authorised", "reason": "Access refused."}),
        ("missing", 404, {"error": "not_found", "reason": "no queue 'q' in vhost '/'"}),
        ("unequal", 400, {"error": "bad_request", "reason": "inequivalent arg"}),
        ("bad", 400, {"error": "bad_request", "reason": ["not_boolean", "maybe"]}),
        ("broken", 500, {"error": "internal_server_error", "reason": "Internal Server Error"}),
    ],
)
async def test_faults(client: Client, name: str, status: int, document: dict[str, Any]) -> None:
    assert await ask(client, "GET", f"/api/faults/{name}") == (status, document)


async def test_allow_has_methods_of_all_controllers(client: Client) -> None:
    async with client.post("/api/things/v/n") as response:
        assert (response.status, response.headers["allow"]) == (405, "HEAD, GET, PUT, DELETE, OPTIONS")
    async with client.options("/api/things/v") as response:
        assert (response.status, response.headers["allow"]) == (200, "HEAD, GET, OPTIONS")


async def test_changes_are_saved_before_the_response(client: Client, saved: list[int]) -> None:
    await ask(client, "GET", "/api/things/v/n")
    assert saved == []
    await ask(client, "PUT", "/api/things/v/n")
    await ask(client, "DELETE", "/api/things/v/n")
    assert len(saved) == 2
