"""Our documents against those of RabbitMQ 3.10.8, field by field and type by type.

The samples were captured from a live node. Every one that is here is compared, or listed with the reason why not; what
differs is listed with its reason; a row that explains nothing any more fails. Metrics are compared in
test_prometheus.py; what RabbitMQ answers to changes and mistakes is in the conformance tests.
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
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
    "added *refused_told": "of these, those whose publisher was told",
    "added *dead_letters_lost": "dead letters that no queue has taken, by reason",
    "added *loss_stats": "all of these, with rates and samples",
    "added *fill": "how full the queue is, against the limits in force, and who has set them",
    "added *storage": "what is on disk only, and the files",
    "added *delayed*": "messages that wait for their redelivery, as newer releases show them, and their size",
    "added *deduplicated": "duplicates that the queue did not take",
    "added *oldest_*_age": "how long messages have been in the queue",
    "added *user_provided_name": "what the client calls the channel's connection",
    "added *consumer_timeout": "newer clients read it",
    "added delivery_limit": "newer releases show it",
    "added release": "the release of RabbitMQ whose rules the queue follows",
    "added *being_drained": "newer clients read it",
    "added oauth_enabled": "newer clients read it",
    "added *memory.metadata_store*": "newer clients read them",
    "added memory.metadata_store*": "newer clients read them",
    "added default_queue_type": "newer clients read it",
    "added is_op_policy_updating_enabled": "newer clients read it",
    "added vhosts[].description": "newer releases export them",
    "added vhosts[].tags": "newer releases export them",
    "added vhosts[].metadata": "the default queue type is read there",
    "added queues[].type": "newer releases export it, so that an import does not take the default queue type",
    "added [].node": "RabbitMQ forgets it for quorum queues without statistics",
    "added uptime": "LavinMQ's clients read it, and people look for it",
}
#: What depends on the moment, and why.
NOW_AND_THEN: Final = {
    "added *idle_since": "it is there while nothing happens",
    "missing *idle_since": "the same",
}
#: Where a type differs, and why.
OTHER_TYPES: Final = {
    "*peer_cert_*: null for string": "RabbitMQ prints null in lists and an empty string in single objects",
    "*ssl_*: null for string": "the same",
    "[].exclusive: boolean for null": "RabbitMQ prints null for quorum queues without statistics",
    "* queues[].arguments.*": "the sample has been cut to two queues, which are others than our first ones",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeveretProcess]:
    """A broker with all that the samples show."""
    with LeveretProcess(tmp_path_factory.mktemp("samples")) as process:
        make(Management(process.http_url))
        with Traffic(process.url):
            deadline = time.monotonic() + 180
            while not _is_sampled(process):
                assert time.monotonic() < deadline, "nothing has become idle, or nothing was written to disk"
                time.sleep(0.1)
            yield process


def _is_sampled(process: LeveretProcess) -> bool:
    """Tell whether a queue has become idle, and the last sample has seen writes to disk."""
    has_written = "disk_writes" in get(process, "overview").get("message_stats", {})
    return has_written and "idle_since" in get(process, f"queues/{VHOST}/plain")


def get(process: LeveretProcess, path: str, user: str = "guest:guest") -> Any:
    """A document by its path below /api."""
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

#: Samples of a single object, and our path.
WHOLE: Final = {
    "queue.classic-idle": "queues/mgmt_demo/plain",
    "queue.classic-with-policies": "queues/mgmt_demo/orders.new",
    "queue.exclusive": "{exclusive}",
    "queue.lazy-at-limit": "queues/mgmt_demo/orders.archive",
    "queue.priority": "queues/mgmt_demo/prio",
    "queue.quorum": "queues/mgmt_demo/qq",
}
#: What the paths of the others become.
RENAMED: Final = (
    (re.compile(r"127\.0\.0\.1%3A39340[^/]*%281%29"), "{h}"),
    (re.compile(r"127\.0\.0\.1%3A393[34]0[^/?]*"), "{c}"),
    (re.compile("peer@localhost"), "{n}"),
    (re.compile("connections/username/mgmt_admin"), "connections/username/guest"),
    # Those of the sample have been cut.
    (re.compile("^(overview|queues/mgmt_demo/orders.new)[?](.*_age=.*)$"), r"\1?\2&columns={columns}"),
    # The one that has seen traffic comes first; of the channels, the publisher's, whatever the ports in their names.
    (re.compile("^vhosts$"), "vhosts?sort=messages&sort_reverse=true"),
    (re.compile("^channels$"), "channels?sort=message_stats.publish&sort_reverse=true"),
)
#: Samples that we do not compare ours with, and why.
NOT_COMPARED: Final = {
    ("queue.stream", ""): "there are no streams yet",
    (
        "channels",
        "GET /api/connections/127.0.0.1%3A39330%20-%3E%20127.0.0.1%3A5772/channels  (same objects, cut here)",
    ): "it has been cut; the objects are those of the other samples",
    ("queue.just-declared", "GET one, at once after PUT (no statistics yet)"): "ours are complete at once",
    ("queue.just-declared", "same queue in the list"): "the same",
}


class Sample(NamedTuple):
    """A sample: its file, its key there ("" for the whole file), our path, and who asks."""

    file: str
    key: str
    path: str
    user: str


def _samples() -> Iterator[Sample]:
    """All samples there are, but for those of health checks, which have a test of their own."""
    for file in sorted(SAMPLES.glob("*.json")):
        name, document = file.stem, json.loads(file.read_text("utf-8"))
        if name == "health-checks":
            continue
        if name in WHOLE or (name, "") in NOT_COMPARED:
            yield Sample(name, "", WHOLE.get(name, ""), "guest:guest")
            continue
        for key in document:
            path = key.removeprefix("GET /api/").split("  ")[0]
            for pattern, replacement in RENAMED:
                path = pattern.sub(replacement, path)
            user = "mgmt_mgr:demo" if "mgmt_mgr]" in key else "guest:guest"
            yield Sample(name, key, path.replace("{columns}", COLUMNS.get(name, "")), user)


#: The fields that were left in samples that have been cut.
COLUMNS: Final = {
    "overview": "message_stats.publish,message_stats.publish_details,queue_totals",
    "queue.samples": "message_stats.publish,message_stats.publish_details,messages,messages_details,name",
}
COMPARED: Final = [each for each in _samples() if (each.file, each.key) not in NOT_COMPARED]


def sample(file: str, key: str, node: str = "peer@localhost") -> Any:
    """What a sample has; the node gets another name."""
    document = json.loads((SAMPLES / f"{file}.json").read_text("utf-8"))
    return json.loads(json.dumps(document[key] if key else document).replace("peer@localhost", node))


def our_path(process: LeveretProcess, path: str) -> str:
    if path != "{exclusive}":
        return path
    names = [each["name"] for each in get(process, f"queues/{VHOST}") if each["exclusive"]]
    return f"queues/{VHOST}/{quote(names[0], safe='')}"


@pytest.fixture(scope="module")
def found(broker: LeveretProcess) -> dict[Sample, list[str]]:
    """All differences, by sample."""
    node = NAMES["{n}"](broker)
    return {
        each: list(differences(sample(each.file, each.key, node), get(broker, our_path(broker, each.path), each.user)))
        for each in COMPARED
    }


@pytest.mark.parametrize("compared", COMPARED, ids=lambda each: f"{each.file}: {each.key}")
def test_every_difference_is_explained(found: dict[Sample, list[str]], compared: Sample) -> None:
    assert unexplained(found[compared], (*LEFT_OUT, *ADDED, *NOW_AND_THEN, *OTHER_TYPES)) == []


def test_every_explanation_is_needed(found: dict[Sample, list[str]]) -> None:
    differing = [each for of_sample in found.values() for each in of_sample]
    assert unused(differing, (*LEFT_OUT, *ADDED, *OTHER_TYPES)) == []
    assert set(NOT_COMPARED) <= {(each.file, each.key) for each in _samples()}


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
