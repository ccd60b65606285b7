"""The classic rabbitmqadmin, RabbitMQ's script for its HTTP API, with all that it can do, and Leveret's of that name.

The former is RabbitMQ's, so it is not here: tests/system-needs.sh gets it, from the path or out of Debian's package.
Leveret's, which the broker serves, does the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

SCRIPT = Path(sys.prefix) / "cache" / "rabbitmqadmin"
NEEDS = Path(__file__).parents[2] / "system-needs.sh"
#: What system-needs.sh returns where the script is not to be had at all.
_NOT_TO_BE_HAD = 3


class Ended(NamedTuple):
    """What a call has printed, and its exit status."""

    out: str
    error: str
    status: int


Run: TypeAlias = Callable[..., Ended]


@pytest.fixture(scope="module", params=["Leveret's", "RabbitMQ's"])
def script(request: pytest.FixtureRequest, broker: LeveretProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script; where RabbitMQ's can be fetched, not having it is a failure."""
    if request.param == "Leveret's":
        path = tmp_path_factory.mktemp("cli") / "rabbitmqadmin"
        with urllib.request.urlopen(f"{Management(broker.http_url).base}/cli/rabbitmqadmin", timeout=120) as served:
            path.write_bytes(served.read())
        return path
    found = subprocess.run(["sh", NEEDS, "rabbitmqadmin", SCRIPT], capture_output=True, text=True, check=False)
    if found.returncode == _NOT_TO_BE_HAD:
        pytest.skip(found.stderr.strip())
    assert found.returncode == 0, found.stderr
    return SCRIPT


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker for the tests of this file."""
    with LeveretProcess(tmp_path_factory.mktemp("leveret")) as process:
        yield process


@pytest.fixture
def run(script: Path, broker: LeveretProcess) -> Run:
    """A function that calls it."""
    port = str(urlsplit(broker.http_url).port)

    def call(*arguments: str, status: int = 0) -> Ended:
        command = [sys.executable, str(script), "--host", "127.0.0.1", "--port", port, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert ended.returncode == status, ended
        return Ended(ended.stdout, ended.stderr, ended.returncode)

    return call


class Admin:
    """It, on a virtual host of the test's own."""

    def __init__(self, run: Run, vhost: str) -> None:
        self._run = run
        self.vhost = vhost

    def say(self, *arguments: str) -> str:
        """Call it; return what it says."""
        return self._run("--vhost", self.vhost, *arguments).out.strip()

    def fail(self, *arguments: str) -> str:
        """Call it to be refused; return why."""
        return self._run("--vhost", self.vhost, *arguments, status=1).error.strip()

    def list(self, *arguments: str) -> Any:
        """List things; return them."""
        return json.loads(self.say("--format", "raw_json", "list", *arguments))


@pytest.fixture
def admin(run: Run, request: pytest.FixtureRequest) -> Iterator[Admin]:
    """It, on a virtual host that is gone after the test."""
    vhost = request.node.originalname
    assert run("declare", "vhost", f"name={vhost}").out == "vhost declared\n"
    yield Admin(run, vhost)
    assert run("delete", "vhost", f"name={vhost}").out == "vhost deleted\n"


def test_overview(run: Run) -> None:
    lines = run("show", "overview").out.splitlines()
    assert [column.strip() for column in lines[1].split("|")[1:-1]] == [
        "rabbitmq_version", "cluster_name", "queue_totals.messages", "object_totals.queues"
    ]  # fmt: skip
    assert lines[3].startswith("| 3.10.8 ")


def test_where_rabbitmq_serves_it(broker: LeveretProcess) -> None:
    with urllib.request.urlopen(f"{Management(broker.http_url).base}/cli/") as page:
        assert (page.status, page.headers.get_content_type()) == (200, "text/html")
        assert b"rabbitmqadmin" in page.read()


