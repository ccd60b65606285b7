"""What runs a cluster: the compose file, the Helm chart and the systemd unit."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from leveret.broker.config.options import OPTIONS
from tests.packaging.test_compose import has_compose

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker/compose-cluster.yaml"
CHART = ROOT / "docker/kubernetes"
NAME = "test-leveret"


def check_options(environment: dict[str, str], tmp_path: Path) -> None:
    """Let the broker check a configuration by environment variables."""
    names = {name for name in environment if name.startswith("LEVERET_")}
    assert names <= {option.environment for option in OPTIONS.values()}
    given = {**{name: environment[name] for name in names}, "LEVERET_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "leveret", "check-config"]
    done = subprocess.run(
        command, env=os.environ | given, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --- Docker Compose ---------------------------------------------------------------------------------------------------


def brokers() -> dict[str, Any]:
    services = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]
    return {name: service for name, service in services.items() if name != "etcd"}


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_docker_compose_takes_it() -> None:
    command = ["docker", "compose", "--file", str(COMPOSE), "config", "--quiet"]
    environment = os.environ | {"REPLICATION_SECRET": "x"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_three_brokers_with_a_volume_and_ports_each() -> None:
    told = yaml.safe_load(COMPOSE.read_text("utf-8"))
    assert len(brokers()) == 3
    volumes = [service["volumes"][0].partition(":")[0] for service in brokers().values()]
    assert {*volumes, "etcd"} == {*told["volumes"]}
    ports = [port.split(":")[-2] for service in brokers().values() for port in service["ports"]]
    assert len({*ports}) == len(ports) == 6
    for name, service in brokers().items():
        assert service["hostname"] == service["environment"]["LEVERET_REPLICATION_ADVERTISE"] == name
        assert service["depends_on"] == {"etcd": {"condition": "service_healthy"}}
        assert "/health/ready" in service["healthcheck"]["test"][-1]
        assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert told["services"]["etcd"]["healthcheck"]["test"][-1] == "health"


def test_the_brokers_take_their_options(tmp_path: Path) -> None:
    for service in brokers().values():
        given = service["environment"].items()
        check_options({name: re.sub(r"\$\{\w+:[-?](.*)\}", r"\1", str(value)) for name, value in given}, tmp_path)


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def helm(*arguments: str) -> str:
    cached = ROOT / ".venv/cache/helm"
    program = shutil.which("helm") or str(cached)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rendered(*arguments: str) -> dict[tuple[str, str], Any]:
    """Return what the chart makes, by kind and name."""
    text = helm("template", NAME, str(CHART), "--namespace", "mq", "--kube-version", "1.30.0", *arguments)
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each}


@pytest.mark.helm
def test_helm_has_no_complaints() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.helm
def test_what_the_chart_makes(tmp_path: Path) -> None:
    made = rendered()
    assert {*made} == {
        ("Service", NAME), ("Service", f"{NAME}-leader"), ("Service", f"{NAME}-nodes"),
        ("ServiceAccount", NAME), ("Role", NAME), ("RoleBinding", NAME), ("ConfigMap", NAME),
        ("Secret", f"{NAME}-replication"), ("Secret", f"{NAME}-user"),
        ("StatefulSet", NAME), ("PodDisruptionBudget", NAME),
    }  # fmt: skip
    nodes = made["StatefulSet", NAME]["spec"]
    labels = nodes["template"]["metadata"]["labels"]
    for kind, name in made:
        if kind == "Service":
            selector = made[kind, name]["spec"]["selector"]
            assert selector.pop("leveret/role", "") == ("leader" if name.endswith("-leader") else "")
            assert selector.items() <= labels.items()
    assert nodes["serviceName"] == f"{NAME}-nodes"
    broker, role = nodes["template"]["spec"]["containers"]
    ports = {port["name"] for port in broker["ports"]}
    for kind, name in made:
        if kind == "Service":
            assert {port["targetPort"] for port in made[kind, name]["spec"]["ports"]} <= ports
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert broker[probe]["httpGet"]["path"] in ("/health/live", "/health/ready")
    mounted = {each["name"] for container in (broker, role) for each in container["volumeMounts"]}
    volumes = {each["name"] for each in nodes["template"]["spec"]["volumes"]}
    assert mounted == volumes | {"data"} == {*volumes, nodes["volumeClaimTemplates"][0]["metadata"]["name"]}
    environment = {each["name"]: each.get("value", "x") for each in broker["env"]}
    assert environment["LEVERET_REPLICATION_REGISTER"] == f"kubernetes://mq/{NAME}"
    assert environment["LEVERET_REPLICATION_ADVERTISE"] == f"$(POD_NAME).{NAME}-nodes.mq.svc"
    check_options(environment, tmp_path)
    rules = {rule["resources"][0]: rule["verbs"] for rule in made["Role", NAME]["rules"] if "resourceNames" in rule}
    assert rules == {"leases": ["get", "list", "watch", "update"], "pods": ["patch"]}


@pytest.mark.helm
def test_etcd_and_other_values() -> None:
    made = rendered(
        "--set", "replication.register=etcd://e:2379/mq,leaderService.enabled=false,replicas=5",
        "--set", "replication.existingSecret=own,defaultUser.existingSecret=own,config.log_level=warning",
    )  # fmt: skip
    assert not {kind for kind, name in made if kind == "Secret" or name.endswith("-leader")}
    assert not made["Role", NAME]["rules"]
    (broker,) = made["StatefulSet", NAME]["spec"]["template"]["spec"]["containers"]
    (secret,) = [each["valueFrom"] for each in broker["env"] if each["name"] == "LEVERET_REPLICATION_SECRET"]
    assert secret["secretKeyRef"]["name"] == "own"
    assert yaml.safe_load(made["ConfigMap", NAME]["data"]["leveret.yaml"]) == {"log_level": "warning"}


def test_the_label_follows_the_role(tmp_path: Path) -> None:
    """The program that keeps it, with a server that stands for the broker and for Kubernetes."""
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("a token\n")
    asked: list[tuple[str, str, str]] = []
    status = 503

    async def patch(request: web.Request) -> web.Response:
        label = json.loads(await request.text())["metadata"]["labels"]["leveret/role"]
        asked.append((request.path, request.headers["Authorization"], label))
        # The first attempt fails, and is made again.
        return web.Response(status=500 if len(asked) == 1 else 200)

    async def check(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async def work() -> None:
        nonlocal status
        app = web.Application()
        app.add_routes([web.patch("/api/{rest:.*}", patch), web.get("/check", check)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        environment = {
            "SERVER": url, "CHECK": f"{url}/check", "ACCOUNT": str(account), "LOOK_SECONDS": "0.05",
            "POD_NAMESPACE": "mq", "POD_NAME": "leveret-0",
        }  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(CHART / "files/label_role.py"), env=os.environ | environment, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(60):
                for wanted, count in ((503, 2), (200, 3), (503, 4)):
                    status = wanted
                    while len(asked) < count:  # noqa: ASYNC110 - nothing tells
                        await asyncio.sleep(0.02)
        finally:
            process.kill()
            _, errors = await process.communicate()
            await runner.cleanup()
        path = "/api/v1/namespaces/mq/pods/leveret-0"
        labels = ["standby", "standby", "leader", "standby"]
        assert asked == [(path, "Bearer a token", label) for label in labels]
        assert errors.decode().startswith("the label leveret/role cannot be set to standby: HTTP Error 500")

    asyncio.run(work())


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return the unit of a node of a cluster."""
    shutil.copy(ROOT / "docker/leveret.service", tmp_path)
    (tmp_path / "leveret.service.d").mkdir()
    shutil.copy(ROOT / "docker/leveret-cluster.conf", tmp_path / "leveret.service.d/cluster.conf")
    return tmp_path / "leveret.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_has_no_complaints(unit: Path) -> None:
    command = ["systemd-analyze", "verify", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
