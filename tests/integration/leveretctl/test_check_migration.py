"""What `leveretctl check_migration` says of definitions and of a running broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.integration.certificates import Authority
from tests.integration.program import running
from tests.integration.public_definitions import DEFINITIONS
from tests.support.leveret_process import LeveretProcess
from tests.support.leveretctl import Leveretctl
from tests.support.wire import Channel

#: No broker of ours: the command needs none.
OFFLINE = Leveretctl("http://127.0.0.1:1")


def run_check(file: Path, version: str, sections: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows about a document."""
    file.write_text(json.dumps({**({"rabbitmq_version": version} if version else {}), **sections}))
    ran = OFFLINE("check_migration", "--from", str(file), "--formatter", "json")
    assert not ran.err
    found = json.loads(ran.out)
    assert ran.status == int(found["counts"]["not supported"] > 0)
    return list(found["rows"])


def dashed(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in given.items()}


def queue(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": dashed(arguments)}


def exchange(name: str, kind: str, **arguments: Any) -> dict[str, Any]:
    return {**queue(name, **arguments), "type": kind, "internal": False}


def policy(name: str, priority: int = 0, pattern: str = "^nothing", **definition: Any) -> dict[str, Any]:
    fields = {"vhost": "/", "pattern": pattern, "apply-to": "queues", "priority": priority}
    return {"name": name, "definition": dashed(definition), **fields}


def parameter(component: str) -> dict[str, Any]:
    return {"vhost": "/", "component": component, "name": "p", "value": {"uri": "amqp://u:hidden@h"}}


def binding(source: str, destination: str, **arguments: Any) -> dict[str, Any]:
    ends = {"source": source, "vhost": "/", "destination": destination, "destination_type": "queue"}
    return {**ends, "routing_key": "k", "arguments": dashed(arguments)}


def user(name: str, **given: str) -> dict[str, Any]:
    return {"name": name, "password_hash": "", "tags": "", **given}


# Section, entry, verdict, and a part of the text.
ENTRIES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "limited": ("queues", queue("limited", x_max_length=5), "fine", "as in RabbitMQ"),
    "refused": ("queues", queue("refused", x_max_length=-1), "not supported", "x-max-length': {value_negative,-1}"),
    "quorum": ("queues", queue("quorum", x_queue_type="quorum"), "differs", "come back 21 times"),
    "stream": ("queues", queue("stream", x_queue_type="stream"), "differs", "no stream protocol"),
    "transient": ("queues", {**queue("transient"), "durable": False}, "fine", "4.3 refuses it"),
    "ours": ("queues", queue("ours", x_redelivery_limit=3), "differs", "has a meaning here"),
    "locator": ("queues", queue("locator", x_queue_master_locator="random"), "fine", "does nothing"),
    "mirrored": ("policies", policy("mirrored", ha_mode="all"), "differs", "not mirrored"),
    "federated": (
        *("policies", policy("federated", max_length=3, federation_upstream_set="all")),
        *("not supported", "no federation"),
    ),
    "wrong": ("policies", policy("wrong", max_length="x"), "not supported", "is refused"),
    "federation-upstream p": ("parameters", parameter("federation-upstream"), "not supported", "no federation"),
    "mine p": ("parameters", parameter("mine"), "not supported", "'mine'"),
    "hash": ("exchanges", exchange("hash", "x-consistent-hash"), "differs", "another hash"),
    "delayed": (
        *("exchanges", exchange("delayed", "x-delayed-message", x_delayed_type="direct")),
        *("differs", "those that wait in RabbitMQ stay"),
    ),
    "jms": ("exchanges", exchange("jms", "x-jms-topic"), "not supported", "JMS"),
    "other": ("exchanges", exchange("other", "x-zz"), "not supported", "'x-zz'"),
    "amq.direct -> stream": (
        *("bindings", binding("amq.direct", "stream", x_stream_partition_order=0)),
        *("not supported", "super streams"),
    ),
    "nowhere -> stream": ("bindings", binding("nowhere", "stream"), "fine", "left out"),
    "hashed": ("users", user("hashed", password_hash="eA==", hashing_algorithm="h"), "not supported", "algorithm 'h'"),
    "bare": ("users", user("bare"), "fine", "certificate"),
}


@pytest.fixture(scope="module")
def all_rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    sections: dict[str, list[dict[str, Any]]] = {}
    for section, entry, _, _ in ENTRIES.values():
        sections.setdefault(section, []).append(entry)
    return run_check(tmp_path_factory.mktemp("all") / "definitions.json", "3.13.7", sections)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry(all_rows: list[dict[str, Any]], name: str) -> None:
    section, _, verdict, text = ENTRIES[name]
    rows = [row for row in all_rows if row["area"] == section and name in row["names"]]
    assert [row["verdict"] for row in rows if text in row["what"]] == [verdict]
    assert {row["verdict"] for row in rows} == {verdict}, "no other row says otherwise"


@pytest.mark.parametrize("name", DEFINITIONS)
def test_shapes_of_public_definitions(tmp_path: Path, name: str) -> None:
    rows = run_check(tmp_path / "definitions.json", "", DEFINITIONS[name])
    found = {each for row in rows for each in row["names"] if row["verdict"] == "not supported"}
    federated = {"shop: federation-upstream far-files", "shop: far", "shop: far-ids"}
    assert found == (federated if name == "federation" else set())