def test_queues_and_messages(admin: Admin, tmp_path: Path) -> None:
    assert admin.say("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length":5}') == "queue declared"
    refusal = f"*** inequivalent arg 'durable' for queue 'q' in vhost '{admin.vhost}'"
    assert admin.fail("declare", "queue", "name=q", "durable=false").startswith(refusal)
    assert admin.say("publish", "routing_key=q", "payload=hello") == "Message published"
    assert admin.say("publish", "routing_key=nowhere", "payload=hello") == "Message published but NOT routed"
    properties = 'properties={"delivery_mode":2,"headers":{"a":1}}'
    assert admin.say("publish", "routing_key=q", "payload=again", properties) == "Message published"
    assert admin.list("queues", "name", "messages", "arguments") == [
        {"name": "q", "messages": 2, "arguments": {"x-max-length": 5}}
    ]
    table = admin.say("get", "queue=q").splitlines()
    assert table[1].startswith(
        "| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding |"
    )
    assert [cell.strip() for cell in table[3].split("|")[1:7]] == ["q", "", "1", "hello", "5", "string"]
    got = json.loads(admin.say("-f", "raw_json", "get", "queue=q", "count=2", "ackmode=ack_requeue_false"))
    assert [(each["payload"], each["redelivered"]) for each in got] == [("hello", True), ("again", False)]
    assert got[1]["properties"] == {"delivery_mode": 2, "headers": {"a": 1}}
    admin.say("publish", "routing_key=q", "payload=kept")
    admin.say("get", "queue=q", f"payload_file={tmp_path}/payload")
    assert (tmp_path / "payload").read_text() == "kept"
    assert admin.say("purge", "queue", "name=q") == "queue purged"
    assert admin.say("get", "queue=q") == "No items"
    assert admin.say("delete", "queue", "name=q") == "queue deleted"
    assert admin.fail("delete", "queue", "name=q") == f"*** Not found: /api/queues/{admin.vhost}/q"


def test_exchanges_and_bindings(admin: Admin) -> None:
    assert admin.say("declare", "exchange", "name=x", "type=topic") == "exchange declared"
    admin.say("declare", "queue", "name=q")
    assert admin.say("declare", "binding", "source=x", "destination=q", "routing_key=a.#") == "binding declared"
    admin.say("declare", "binding", "source=x", "destination_type=exchange", "destination=amq.fanout", "routing_key=b")
    assert admin.say("list", "bindings").splitlines() == [
        "+--------+-------------+-------------+",
        "| source | destination | routing_key |",
        "+--------+-------------+-------------+",
        "|        | q           | q           |",
        "| x      | amq.fanout  | b           |",
        "| x      | q           | a.#         |",
        "+--------+-------------+-------------+",
    ]
    assert admin.say("publish", "exchange=x", "routing_key=a.b", "payload=x") == "Message published"
    which = ("source=x", "destination_type=queue", "destination=q", "properties_key=a.%23")
    assert admin.say("delete", "binding", *which) == "binding deleted"
    assert [each["destination"] for each in admin.list("bindings")] == ["q", "amq.fanout"]
    assert admin.say("delete", "exchange", "name=x") == "exchange deleted"
    assert "x" not in [each["name"] for each in admin.list("exchanges", "name")]


def test_users_and_permissions(admin: Admin) -> None:
    assert admin.say("declare", "user", "name=bob", "password=secret", "tags=management") == "user declared"
    grant = (f"vhost={admin.vhost}", "user=bob", "configure=", "write=^q", "read=.*")
    assert admin.say("declare", "permission", *grant) == "permission declared"
    (granted,) = [each for each in admin.list("permissions") if each["user"] == "bob"]
    assert granted == {"user": "bob", "vhost": admin.vhost, "configure": "", "write": "^q", "read": ".*"}
    as_bob = ("--username", "bob", "--password", "secret")
    assert admin.fail(*as_bob, "declare", "queue", "name=q").startswith("*** Access refused: /api/queues/")
    assert admin.say("delete", "permission", f"vhost={admin.vhost}", "user=bob") == "permission deleted"
    assert admin.say("delete", "user", "name=bob") == "user deleted"
    assert admin.fail(*as_bob, "list", "queues").startswith("*** Access refused: ")
    assert [each["name"] for each in admin.list("users", "name")] == ["guest"]


@pytest.mark.parametrize("kind", ["policy", "operator_policy"])
def test_policies(admin: Admin, kind: str) -> None:
    plural = f"{kind.removesuffix('y')}ies"
    definition = 'definition={"max-length":5}'
    assert admin.say("declare", kind, "name=p", "pattern=^q", definition, "priority=3") == f"{kind} declared"
    (policy,) = admin.list(plural)
    assert (policy["definition"], policy["priority"], policy["vhost"]) == ({"max-length": 5}, 3, admin.vhost)
    assert "*** Validation failed" in admin.fail("declare", kind, "name=p", "pattern=^q", 'definition={"no-such":5}')
    assert admin.say("delete", kind, "name=p") == f"{kind} deleted"
    assert admin.say("list", plural) == "No items"


def test_limits_and_parameters(admin: Admin) -> None:
    limit = (f"vhost={admin.vhost}", "name=max-queues")
    assert admin.say("declare", "vhost_limit", *limit, "value=10") == "vhost_limit declared"
    assert admin.list("vhost_limits") == [{"vhost": admin.vhost, "value": {"max-queues": 10}}]
    assert [each["component"] for each in admin.list("parameters")] == ["vhost-limits"]
    assert admin.say("delete", "vhost_limit", *limit) == "vhost_limit deleted"
    refusal = admin.fail("declare", "parameter", "component=nope", "name=a", "value=1")
    assert "component nope not found" in refusal


