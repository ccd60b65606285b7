"""The three brokers of docker/compose-cluster.yaml as containers: options and environment are those of that file.

Compose itself, its network and its etcd are left out: the containers are on the host's network, with ports of their own
and an etcd of this machine.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pika
import pytest
import yaml

from tests.docker.container import Container, started
from tests.docker.daemon import Docker
from tests.integration.waiting import wait_until
from tests.support.cluster import Etcd, free_port
from tests.support.management import Management

pytestmark = pytest.mark.etcd

_FILE: Final = Path(__file__).parents[2] / "docker/compose-cluster.yaml"
_VARIABLE: Final = re.compile(r"\$\{(\w+):([-?])([^}]*)\}")
_BODIES: Final = [b"message %d" % number for number in range(200)]


def options_of(service: dict[str, Any], client: Docker) -> list[str]:
    """Return what `docker run` is told of a service."""
    words = ["--hostname", service["hostname"], *(["--read-only"] if service["read_only"] else [])]
    for option, key in (("--tmpfs", "tmpfs"), ("--cap-drop", "cap_drop"), ("--security-opt", "security_opt")):
        words += [word for value in service[key] for word in (option, value)]
    limit: int = service["ulimits"]["nofile"]
    # The daemon of the tests has the limits of this process, above which it may be unable to go.
    if not client.own or limit <= resource.getrlimit(resource.RLIMIT_NOFILE)[1]:
        words += ["--ulimit", f"nofile={limit}"]
    return words


def environment_of(service: dict[str, Any], register: str) -> dict[str, str]:
    """Return its environment, with defaults for what compose takes from the user's, and ports of this machine."""
    found = {name: _VARIABLE.sub(_default, value) for name, value in service["environment"].items()}
    assert found["LEVERET_REPLICATION_REGISTER"] == "etcd://etcd:2379/leveret"
    assert found["LEVERET_REPLICATION_ADVERTISE"] == service["hostname"]
    return found | {
        "LEVERET_REPLICATION_REGISTER": register,
        "LEVERET_REPLICATION_ADVERTISE": "127.0.0.1",
        "LEVERET_REPLICATION_PORT": str(free_port()),
    }


def _default(variable: re.Match[str]) -> str:
    return variable[3] if variable[2] == "-" else "a long random text"


@pytest.fixture
def brokers(client: Docker, image: str, tmp_path: Path) -> Iterator[dict[str, Container]]:
    """The containers by their hostnames, all in sync."""
    services = yaml.safe_load(_FILE.read_text())["services"]
    with Etcd(tmp_path) as etcd, ExitStack() as stack:
        running: dict[str, Container] = {}
        for name in ("broker1", "broker2", "broker3"):
            environment = environment_of(services[name], f"etcd://127.0.0.1:{etcd.port}/leveret")
            options = options_of(services[name], client)
            container = stack.enter_context(started(client, image, options=options, environment=environment))
            container.wait_until_healthy()
            running[name] = container
        wait_for_all(running)
        yield running


def status(container: Container) -> dict[str, Any]:
    """Return what a node says of the cluster; nothing while nobody leads."""
    api = Management(f"http://guest:guest@127.0.0.1:{container.management_port}", timeout=10)
    try:
        found: dict[str, Any] = api.request("GET", "replication")
    except OSError:
        return {}
    return found


def wait_for_all(running: dict[str, Container]) -> None:
    """Wait until all are in sync."""

    def are_in_sync() -> bool:
        return all(sorted(status(each).get("in_sync", ())) == sorted(running) for each in running.values())

    wait_until(are_in_sync, "all brokers are in sync")


def wait_for_leader_but(running: dict[str, Container], gone: str) -> None:
    """Wait until another one leads than the one that is gone."""
    left = {name: each for name, each in running.items() if name != gone}
    wait_until(lambda: all(status(each).get("leader") in left for each in left.values()), "another one leads")


def test_a_container_that_is_killed_is_replaced(brokers: dict[str, Container]) -> None:
    # The node's name is that of the host.
    assert status(brokers["broker3"])["leader"] == "broker1"
    with brokers["broker3"].connect() as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_delivery()
        for body in _BODIES:
            channel.basic_publish("", "kept", body, pika.BasicProperties(delivery_mode=2))
    brokers["broker1"].kill()
    wait_for_leader_but(brokers, "broker1")
    with brokers["broker2"].connect() as connection:
        channel = connection.channel()
        assert [channel.basic_get("kept", auto_ack=True)[2] for _ in _BODIES] == _BODIES
    brokers["broker1"].start_again()
    wait_for_all(brokers)
    leader = status(brokers["broker1"])["leader"]
    assert brokers[leader].stop() == 0, brokers[leader].log()
    wait_for_leader_but(brokers, leader)
    assert "does not lead any more: handed over" in brokers[leader].log()
