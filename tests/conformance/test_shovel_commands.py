"""Rule 48.16: shovels on the command line."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.conformance.conftest import Broker
from tests.support.leveretctl import CommandResult, Leveretctl
from tests.support.management import Management

pytestmark = pytest.mark.plugin("shovel")


@pytest.fixture
def ctl(broker: Broker) -> Leveretctl:
    return Leveretctl(broker.http_url)


@pytest.fixture
def own_vhost(ctl: Leveretctl) -> Iterator[str]:
    name = f"conformance-{uuid.uuid4().hex[:12]}"
    ctl.output("add_vhost", name)
    ctl.output("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
    yield name
    ctl.output("delete_vhost", name)


def test_48_16_commands(broker: Broker, ctl: Leveretctl, own_vhost: str) -> None:
    uri, node = f"amqp:///{own_vhost}", Management(broker.http_url).request("GET", "overview")["node"]
    value = json.dumps({"src-uri": uri, "src-queue": "a", "dest-uri": uri, "dest-queue": "b"})
    where = f'"x" for component "shovel" to "{value}" in vhost "{own_vhost}" ...\n'
    assert ctl.output("set_parameter", "-p", own_vhost, "shovel", "x", value) == f"Setting runtime parameter {where}"
    refused = ctl("set_parameter", "-p", own_vhost, "shovel", "y", '{"src-uri": "amqp://"}')
    assert refused.status == 69
    assert "Must specify 'src-exchange' or 'src-queue'\nKey \"dest-uri\" not found in y\n" in refused.err

    def listed() -> list[dict[str, str]]:
        rows = json.loads(ctl.output("shovel_status", "--formatter", "json"))
        return [row for row in rows if row.get("vhost") == own_vhost]

    deadline = time.monotonic() + 60
    while [row["state"] for row in listed()] != ["running"]:
        assert time.monotonic() < deadline
    (row,) = listed()
    shown = {
        "destination": uri, "destination_protocol": "amqp091", "destination_queue": "b", "last_changed":
        row["last_changed"], "name": "x", "source": uri, "source_protocol": "amqp091", "source_queue": "a",
        "state": "running", "termination_reason": "", "type": "dynamic", "vhost": own_vhost,
    }  # fmt: skip
    assert row == shown
    lines = ctl.output("shovel_status").splitlines()
    assert lines[0] == f"Shovel status on node {node}"
    assert set(shown) <= set(lines[1].split("\t"))
    assert any(uri in line and "running" in line for line in lines[2:])
    place = f"in virtual host {own_vhost} on node {node}"
    assert ctl.output("restart_shovel", "-p", own_vhost, "x") == f"Restarting dynamic Shovel x {place}\n"
    text = f"the target node '{node}' and / or virtual host '{own_vhost}'"
    unknown = f"Error:\nShovel with the given name was not found on {text}\n"
    banner = f"Restarting dynamic Shovel y {place}\n"
    assert ctl("restart_shovel", "-p", own_vhost, "y") == CommandResult(69, banner, unknown)
    banner = f"Deleting shovel x in vhost {own_vhost}\n"
    assert ctl.output("delete_shovel", "-p", own_vhost, "x") == banner
    assert ctl("delete_shovel", "-p", own_vhost, "x") == CommandResult(69, banner, unknown)
    assert listed() == []