def test_shovels(admin: Admin) -> None:
    uri = f"amqp:///{admin.vhost}"
    value = {"src-uri": uri, "src-queue": "a", "dest-uri": uri, "dest-queue": "b"}
    where = ("component=shovel", "name=move")
    assert admin.say("declare", "parameter", *where, f"value={json.dumps(value)}") == "parameter declared"
    (shown,) = admin.list("parameters")
    assert shown == {"value": value, "vhost": admin.vhost, "component": "shovel", "name": "move"}
    refusal = admin.fail("declare", "parameter", "component=shovel", "name=x", 'value={"src-queue":"a"}')
    assert refusal == ('*** Validation failed\n\nKey "dest-uri" not found in x\nKey "src-uri" not found in x')
    assert admin.say("delete", "parameter", *where) == "parameter deleted"
    assert admin.fail("delete", "parameter", *where) == f"*** Not found: /api/parameters/shovel/{admin.vhost}/move"
    assert admin.say("list", "parameters") == "No items"


def test_connections(admin: Admin, broker: LeveretProcess) -> None:
    parameters = pika.URLParameters(f"{broker.url}/{admin.vhost}")
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *delivery: None)
    (shown,) = admin.list("connections", "name", "user", "channels")
    assert (shown["user"], shown["channels"]) == ("guest", 1)
    assert [each["name"] for each in admin.list("channels", "name")] == [f"{shown['name']} (1)"]
    assert [each["queue"]["name"] for each in admin.list("consumers")] == ["q"]
    assert admin.say("close", "connection", f"name={shown['name']}") == "connection closed"
    with pytest.raises(ConnectionClosedByBroker, match="Closed via management plugin"):
        connection.process_data_events(time_limit=10)
    assert admin.fail("close", "connection", "name=nope") == "*** Not found: /api/connections/nope"


def test_definitions(admin: Admin, run: Run, tmp_path: Path) -> None:
    admin.say("declare", "queue", "name=q", "durable=true", 'arguments={"x-max-length":5}')
    admin.say("declare", "binding", "source=amq.direct", "destination=q", "routing_key=k")
    admin.say("declare", "policy", "name=p", "pattern=^q", 'definition={"max-length":1}')
    own, whole = tmp_path / "own.json", tmp_path / "whole.json"
    said = 'Exported definitions for 127.0.0.1 to "{}"'
    assert admin.say("export", str(own)) == said.format(own)
    exported = json.loads(own.read_text())
    assert [queue["arguments"] for queue in exported["queues"]] == [{"x-max-length": 5}]
    for kind in ("queue", "policy"):
        admin.say("delete", kind, f"name={kind[0]}")
    assert admin.say("import", str(own)).startswith('Uploaded definitions from "127.0.0.1"')
    assert [each["name"] for each in admin.list("queues", "name")] == ["q"]
    assert len(admin.list("bindings")) == 2
    # For all of the broker it wants no virtual host to be named.
    run("export", str(whole))
    assert admin.vhost in [each["name"] for each in json.loads(whole.read_text())["vhosts"]]
    run("import", str(whole))
    assert [each["name"] for each in admin.list("policies")] == ["p"]


def test_formats(admin: Admin) -> None:
    for name in ("q1", "q2"):
        admin.say("declare", "queue", f"name={name}")
    columns = ("list", "queues", "name", "messages")
    assert admin.say(*columns).splitlines() == [
        "+------+----------+",
        "| name | messages |",
        "+------+----------+",
        "| q1   | 0        |",
        "| q2   | 0        |",
        "+------+----------+",
    ]
    assert admin.say("-f", "tsv", *columns) == "name\tmessages\nq1\t0\nq2\t0"
    assert admin.say("-f", "kvp", *columns) == 'name="q1" messages="0"\nname="q2" messages="0"'
    assert admin.say("-f", "bash", "list", "queues", "name") == "q1 q2"
    assert admin.say("-f", "long", *columns).count("messages: 0") == 2
    assert json.loads(admin.say("-f", "pretty_json", *columns))[0] == {"name": "q1", "messages": 0}
    backwards = admin.list("queues", "name", "--sort", "name", "--sort-reverse")
    assert [each["name"] for each in backwards] == ["q2", "q1"]


@pytest.mark.parametrize("kind", ["nodes", "vhosts", "users", "channels", "connections", "consumers", "exchanges"])
def test_a_list_of_everything(admin: Admin, kind: str) -> None:
    assert isinstance(admin.list(kind), list)
