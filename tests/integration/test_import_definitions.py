"""Definitions that are imported at the start, as RabbitMQ does it, and what is said of those that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest

from leveret import LeveretThread
from tests.integration.program import run, running
from tests.support.management import Management

USER = {"name": "ann", "password": "secret", "tags": ["administrator"]}
PERMISSION = {"user": "ann", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}
QUEUE = {"name": "orders", "vhost": "shop", "durable": True, "auto_delete": False, "arguments": {}}
DEFINITIONS = {"users": [USER], "vhosts": [{"name": "shop"}], "permissions": [PERMISSION], "queues": [QUEUE]}


def start(tmp_path: Path, document: Any, **options: object) -> LeveretThread:
    """A broker that imports a document, on a data directory that is kept."""
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(document))
    given = {"load_definitions": str(file), "default_user": "root", **options}
    return LeveretThread(tmp_path / "data", options={name.replace("__", "."): value for name, value in given.items()})


def names(broker: LeveretThread, what: str, user: str = "ann:secret") -> list[str]:
    url = f"http://{user}@{broker.http_url.rpartition('@')[2]}"
    return [each["name"] for each in Management(url).request("GET", what)]


def test_users_and_vhosts_of_the_file_come_instead_of_the_defaults(tmp_path: Path) -> None:
    """As in RabbitMQ: a guest whom nobody has asked for would be a hole."""
    with start(tmp_path, DEFINITIONS) as broker:
        assert names(broker, "users") == ["ann"]
        assert names(broker, "vhosts") == ["shop"]
        assert names(broker, "queues") == ["orders"]


def test_a_file_without_users_leaves_the_default_user(tmp_path: Path) -> None:
    with start(tmp_path, {"vhosts": [{"name": "shop"}], "queues": [QUEUE]}) as broker:
        assert names(broker, "users", "root:guest") == ["root"]
        assert names(broker, "vhosts", "root:guest") == ["/", "shop"]
    with start(tmp_path, {}) as broker:
        assert names(broker, "queues", "root:guest") == ["orders"], "what was imported once stays"


def test_the_file_is_imported_at_every_start(tmp_path: Path) -> None:
    with start(tmp_path, DEFINITIONS) as broker:
        _delete_queue(broker)
        assert names(broker, "queues") == []
    with start(tmp_path, DEFINITIONS) as broker:
        assert names(broker, "queues") == ["orders"]


def test_an_unchanged_file_may_be_passed_over(tmp_path: Path) -> None:
    with start(tmp_path, DEFINITIONS, skip_unchanged_definitions=True) as broker:
        _delete_queue(broker)
    with start(tmp_path, DEFINITIONS, skip_unchanged_definitions=True) as broker:
        assert names(broker, "queues") == []
    with start(tmp_path, {**DEFINITIONS, "policies": []}, skip_unchanged_definitions=True) as broker:
        assert names(broker, "queues") == ["orders"]


def _delete_queue(broker: LeveretThread) -> None:
    address = broker.http_url.rpartition("@")[2]
    Management(f"http://ann:secret@{address}").request("DELETE", "queues", "shop", "orders")


def test_everything_is_there_before_the_first_connection(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(DEFINITIONS))
    with running(tmp_path, "--import-definitions", str(file)) as program:
        parameters = pika.URLParameters(f"amqp://ann:secret@{program.addresses['amqp']}/shop")
        with pika.BlockingConnection(parameters) as connection:
            connection.channel().queue_declare("orders", passive=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"users":\n  [}', ":2:4: is not JSON: Expecting value"),
        ("[]", ": must be a JSON object, as RabbitMQ exports it, not a list"),
        (b"\xff", ": is not JSON"),
        ('{"queues": [{"name": "q", "vhost": "none"}]}', ": queues: {'name': 'q', 'vhost': 'none'}: there is no vhost"),
        ("[" * 100_000, ": is not JSON: nested too deep"),
        (json.dumps({"queues": [{"name": "q" * 256, "vhost": "/"}]}), ": queues: 'name' must have at most 255 bytes"),
        ('{"queues": [{"name": "q", "vhost": "/", "arguments": {"x": 1e999}}]}', ": is not JSON: 1e999 is too large"),
        (
            '{"queues": [{"name": "q", "vhost": "/", "arguments": {"x": 9223372036854775808}}]}',
            "'arguments': 9223372036854775808 is too large, it takes more than 64 bits",
        ),
        ('{"users": [{"name": "ann", "tags": 1}]}', ": users: 'ann': 'tags' must be a list of strings"),
        (json.dumps({"queues": [{**QUEUE, "vhost": "/", "arguments": {"x-max-length": "many"}}]}), "x-max-length"),
        ('{"exchanges": [{"name": "x", "vhost": "/", "type": "rainbow"}]}', ": exchanges: "),
        ('{"users": [{"name": "u", "password_hash": "?"}]}', ": users: 'u'"),
        (
            '{"policies": [{"name": "p", "vhost": "/", "pattern": "q", "definition": {"max-length": -1}}]}',
            "-1 is not a valid maximum length",
        ),
        ('{"queues": 1}', ": queues: must be a list"),
        (None, "No such file or directory"),
    ],
)
def test_what_cannot_be_imported(tmp_path: Path, content: str | bytes | None, said: str) -> None:
    file = tmp_path / "definitions.json"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
    refused = run(*ports, "--data-dir", str(tmp_path / "data"), "--import-definitions", str(file))
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused.stderr
    assert refused.stderr.startswith("leveret: ")
    assert str(file) in refused.stderr
    assert said in refused.stderr


@pytest.mark.parametrize(
    "content", ["load_definitions: missing.json", "policies: [{name: p}]", "definitions: {users: [5]}"]
)
def test_check_config_says_what_the_start_says(tmp_path: Path, content: str) -> None:
    config = tmp_path / "leveret.yaml"
    config.write_text(f"{content}\nport: 0\nmanagement_port: 0\nprometheus_port: 0\ndata_dir: {tmp_path / 'data'}\n")
    started = run("--config", str(config))
    checked = run("check-config", "--config", str(config))
    assert (checked.returncode, checked.stderr) == (started.returncode, started.stderr)
    assert started.stderr.startswith(f"leveret: {config}:1: "), started.stderr
