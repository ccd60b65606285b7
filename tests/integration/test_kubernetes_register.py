"""The register in a Lease, against a server that keeps the rules of Kubernetes' API for Leases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from leveret.broker.replication.kubernetes import KubernetesRegister
from leveret.broker.replication.register import RegisterError, State

STATE = State(1, "a", ("a",), {"a": "h:1"}, "s", ((1, 0),))
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


class ApiServer:
    """Keeps Leases: objects are created once, and replaced by who knows their version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.changed = asyncio.Event()
        self.token = "t1"
        self.before_replace: list[Callable[[], None]] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get(LEASES, self.watch),
                web.post(LEASES, self.create),
                web.get(LEASES + "/{name}", self.show),
                web.put(LEASES + "/{name}", self.replace),
            ]
        )
        return app

    def failure(self, request: web.Request, status: int, message: str) -> web.Response:
        return web.json_response({"kind": "Status", "message": message}, status=status)

    def refused(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.failure(request, 401, "Unauthorized")
        return None

    def store(self, lease: dict[str, Any]) -> None:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.objects[lease["metadata"]["name"]] = json.loads(json.dumps(lease))
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def show(self, request: web.Request) -> web.Response:
        found = self.objects.get(request.match_info["name"])
        return self.refused(request) or (
            self.failure(request, 404, "not found") if found is None else web.json_response(found)
        )

    async def create(self, request: web.Request) -> web.Response:
        lease = await request.json()
        if lease["metadata"]["name"] in self.objects:
            return self.failure(request, 409, "already exists")
        self.store(lease)
        return self.refused(request) or web.json_response(lease, status=201)

    async def replace(self, request: web.Request) -> web.Response:
        lease, name = await request.json(), request.match_info["name"]
        while self.before_replace:
            self.before_replace.pop()()
        if lease["metadata"].get("resourceVersion") != self.objects[name]["metadata"]["resourceVersion"]:
            return self.failure(request, 409, "the object has been modified")
        self.store(lease)
        return self.refused(request) or web.json_response(lease)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            changed = self.changed
            await response.write(b'{"type": "MODIFIED"}\n')
            await changed.wait()


def run(
    tmp_path: Path,
    work: Callable[[ApiServer, KubernetesRegister, KubernetesRegister], Coroutine[Any, Any, None]],
    lease: float = 60,
) -> None:
    async def within() -> None:
        server = ApiServer()
        runner = web.AppRunner(server.application(), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        (tmp_path / "token").write_text("t1\n")
        address = f"http://127.0.0.1:{port}"
        registers = [KubernetesRegister(address, "ns", "lv", each, lease, tmp_path) for each in "ab"]
        try:
            async with asyncio.timeout(60):
                await work(server, *registers)
        finally:
            for register in registers:
                await register.close()
            await runner.cleanup()

    asyncio.run(within())


def test_compare_and_set(tmp_path: Path) -> None:
    async def work(server: ApiServer, one: KubernetesRegister, other: KubernetesRegister) -> None:
        assert (await one.read()).state is None
        assert await one.write(STATE, 5) is None
        first = await one.write(STATE, 0)
        assert first is not None
        assert await other.write(STATE, 0) is None
        second = await other.write(STATE, first)
        assert second is not None
        assert await one.write(STATE, first) is None
        reading = await one.read()
        assert (reading.state, reading.revision, reading.claimed_by) == (STATE, second, "")

    run(tmp_path, work)


def test_one_leads_until_its_lease_has_run_out(tmp_path: Path) -> None:
    async def work(server: ApiServer, one: KubernetesRegister, other: KubernetesRegister) -> None:
        revision = await one.claim(STATE, 0)
        assert revision is not None
        for _ in range(5):
            assert (await other.read()).claimed_by == "a"
            await asyncio.sleep(1.2)
            assert await one.renew()
        assert not await other.renew()
        assert await other.claim(STATE, revision) is None
        while (await other.read()).claimed_by:
            await other.wait(0.2)
        # Renewing has not changed the state.
        assert await other.claim(STATE, revision) == revision + 1
        assert not await one.renew()
        assert await one.claim(STATE, revision + 1) is None
        lease = server.objects["lv"]
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("b", 2)

    # A busy machine may take some of it between two requests.
    run(tmp_path, work, 4)


def test_a_change_meanwhile_is_noticed(tmp_path: Path) -> None:
    async def work(server: ApiServer, one: KubernetesRegister, other: KubernetesRegister) -> None:
        revision = await one.claim(STATE, 0)
        assert revision is not None
        # A renewal is no change of the state, so writing is tried again.
        server.before_replace.append(lambda: server.store(server.objects["lv"]))
        again = await one.write(STATE, revision)
        assert again == revision + 1

        def take_over() -> None:
            lease = server.objects["lv"]
            lease["metadata"]["annotations"]["leveret/revision"] = "77"
            server.store(lease)

        server.before_replace.append(take_over)
        assert await one.write(STATE, again) is None

    run(tmp_path, work)


def test_handing_over_and_watching(tmp_path: Path) -> None:
    async def work(server: ApiServer, one: KubernetesRegister, other: KubernetesRegister) -> None:
        revision = await one.claim(STATE, 0)
        assert revision is not None
        assert await one.resign(STATE, revision + 1) is None
        assert (await other.read()).claimed_by == "a"
        done = await one.resign(STATE, revision)
        assert done == revision + 1
        await other.wait(30)
        assert (await other.read()).claimed_by == ""
        assert await other.claim(STATE, done) is not None
        assert await one.resign() is None

    run(tmp_path, work)


def test_a_token_is_read_again(tmp_path: Path) -> None:
    async def work(server: ApiServer, one: KubernetesRegister, other: KubernetesRegister) -> None:
        await one.write(STATE, 0)
        server.token = "t2"
        with pytest.raises(RegisterError, match="401: Unauthorized"):
            await one.read()
        (tmp_path / "token").write_text("t2")
        assert (await one.read()).state == STATE
        server.objects["lv"]["metadata"]["annotations"]["leveret/state"] = "{"
        with pytest.raises(RegisterError, match="malformed"):
            await one.read()

    run(tmp_path, work)
