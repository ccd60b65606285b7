"""Our documents against those of RabbitMQ 3.10.8, field by field and type by type.

The samples were captured from a live node. What differs is listed here with its reason; a row that explains nothing
any more fails.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.management.comparison import differences, unexplained, unused
from tests.integration.management.scene import VHOST, Traffic, make
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management

SAMPLES: Final = Path(__file__).parent / "samples"

#: What we leave out, and why.
LEFT_OUT: Final = {
    "missing *.cowboy_opts": "options of RabbitMQ's web server, of no use to clients",
    "missing *socket_opts.*": "options of Erlang's sockets",
    "missing user_who_performed_action": "who declared an exchange is not kept",
    "missing [].user_who_performed_action": "the same",
}
#: What we add, and why.
ADDED: Final = {
    "added *effective_arguments": "what is in force: argument, policy and operator policy together",
    "added *dropped": "messages that left the queue other than by being acknowledged, by reason",
    "added *dead_lettered": "of these, what went to the dead-letter exchange",
    "added *refused": "publishes that the queue refused",
    "added *consumer_timeout": "newer clients read it",
    "added *being_drained": "newer clients read it",
    "added oauth_enabled": "newer clients read it",
    "added *memory.metadata_store*": "newer clients read them",
    "added memory.metadata_store*": "newer clients read them",
    "added default_queue_type": "newer clients read it",
    "added cluster_tags": "newer clients read it",
    "added node_tags": "newer clients read it",
    "added is_op_policy_updating_enabled": "newer clients read it",
    "added uptime": "LavinMQ's clients read it, and people look for it",
}
#: Where a type differs, and why.
OTHER_TYPES: Final = {
    "*peer_cert_*: null for string": "RabbitMQ prints null in lists and an empty string in single objects",
    "*ssl_*: null for string": "the same",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with all that the samples show."""
    with LeveretProcess(tmp_path_factory.mktemp("samples")) as process:
        make(Management(process.http_url))
        with Traffic(process.url):
            deadline = time.monotonic() + 20
            while "idle_since" not in get(process, f"queues/{VHOST}/plain"):
                assert time.monotonic() < deadline, "nothing has become idle"
                time.sleep(0.1)
            yield process


def get(process: LeveretProcess, path: str, user: str = "guest:guest") -> Any:
    """A document by its path below /api.

    Args:
        process: The broker.
        path: ``{n}`` stands for the node, ``{c}`` and ``{h}`` for the consumer's connection and channel.
        user: Name and password.
    """
    management = Management(process.http_url.replace("guest:guest", user))
    for mark, find in NAMES.items():
        if mark in path:
            path = path.replace(mark, quote(find(process), safe=""))
    headers = {"Authorization": management.authorization}
    with urllib.request.urlopen(urllib.request.Request(f"{management.base}/api/{path}", headers=headers)) as response:
        return json.load(response)


def _consumer(process: LeveretProcess) -> dict[str, Any]:
    found: dict[str, Any] = get(process, f"consumers/{VHOST}")[0]["channel_details"]
    return found


NAMES: Final[dict[str, Callable[[LeveretProcess], str]]] = {
    "{n}": lambda process: str(get(process, "overview")["node"]),
    "{c}": lambda process: str(_consumer(process)["connection_name"]),
    "{h}": lambda process: str(_consumer(process)["name"]),
    "{p}": lambda process: process.url.rpartition(":")[2],
}

