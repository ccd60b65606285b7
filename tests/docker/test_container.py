"""The broker in a container, seen from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError

from tests.docker.container import started
from tests.docker.daemon import Docker

_MESSAGES = 200
#: No client is connected, little is on disk: far below the ten seconds that Docker waits before it kills.
_STOP_SECONDS = 5.0
_READ_ONLY = ("--read-only", "--tmpfs", "/tmp")


def memory_of(status: str) -> float:
    """Resident memory in MB, out of /proc/PID/status."""
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024 / 1e6


def test_messages_survive_kill_and_stop(client: Docker, image: str, measured: dict[str, str]) -> None:
    """Published from outside with a read-only root; SIGKILL, then SIGTERM, each with another start after it."""
    begin = time.monotonic()
    with started(client, image, options=_READ_ONLY) as container:
        container.wait_until_ready()
        measured["time to ready (docker run included)"] = f"{time.monotonic() - begin:.2f} s"
        container.wait_until_healthy()
        measured["time to healthy (checks each second)"] = f"{time.monotonic() - begin:.2f} s"
        measured["resident memory, idle"] = f"{memory_of(container.execute('cat', '/proc/1/status')):.1f} MB"
        bodies = [f"message {number}".encode() for number in range(_MESSAGES)]
        with container.connect() as connection:
            channel = connection.channel()
            channel.queue_declare("kept", durable=True)
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", "kept", body, pika.BasicProperties(delivery_mode=2))
        assert container.kill() == 137

        container.start_again()
        container.wait_until_healthy()
        with container.connect() as connection:
            channel = connection.channel()
            half = _MESSAGES // 2
            for body in bodies[:half]:
                method, _, got = channel.basic_get("kept", auto_ack=True)
                assert (method is not None, got) == (True, body)
        begin = time.monotonic()
        assert container.stop() == 0, container.log()
        took = time.monotonic() - begin
        measured["time to stop"] = f"{took:.2f} s"
        assert took < _STOP_SECONDS, container.log()

        container.start_again()
        container.wait_until_healthy()
        with container.connect() as connection:
            channel = connection.channel()
            assert [channel.basic_get("kept", auto_ack=True)[2] for _ in bodies[half:]] == bodies[half:]
            assert channel.queue_declare("kept", passive=True).method.message_count == 0


def test_not_root_and_without_capabilities(client: Docker, image: str) -> None:
    with started(client, image) as container:
        container.wait_until_ready()
        status = dict(line.split(":", 1) for line in container.execute("cat", "/proc/1/status").splitlines())
        assert status["Uid"].split() == status["Gid"].split() == ["999"] * 4
        assert int(status["CapEff"], 16) == 0
        assert container.execute("cat", "/proc/1/cmdline").split("\0")[1] == "/opt/leveret/bin/leveret"
        others = container.execute("find", "/var/lib/leveret", "-mindepth", "1", "-perm", "/o=rwx")
        assert others == "", "readable by others"


def test_default_user_with_a_secret(client: Docker, image: str, tmp_path: Path) -> None:
    """As with RabbitMQ's image; leveretctl finds user, password and port by itself."""
    secret = tmp_path / "password"
    secret.write_text("p@ss:/ 1\n")
    environment = {
        "RABBITMQ_DEFAULT_USER": "clerk",
        "RABBITMQ_DEFAULT_PASS_FILE": "/run/secrets/password",
        "RABBITMQ_DEFAULT_VHOST": "shop",
    }
    mounted = ("--volume", f"{secret}:/run/secrets/password:ro")
    with started(client, image, options=(*mounted, *_READ_ONLY), environment=environment) as container:
        container.wait_until_ready()
        with container.connect("clerk", "p@ss:/ 1", "shop") as connection:
            connection.channel().queue_declare("orders", durable=True)
        with pytest.raises(AMQPConnectionError):
            container.connect()
        listed = container.execute("leveretctl", "--silent", "-p", "shop", "list_queues", "name")
        assert listed == "orders"
        assert container.execute("leveretctl", "--silent", "list_users") == "clerk\t[administrator]"


def test_mounted_configuration_and_definitions(client: Docker, image: str, tmp_path: Path) -> None:
    (tmp_path / "leveret.yaml").write_text("heartbeat: 7\n")
    definitions = {
        "vhosts": [{"name": "shop"}],
        "users": [{"name": "clerk", "password": "change-me", "tags": "administrator"}],
        "permissions": [{"user": "clerk", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [{"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}}],
    }
    (tmp_path / "definitions.json").write_text(json.dumps(definitions))
    names = ("leveret.yaml", "definitions.json")
    mounted = [word for name in names for word in ("--volume", f"{tmp_path / name}:/etc/leveret/{name}:ro")]
    with started(client, image, options=mounted) as container:
        container.wait_until_ready()
        with container.connect("clerk", "change-me", "shop") as connection:
            connection.channel().queue_declare("orders", passive=True)
        # As with RabbitMQ, definitions come instead of the default user.
        url = f"http://clerk:change-me@127.0.0.1:{container.management_port}"
        environment = json.loads(container.execute("leveretctl", "--url", url, "environment", "--formatter", "json"))
        assert environment["heartbeat"] == 7
    assert client("run", "--rm", "--network", "none", *mounted, image, "check-config")
    checked = client.run(
        "run", "--rm", "--network", "none", *mounted, "--env", "LEVERET_PORT=no", image, "check-config"
    )
    assert (checked.returncode, checked.stderr.partition(": ")[0]) == (1, "leveret")


def test_any_user_may_run_it(client: Docker, image: str) -> None:
    with started(client, image, options=("--user", "1234:1234", *_READ_ONLY)) as container:
        container.wait_until_healthy()
        with container.connect() as connection:
            connection.channel().queue_declare("q", durable=True)
        assert container.stop() == 0


def test_flags(client: Docker, image: str) -> None:
    """`docker run leveret --flag` is the broker's; the health check and leveretctl know what it was started with."""
    arguments = ("--set", "cluster_name=from the flags", "--set", "proxy_protocol=true")
    with started(client, image, *arguments) as container:
        container.wait_until_healthy()
        assert "from the flags" in container.execute("leveretctl", "cluster_status")


def test_wrong_configuration_ends_at_once(client: Docker, image: str) -> None:
    done = client.run("run", "--rm", "--network", "none", "--env", "LEVERET_HEARTBEAT=often", image)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("leveret: LEVERET_HEARTBEAT: ")
