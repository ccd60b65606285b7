"""Commands about the broker itself, and health checks that fail."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from leveret.broker.version import VERSION
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.management import Management


@pytest.fixture(scope="module")
def node(leveret: LeveretProcess) -> str:
    name: str = Management(leveret.http_url).request("GET", "overview")["node"]
    return name


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def ports(leveret: LeveretProcess) -> list[int]:
    return sorted(int(url.rpartition(":")[2]) for url in (leveret.url, leveret.http_url, leveret.prometheus_url))


def test_listeners(leveret: LeveretProcess, ctl: Leveretctl, node: str) -> None:
    port = leveret.url.rpartition(":")[2]
    line = f"Interface: 127.0.0.1, port: {port}, protocol: amqp, purpose: AMQP 0-9-1"
    shown = ctl.output("listeners").splitlines()
    assert shown[0] == f"Asking node {node} to report its protocol listeners ..."
    assert line in shown
    listed = json.loads(ctl.output("listeners", "--formatter", "json"))
    assert sorted(each["port"] for each in listed["listeners"]) == ports(leveret)


def test_check_port_listener(leveret: LeveretProcess, ctl: Leveretctl, node: str, free_port: int) -> None:
    port = leveret.url.rpartition(":")[2]
    ran = ctl("check_port_listener", port)
    assert ran == CommandResult(
        0,
        f"Asking node {node} if there's an active listener on port {port} ...\n"
        f"A listener for port {port} is running on node {node}.\n",
        "",
    )
    known = ", ".join(str(each) for each in ports(leveret))
    ran = ctl("check_port_listener", str(free_port), "-q")
    text = f"No listener for port {free_port} is active on node {node}. Found listeners that use the following ports: "
    assert ran == CommandResult(69, "", f"{text}{known}\n")
    status, out, err = ctl("check_port_listener", str(free_port), "--formatter", "json")
    found = json.loads(err)
    assert (status, out, found["result"], found["missing"]) == (69, "", "error", str(free_port))


def test_check_protocol_listener(ctl: Leveretctl, node: str) -> None:
    assert ctl("check_protocol_listener", "mqtt", "-q") == CommandResult(
        69,
        "",
        f"Error:\nNo listener for protocol mqtt is active on node {node}."
        " Found listeners for the following protocols: amqp, http, http/prometheus\n",
    )


def test_check_port_connectivity(leveret: LeveretProcess, ctl: Leveretctl, node: str) -> None:
    known = ", ".join(str(each) for each in ports(leveret))
    assert ctl("check_port_connectivity") == CommandResult(
        0,
        f"Testing TCP connections to all active listeners on node {node} ...\n"
        f"Successfully connected to ports {known} on node {node}.\n",
        "",
    )


@pytest.mark.parametrize("option", [(), ("--unit", "mb"), ("--unit", "bytes")])
def test_status(ctl: Leveretctl, leveret: LeveretProcess, node: str, option: tuple[str, ...]) -> None:
    shown = ctl.output("status", *option)
    lines = shown.splitlines()
    assert lines[:2] == [f"Status of node {node} ...", "Runtime"]
    assert f"OS PID: {leveret.pid}" in lines
    assert f"Leveret version: {VERSION}" in lines
    unit = option[1] if option else "gb"
    (free,) = [line for line in lines if line.startswith("Free disk space: ")]
    assert free.endswith(f" {unit}")
    assert float(free.split()[3]) > 0
    for title in ("Data directory", "Alarms", "Memory", "File Descriptors", "Totals", "Listeners"):
        assert title in lines


def test_status_in_json(ctl: Leveretctl, leveret: LeveretProcess) -> None:
    shown = json.loads(ctl.output("status", "--formatter", "json"))
    assert (shown["pid"], shown["product_name"]) == (leveret.pid, "Leveret")
    assert shown["alarms"] == []
    assert shown["totals"]["virtual_host_count"] >= 1


def test_cluster_status(ctl: Leveretctl, node: str) -> None:
    lines = ctl.output("cluster_status", "-q").splitlines()
    assert lines[0] == "Basics"
    assert any(line.startswith(f"{node}: Leveret {VERSION} on CPython ") for line in lines)
    shown = json.loads(ctl.output("cluster_status", "--formatter", "json"))
    assert shown["running_nodes"] == [node]


def test_server_version(ctl: Leveretctl) -> None:
    assert ctl.output("server_version", "-q") == f"{VERSION}\n"
    assert ctl.output("erlang_version", "-q").startswith("CPython ")
    assert ctl.output("node_health_check", "-q") == "Health check passed\n"


def test_memory_breakdown(ctl: Leveretctl) -> None:
    shown = json.loads(ctl.output("memory_breakdown", "--formatter", "json"))
    assert sum(part["percentage"] for part in shown.values()) == pytest.approx(100, abs=2)
    header, row = ctl.output("memory_breakdown", "--formatter", "csv").splitlines()
    assert header.count(",") == row.count(",") == 2 * len(shown) - 1


def test_list_node_auth_attempt_stats(ctl: Leveretctl, node: str) -> None:
    shown = ctl.output("list_node_auth_attempt_stats")
    assert shown.startswith(
        f'Listing authentication\n attempts for node "{node}" ...\n'
        "protocol\tauth_attempts\tauth_attempts_failed\tauth_attempts_succeeded\n"
    )


def test_reset_node_auth_attempt_metrics(ctl: Leveretctl, node: str) -> None:
    ctl("authenticate_user", "guest", "wrong")
    ran = ctl("reset_node_auth_attempt_metrics")
    assert ran == CommandResult(0, f"Reset auth attempt metrics on node {node} ...\n", "")
    shown = json.loads(ctl.output("list_node_auth_attempt_stats", "--formatter", "json"))
    assert [each["auth_attempts_failed"] for each in shown["attempts"] if each["protocol"] == "http"] == [0]


def test_set_cluster_name(ctl: Leveretctl) -> None:
    assert ctl("set_cluster_name", "hares") == CommandResult(0, "Setting cluster name to hares ...\n", "")
    assert "Cluster name: hares" in ctl.output("cluster_status").splitlines()


def test_list_node_report_has_no_hashes(ctl: Leveretctl) -> None:
    shown = ctl.output("report")
    assert '"password_hash":' not in shown
    assert '"name":"guest"' in shown


def test_restart_vhost(ctl: Leveretctl, vhost: str, node: str) -> None:
    assert ctl("restart_vhost", "-p", vhost) == CommandResult(
        0,
        f"Trying to restart vhost '{vhost}' on node '{node}' ...\n"
        f"Vhost '{vhost}' is already running on node '{node}'\n",
        "",
    )
    assert ctl("restart_vhost", "-p", "no-such", "-q").status == 70