#: Sample file, the key in it that starts so ("" for the whole file), our path, and who asks.
PAIRS: Final = (
    ("queue.classic-idle", "", "queues/mgmt_demo/plain", "guest:guest"),
    ("queue.classic-with-policies", "", "queues/mgmt_demo/orders.new", "guest:guest"),
    ("queue.lazy-at-limit", "", "queues/mgmt_demo/orders.archive", "guest:guest"),
    ("queue.priority", "", "queues/mgmt_demo/prio", "guest:guest"),
    ("queue.quorum", "", "queues/mgmt_demo/qq", "guest:guest"),
    ("queue.exclusive", "", "{exclusive}", "guest:guest"),
    (
        "queue.samples",
        "GET /api/queues/mgmt_demo/orders.new?",
        "queues/mgmt_demo/orders.new?lengths_age=15&lengths_incr=5&msg_rates_age=15&msg_rates_incr=5"
        "&columns=message_stats.publish,message_stats.publish_details,messages,messages_details,name",
        "guest:guest",
    ),
    ("connections", "GET /api/connections", "connections", "guest:guest"),
    ("connections", "GET /api/connections?disable", "connections?disable_stats=true", "guest:guest"),
    ("connections", "GET /api/connections/username", "connections/username/guest", "guest:guest"),
    ("connections", "GET /api/connections/127", "connections/{c}", "guest:guest"),
    ("channels", "GET /api/channels  (", "channels", "guest:guest"),
    ("channels", "GET /api/channels/127", "channels/{h}", "guest:guest"),
    ("consumers", "GET /api/consumers", "consumers", "guest:guest"),
    ("exchanges", "GET /api/exchanges/mgmt_demo", "exchanges/mgmt_demo", "guest:guest"),
    ("exchanges", "GET /api/exchanges/mgmt_demo/orders", "exchanges/mgmt_demo/orders", "guest:guest"),
    ("exchanges", "GET /api/exchanges/mgmt_demo/amq.default", "exchanges/mgmt_demo/amq.default", "guest:guest"),
    ("exchanges", "GET /api/exchanges/mgmt_demo?page", "exchanges/mgmt_demo?page=1&columns=name,type", "guest:guest"),
    ("bindings", "GET /api/bindings/mgmt_demo", "bindings/mgmt_demo", "guest:guest"),
    (
        "bindings",
        "GET /api/bindings/mgmt_demo/e/orders/q/orders.new/",
        "bindings/mgmt_demo/e/orders/q/orders.new/order.new.%2523",
        "guest:guest",
    ),
    ("vhosts", "GET /api/vhosts", "vhosts?sort=messages&sort_reverse=true", "guest:guest"),
    ("vhosts", "GET /api/vhosts/mgmt_demo/permissions", "vhosts/mgmt_demo/permissions", "guest:guest"),
    ("vhosts", "GET /api/vhosts/mgmt_demo/topic", "vhosts/mgmt_demo/topic-permissions", "guest:guest"),
    ("overview", "GET /api/overview  [as guest]", "overview", "guest:guest"),
    ("overview", "GET /api/overview?disable_stats=true", "overview?disable_stats=true", "guest:guest"),
    ("overview", "GET /api/overview  [as mgmt_mgr]", "overview", "mgmt_mgr:demo"),
    ("overview", "GET /api/cluster-name", "cluster-name", "guest:guest"),
    ("overview", "GET /api/extensions", "extensions", "guest:guest"),
    ("nodes", "GET /api/nodes", "nodes", "guest:guest"),
    ("nodes", "GET /api/nodes/peer@localhost/memory", "nodes/{n}/memory", "guest:guest"),
    ("nodes", "GET /api/nodes/peer@localhost/memory/relative", "nodes/{n}/memory/relative", "guest:guest"),
    ("policies-parameters", "GET /api/policies/mgmt_demo", "policies/mgmt_demo", "guest:guest"),
    (
        "policies-parameters",
        "GET /api/operator-policies/mgmt_demo/cap",
        "operator-policies/mgmt_demo/cap",
        "guest:guest",
    ),
    ("policies-parameters", "GET /api/parameters", "parameters", "guest:guest"),
    ("policies-parameters", "GET /api/global-parameters", "global-parameters", "guest:guest"),
    ("policies-parameters", "GET /api/feature-flags", "feature-flags", "guest:guest"),
    ("users-permissions-limits", "GET /api/whoami", "whoami", "guest:guest"),
    ("users-permissions-limits", "GET /api/users", "users", "guest:guest"),
    ("users-permissions-limits", "GET /api/users/mgmt_mgr", "users/mgmt_mgr", "guest:guest"),
    ("users-permissions-limits", "GET /api/permissions", "permissions", "guest:guest"),
    ("users-permissions-limits", "GET /api/topic-permissions", "topic-permissions", "guest:guest"),
    ("users-permissions-limits", "GET /api/user-limits", "user-limits", "guest:guest"),
    ("users-permissions-limits", "GET /api/vhost-limits", "vhost-limits", "guest:guest"),
    ("users-permissions-limits", "GET /api/auth", "auth", "guest:guest"),
    ("users-permissions-limits", "GET /api/auth/attempts", "auth/attempts/{n}", "guest:guest"),
)


def sample(file: str, start: str, node: str = "peer@localhost") -> Any:
    """A sample: the shortest key that starts so, or the whole file; the node gets another name."""
    document = json.loads((SAMPLES / f"{file}.json").read_text("utf-8"))
    found = document[min((key for key in document if key.startswith(start)), key=len)] if start else document
    return json.loads(json.dumps(found).replace("peer@localhost", node))


def our_path(process: LeveretProcess, path: str) -> str:
    if path != "{exclusive}":
        return path
    names = [each["name"] for each in get(process, f"queues/{VHOST}") if each["exclusive"]]
    return f"queues/{VHOST}/{quote(names[0], safe='')}"


@pytest.fixture(scope="module")
def found(broker: LeveretProcess) -> dict[tuple[str, str, str], list[str]]:
    """All differences, by sample and user."""
    node = NAMES["{n}"](broker)
    return {
        (file, start, user): list(differences(sample(file, start, node), get(broker, our_path(broker, path), user)))
        for file, start, path, user in PAIRS
    }


@pytest.mark.parametrize(("file", "start", "user"), [(file, start, user) for file, start, _, user in PAIRS])
def test_every_difference_is_explained(
    found: dict[tuple[str, str, str], list[str]], file: str, start: str, user: str
) -> None:
    assert unexplained(found[file, start, user], (*LEFT_OUT, *ADDED, *OTHER_TYPES)) == []


def test_every_explanation_is_needed(found: dict[tuple[str, str, str], list[str]]) -> None:
    differing = [each for of_sample in found.values() for each in of_sample]
    assert unused(differing, (*LEFT_OUT, *ADDED, *OTHER_TYPES)) == []


def _answers() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((SAMPLES / "health-checks.json").read_text("utf-8"))
    return answers


@pytest.mark.parametrize("request_line", _answers())
def test_health_checks_answer_alike(broker: LeveretProcess, request_line: str) -> None:
    answer = _answers()[request_line]
    path = request_line.removeprefix("GET /api/").replace("5772", "{p}")
    try:
        body = get(broker, path)
        status = 200
    except urllib.error.HTTPError as error:
        with error:
            body, status = json.load(error), error.code
    assert status == answer["status"]
    assert list(differences(answer["body"], body)) == []
