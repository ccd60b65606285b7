"""Health checks that fail, and what a healthy broker of ours does not tell."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.stub_api import stub_api

NODE = "n@h"
HEALTHY: dict[str, Any] = {
    "/api/overview": {"node": NODE, "listeners": []},
    "/api/nodes/n%40h": {"name": NODE, "mem_alarm": False, "disk_free_alarm": False},
    "/api/vhosts": [{"name": "/", "cluster_state": {NODE: "running"}}],
}
MEMORY = "Memory alarm on node n@h\n"
DISK = "Free disk space alarm on node n@h\n"


def run(answers: dict[str, Any], *arguments: str) -> CommandResult:
    with stub_api(HEALTHY | answers) as api:
        return Leveretctl(api.url)(*arguments)


def with_alarms(*, memory: bool, disk: bool) -> dict[str, Any]:
    return {"/api/nodes/n%40h": {"name": NODE, "mem_alarm": memory, "disk_free_alarm": disk}}


@pytest.mark.parametrize("command", ["check_alarms", "check_local_alarms"])
@pytest.mark.parametrize(("memory", "disk"), [(True, False), (False, True), (True, True)])
def test_alarms(command: str, memory: bool, disk: bool) -> None:
    lines = MEMORY * memory + DISK * disk
    ran = run(with_alarms(memory=memory, disk=disk), command)
    assert ran == CommandResult(69, "Asking node n@h to report any local resource alarms ...\n", f"Error:\n{lines}")


def test_alarms_in_json() -> None:
    status, out, err = run(with_alarms(memory=True, disk=True), "check_alarms", "--formatter", "json")
    resources = [{"node": NODE, "resource": resource} for resource in ("memory", "disk")]
    assert (status, out, json.loads(err)) == (69, "", {"alarms": resources, "result": "error"})


def test_listing_alarms_succeeds() -> None:
    assert run(with_alarms(memory=True, disk=True), "alarms", "-q") == CommandResult(0, MEMORY + DISK, "")


def test_virtual_hosts() -> None:
    vhosts = [{"name": name, "cluster_state": {NODE: state}} for name, state in (("/", "running"), ("v", "stopped"))]
    ran = run({"/api/vhosts": vhosts}, "check_virtual_hosts", "-q")
    assert ran == CommandResult(69, "", "Error:\nSome virtual hosts on node n@h are down:\nv\n")


def test_certificates() -> None:
    reason = {"status": "failed", "reason": "Certificates expiring"}
    path = "/api/health/checks/certificate-expiration/2/months"
    failing = {path: (503, json.dumps(reason).encode())}
    ran = run(failing, "check_certificate_expiration", "--within", "2", "--unit", "months", "-q")
    assert ran == CommandResult(69, "", "Error:\nCertificates expiring\n")


def test_port_connectivity() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        listener = {"node": NODE, "protocol": "amqp", "ip_address": "127.0.0.1", "port": port}
        ran = run({"/api/overview": {"node": NODE, "listeners": [listener]}}, "check_port_connectivity", "-q")
    assert ran == CommandResult(69, "", f"Error:\nConnection attempts to the following ports failed: {port}\n")


def test_node_health_check() -> None:
    ran = run(with_alarms(memory=True, disk=False), "node_health_check", "-q")
    assert ran == CommandResult(69, "", "Error:\nHealth check failed.  Status: Memory alarm on node n@h\n")


def test_environment() -> None:
    settings = {"amqp.port": 5672, "data_dir": "/x", "tls": None}
    ran = run({"/api/config/effective": settings}, "environment")
    assert ran == CommandResult(
        0,
        "Application environment of node n@h ...\n"
        "[{leveret,\n     [{'amqp.port',5672},\n      {data_dir,\"/x\"},\n      {tls,undefined}]}]\n",
        "",
    )
    shown = run({"/api/config/effective": settings}, "environment", "--formatter", "json")
    assert json.loads(shown.out) == settings


def test_environment_of_a_broker_that_does_not_tell() -> None:
    missing = (404, b'{"error":"Object Not Found","reason":"Not Found"}')
    ran = run({"/api/config/effective": missing}, "environment", "-q")
    assert ran == CommandResult(69, "", "Error:\nNode n@h does not show its configuration over HTTP\n")


@pytest.mark.parametrize(("product", "status"), [("RabbitMQ", 69), ("", 69)])
def test_no_dry_run_where_the_policy_would_be_set(product: str, status: int) -> None:
    with stub_api({"/api/overview": {"node": NODE, "product_name": product}}) as api:
        ran = Leveretctl(api.url)("set_policy", "p", "", '{"max-length":1}', "--dry-run", "-q")
        assert ran == CommandResult(
            status, "", "Error:\nthe broker does not support dry runs of policies: it is RabbitMQ, not Leveret\n"
        )
        assert [asked.method for asked in api.requests] == ["GET"]