def test_rabbitmq_4_has_the_delivery_limit_too(tmp_path: Path) -> None:
    rows = run_check(tmp_path / "definitions.json", "4.1.4", {"queues": [queue("q", x_queue_type="quorum")]})
    whats = [row["what"] for row in rows if row["area"] == "queues"]
    assert not any("21 times" in what for what in whats)
    assert any("unless an option asks for those of 4.3" in what for what in whats)


@pytest.mark.parametrize(("top", "found"), [(7, []), (0, ["differs"])])
def test_equal_priorities(tmp_path: Path, top: int, found: list[str]) -> None:
    policies = [policy("b", 0, "^q", max_length=3), policy("a", top, "^q", max_length=5)]
    rows = run_check(tmp_path / "definitions.json", "3.13.7", {"queues": [queue("q")], "policies": policies})
    about = [row for row in rows if "equal priority" in row["what"]]
    assert [row["verdict"] for row in about] == found
    assert all(row["names"] == ["q"] and "'a' counts" in row["what"] for row in about)


def test_one_row_for_many(tmp_path: Path) -> None:
    """Names of virtual hosts are only shown where there are others than /, and a password never."""
    queues = [*(queue(f"q{number}") for number in range(5)), {**queue("far"), "vhost": "other"}]
    file = tmp_path / "definitions.json"
    file.write_text("\ufeff" + json.dumps({"queues": queues, "parameters": [parameter("mine")]}))
    ran = OFFLINE("check_migration", f"--from={file}", "-q")
    assert (ran.status, ran.err) == (1, "")
    assert ran.out.splitlines() == [
        "verdict\tarea\tcount\tnames\twhat\tadvice",
        "not supported\tparameters\t1\tmine p\tcomponent 'mine' means nothing here; left out\tdocs/compatibility.md",
        "fine\tvhosts\t2\t/, other\tas in RabbitMQ\t",
        "fine\tqueues\t6\tq0, q1, q2 and 3 more\tas in RabbitMQ\t",
        "1 not supported, 0 differs, 2 fine",
    ]


def test_a_running_broker(leveret: LeveretProcess, ctl: Leveretctl, vhost: str, channel: Channel) -> None:
    channel.queue_declare("own", exclusive=True)
    channel.qos(5, global_=True)
    ctl.output("set_policy", "-p", vhost, "p", "^q", '{"ha-mode":"all"}')
    ran = OFFLINE("check_migration", "--from", leveret.http_url, "--formatter", "json")
    rows = json.loads(ran.out)["rows"]
    names = {
        row["area"]: row["names"] for row in rows if f"{vhost}: p" in row["names"] or f"{vhost}: own" in row["names"]
    }
    assert names == {"policies": [f"{vhost}: p"], "queues": [f"{vhost}: own"]}
    assert [row["verdict"] for row in rows if "speaks AMQP 0-9-1" in row["what"]] == ["fine"]
    assert [row["verdict"] for row in rows if "global QoS" in row["what"]] == ["fine"]
    assert ran.status == 0


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server", "localhost")
    options = [
        *("--management-tls-port", "0", "--set", f"ssl_options.certfile={pair.certificate}"),
        *("--set", f"ssl_options.keyfile={pair.key}"),
    ]
    with running(tmp_path, *options) as broker:
        place = f"https://guest:guest@localhost:{broker.addresses['management-tls'].rsplit(':', 1)[1]}"
        assert "is not trusted" in OFFLINE("check_migration", "--from", place).err
        assert OFFLINE("check_migration", "--from", place, "--cacert", str(authority.file)).status == 0


BAD: dict[str, tuple[str | None, int, str]] = {
    "nothing": ("", 64, "--from is missing"),
    "no file": ("/nowhere/definitions.json", 65, "Could not read /nowhere/definitions.json: No such file"),
    "no broker": ("http://u:secret@127.0.0.1:1", 69, "127.0.0.1:1 cannot be reached"),
    "no port": ("http://u:secret@h:x", 64, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_place(name: str) -> None:
    place, status, text = BAD[name]
    ran = OFFLINE("check_migration", *(["--from", place] if place else []))
    assert (ran.status, text in ran.err) == (status, True), ran
    assert "secret" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("content", "text"),
    [("{", "is not JSON"), ("[]", "it is not a JSON object"), ('{"queues": 5}', "'queues' is not a list of objects")],
)
def test_a_wrong_file(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(content)
    ran = OFFLINE("check_migration", "--from", str(file))
    assert (ran.status, text in ran.err) == (65, True), ran


def test_a_user_who_may_not(leveret: LeveretProcess, ctl: Leveretctl) -> None:
    ctl.output("add_user", "plain", "secret")
    place = leveret.http_url.replace("guest:guest", "plain:secret")
    if "@" not in place:
        place = place.replace("://", "://plain:secret@")
    ran = OFFLINE("check_migration", "--from", place)
    assert (ran.status, "needs the tag administrator" in ran.err) == (69, True), ran
