"""The register in a real etcd."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.replication.etcd import EtcdRegister
from leveret.broker.replication.register import RegisterError, State
from tests.support.cluster import Etcd, free_port

pytestmark = pytest.mark.etcd
STATE = State(1, "a", ("a",), {"a": "h:1"}, "s", ((1, 0),))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


def run(
    work: Callable[[EtcdRegister, EtcdRegister], Coroutine[Any, Any, None]], etcd: Etcd, name: str, lease: float = 60
) -> None:
    """Run with the registers of two nodes, of which one knows another member that does not answer."""

    async def within() -> None:
        address = f"127.0.0.1:{etcd.port}"
        one = EtcdRegister([address], name, "a", lease)
        other = EtcdRegister([f"127.0.0.1:{free_port()}", address], name, "b", lease)
        try:
            async with asyncio.timeout(60):
                await work(one, other)
        finally:
            await one.close()
            await other.close()

    asyncio.run(within())


def test_compare_and_set(etcd: Etcd) -> None:
    async def work(one: EtcdRegister, other: EtcdRegister) -> None:
        assert (await one.read()).state is None
        first = await one.write(STATE, 0)
        assert first is not None
        assert await other.write(STATE, 0) is None
        second = await other.write(STATE, first)
        assert second is not None
        assert await one.write(STATE, first) is None
        reading = await one.read()
        assert (reading.state, reading.revision, reading.claimed_by) == (STATE, second, "")

    run(work, etcd, "cas")


def test_one_leads_until_its_lease_has_run_out(etcd: Etcd) -> None:
    async def work(one: EtcdRegister, other: EtcdRegister) -> None:
        revision = await one.claim(STATE, 0)
        assert revision is not None
        assert await other.claim(STATE, revision) is None
        assert await one.renew()
        assert not await other.renew()
        # The lease ends unless it is renewed, and who watches is told.
        while (await other.read()).claimed_by:
            await other.wait(30)
        assert not await one.renew()
        assert await other.claim(STATE, revision) is not None
        assert await one.claim(STATE, revision) is None

    # Longer than the machine may take between two requests.
    run(work, etcd, "lease", 5)


def test_handing_over_is_one_step(etcd: Etcd) -> None:
    async def work(one: EtcdRegister, other: EtcdRegister) -> None:
        revision = await one.claim(STATE, 0)
        assert revision is not None
        assert await one.resign(STATE, revision + 1) is None
        assert (await other.read()).claimed_by == "a"
        done = await one.resign(STATE, (await other.read()).revision)
        assert done is not None
        assert (await other.read()).claimed_by == ""
        assert await other.claim(STATE, done) is not None
        # What is another's is not given up.
        assert await one.resign() is None
        assert (await one.read()).claimed_by == "b"

    run(work, etcd, "resign")


def test_a_malformed_state_and_no_etcd_are_one_kind_of_error(etcd: Etcd) -> None:
    async def work(one: EtcdRegister, other: EtcdRegister) -> None:
        put = ["etcdctl", f"--endpoints=http://127.0.0.1:{etcd.port}", "put", "bad/state", "{"]
        done = await asyncio.to_thread(subprocess.run, put, check=False, capture_output=True, env={"ETCDCTL_API": "3"})
        assert done.returncode == 0, done.stderr
        with pytest.raises(RegisterError, match="malformed"):
            await one.read()

    run(work, etcd, "bad")

    async def ask_nobody() -> None:
        nobody = EtcdRegister([f"127.0.0.1:{free_port()}"], "x", "a", 60)
        with pytest.raises(RegisterError, match="etcd cannot be asked"):
            await nobody.read()
        await nobody.close()

    asyncio.run(ask_nobody())


def test_with_a_user(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        endpoint = f"--endpoints=http://127.0.0.1:{etcd.port}"
        for command in (
            ["user", "add", "root:of all"], ["user", "grant-role", "root", "root"], ["user", "add", "node:p@ss"],
            ["role", "add", "nodes"], ["role", "grant-permission", "nodes", "--prefix=true", "readwrite", "c/"],
            ["user", "grant-role", "node", "nodes"], ["auth", "enable"],
        ):  # fmt: skip
            subprocess.run(["etcdctl", endpoint, *command], check=True, capture_output=True, env={"ETCDCTL_API": "3"})

        async def work() -> None:
            address = [f"127.0.0.1:{etcd.port}"]
            # A request may take a part of the lease, and etcd takes its time with a password.
            node = EtcdRegister(address, "c", "a", 60, ("node", "p@ss"))
            assert await node.claim(STATE, 0) is not None
            assert await node.renew()
            for login in (None, ("node", "wrong")):
                stranger = EtcdRegister(address, "c", "b", 60, login)
                with pytest.raises(RegisterError):
                    await stranger.read()
                await stranger.close()
            await node.close()

        asyncio.run(work())
