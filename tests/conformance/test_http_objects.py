"""Rules 45.1 to 45.13: queues, exchanges, bindings, connections, channels and consumers as objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.conformance.fixtures import Poll
from tests.conformance.http_api import path
from tests.conformance.http_scene import Scene
from tests.support.management import Management

NAME = ("connection_name", "S", b"demo")


@pytest.fixture(scope="module")
def scene(management: Management, broker_url: str, poll: Poll) -> Iterator[Scene]:
    """A virtual host with some of everything."""
    with Scene(management, broker_url) as made:
        connection = made.connect(client_properties=[NAME])
        channel = connection.channel()
        channel.exchange_declare("topic", "topic", durable=True, arguments=[("alternate-exchange", "S", b"other")])
        channel.exchange_declare("inner", "fanout", internal=True, auto_delete=True)
        channel.queue_declare("plain", durable=True)
        channel.queue_declare(
            "limited", durable=True, arguments=[("x-max-length", "l", 100), ("x-overflow", "S", b"reject-publish")]
        )
        channel.queue_declare("levels", arguments=[("x-max-priority", "l", 2)])
        channel.queue_declare("active", arguments=[("x-single-active-consumer", "t", True)])
        channel.queue_declare("own", exclusive=True)
        channel.queue_declare("quorum", durable=True, arguments=[("x-queue-type", "S", b"quorum")])
        channel.queue_bind("plain", "topic", "a b/c~d.#")
        channel.queue_bind("plain", "topic", "")
        channel.queue_bind("plain", "topic", "~x")
        channel.queue_bind("plain", "amq.headers", "", arguments=[("kind", "S", b"a"), ("x-match", "S", b"all")])
        channel.exchange_bind("inner", "topic", "e2e")
        policy = {"pattern": "^(limited|plain)$", "definition": {"max-length": 50, "queue-mode": "lazy"}, "priority": 1}
        assert made.api.ask("PUT", path("policies", made.vhost, "user"), {**policy, "apply-to": "queues"}).status == 201
        operator = {"pattern": "^limited$", "definition": {"max-length": 20}, "apply-to": "queues"}
        assert made.api.ask("PUT", path("operator-policies", made.vhost, "operator"), operator).status == 201
        alternate = {"pattern": "^topic$", "definition": {"alternate-exchange": "x"}, "apply-to": "exchanges"}
        assert made.api.ask("PUT", path("policies", made.vhost, "exchanges"), alternate).status == 201
        channel.qos(7)
        channel.consume("active", "first", arguments=[("x-priority", "l", 3)])
        channel.consume("active", "second", no_ack=True)
        channel.consume("own", "only", exclusive=True)
        for priority in (0, 1, 1, 9):
            channel.publish("", "levels", b"x", properties={"priority": priority, "timestamp": 1_700_000_000})
        poll(lambda: made.get("queues/{v}/levels").document.get("messages") == 4)
        poll(lambda: len(made.get("consumers/{v}").document) == 3)
        poll(lambda: queue(made, "own").get("exclusive_consumer_tag") == "only")
        poll(lambda: queue(made, "active").get("single_active_consumer_tag") == "first")
        poll(lambda: queue(made, "limited").get("operator_policy") == "operator")
        poll(lambda: "state" in queue(made, "quorum"))
        yield made


def queue(scene: Scene, name: str) -> dict[str, Any]:
    found: dict[str, Any] = scene.get(f"queues/{{v}}/{name}").document
    return found


def connection_of(scene: Scene) -> dict[str, Any]:
    documents = scene.get("connections").document
    return next(each for each in documents if each["vhost"] == scene.vhost)


def part(document: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    return {key: document.get(key, ...) for key in wanted}


def test_45_1_a_queue_with_policies(scene: Scene) -> None:
    wanted = {
        "name": "limited",
        "vhost": scene.vhost,
        "type": "classic",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-length": 100, "x-overflow": "reject-publish"},
        "state": "running",
        "policy": "user",
        "operator_policy": "operator",
        "effective_policy_definition": {"max-length": 20, "queue-mode": "lazy"},
        "consumers": 0,
        "consumer_details": [],
        "single_active_consumer_tag": None,
        "exclusive_consumer_tag": None,
        "head_message_timestamp": None,
        "deliveries": [],
        "incoming": [],
    }
    document = queue(scene, "limited")
    assert part(document, wanted) == wanted
    assert document["backing_queue_status"]["mode"] == "lazy"


@pytest.mark.departs("none")
def test_45_1_what_is_in_force(scene: Scene) -> None:
    in_force = {"x-max-length": 20, "x-overflow": "reject-publish", "x-queue-mode": "lazy"}
    assert queue(scene, "limited")["effective_arguments"] == in_force
    assert queue(scene, "plain")["effective_arguments"] == {"x-max-length": 50, "x-queue-mode": "lazy"}
    assert queue(scene, "levels")["effective_arguments"] == {}


def test_45_1_list_entries_lack_details(scene: Scene) -> None:
    documents = scene.get("queues/{v}").document
    assert [each["name"] for each in documents] == ["active", "levels", "limited", "own", "plain", "quorum"]
    assert not any({"consumer_details", "deliveries", "incoming"} & set(each) for each in documents)


def test_45_1_a_priority_queue(scene: Scene) -> None:
    document = queue(scene, "levels")
    assert document["backing_queue_status"]["priority_lengths"] == {"0": 1, "1": 2, "2": 1}
    assert document["head_message_timestamp"] == 1_700_000_000


def test_45_1_an_exclusive_queue(scene: Scene) -> None:
    document = queue(scene, "own")
    connection = connection_of(scene)
    assert (document["exclusive"], document["exclusive_consumer_tag"]) == (True, "only")
    assert document["owner_pid_details"] == {key: connection[key] for key in ("name", "peer_host", "peer_port")}


def test_45_1_a_quorum_queue(scene: Scene) -> None:
    document = queue(scene, "quorum")
    node = document["node"]
    wanted = {
        "type": "quorum",
        "leader": node,
        "members": [node],
        "online": [node],
        "messages_dlx": 0,
        "message_bytes_dlx": 0,
        "single_active_consumer_ctag": None,
    }
    assert part(document, wanted) == wanted
    assert set(document["open_files"]) == {node}
    assert not {"backing_queue_status", "head_message_timestamp", "exclusive_consumer_tag"} & set(document)


def test_45_7_an_exchange(scene: Scene) -> None:
    wanted = {
        "name": "topic",
        "vhost": scene.vhost,
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": "other"},
        "policy": "exchanges",
        "incoming": [],
        "outgoing": [],
    }
    assert part(scene.get("exchanges/{v}/topic").document, wanted) == wanted
    inner = scene.get("exchanges/{v}/inner").document
    assert (inner["internal"], inner["auto_delete"], inner["durable"], "policy" in inner) == (True, True, False, False)


def test_45_7_exchanges_of_a_virtual_host(scene: Scene) -> None:
    documents = scene.get("exchanges/{v}").document
    names = ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic"]
    assert [each["name"] for each in documents] == [*names, "inner", "topic"]


def test_45_9_bindings_between_two(scene: Scene) -> None:
    documents = scene.get("bindings/{v}/e/topic/q/plain").document
    assert [(each["routing_key"], each["properties_key"]) for each in documents] == [
        ("", "~"),
        ("a b/c~d.#", "a+b%2Fc%7Ed.%23"),
        ("~x", "%7Ex"),
    ]
    assert documents[0] == {
        "source": "topic",
        "vhost": scene.vhost,
        "destination": "plain",
        "destination_type": "queue",
        "routing_key": "",
        "arguments": {},
        "properties_key": "~",
    }


def test_45_9_a_binding_with_arguments(scene: Scene) -> None:
    [document] = scene.get("bindings/{v}/e/amq.headers/q/plain").document
    assert document["arguments"] == {"kind": "a", "x-match": "all"}
    assert (document["properties_key"][0], len(document["properties_key"])) == ("~", 7)
    assert scene.get(f"bindings/{{v}}/e/amq.headers/q/plain/{document['properties_key']}").document == document


@pytest.mark.parametrize("props", ["~", "a%2Bb%252Fc%257Ed.%2523", "%257Ex"])
def test_45_9_a_binding_by_its_properties_key(scene: Scene, props: str) -> None:
    assert scene.get(f"bindings/{{v}}/e/topic/q/plain/{props}").status == 200


@pytest.mark.departs("none")
@pytest.mark.parametrize("props", ["a+b%2Fc%7Ed.%23", "%7Ex"])
def test_45_8_a_properties_key_as_it_is(scene: Scene, props: str) -> None:
    assert scene.get(f"bindings/{{v}}/e/topic/q/plain/{props}").status == 200


def test_45_9_every_queue_is_bound_to_the_default_exchange(scene: Scene) -> None:
    bindings = scene.get("exchanges/{v}/amq.default/bindings/source").document
    assert [each["destination"] for each in bindings] == ["active", "levels", "limited", "own", "plain", "quorum"]
    [binding] = scene.get("bindings/{v}/e/amq.default/q/levels").document
    assert (binding["source"], binding["routing_key"], binding["properties_key"]) == ("", "levels", "levels")


def test_45_9_bindings_of_a_queue_and_of_exchanges(scene: Scene) -> None:
    def keys(path: str) -> list[tuple[str, str]]:
        return [(each["source"], each["routing_key"]) for each in scene.get(path).document]

    of_topic = [("topic", ""), ("topic", "a b/c~d.#"), ("topic", "~x")]
    assert keys("queues/{v}/plain/bindings") == [("", "plain"), ("amq.headers", ""), *of_topic]
    assert keys("exchanges/{v}/topic/bindings/source") == [("topic", "e2e"), *of_topic]
    assert keys("exchanges/{v}/inner/bindings/destination") == [("topic", "e2e")]
    assert keys("bindings/{v}/e/topic/e/inner") == [("topic", "e2e")]
    assert len(keys("bindings/{v}")) == 6 + 1 + 3 + 1


def test_45_9_bindings_of_what_does_not_exist(scene: Scene) -> None:
    for below in ("bindings/{v}/e/topic/q/nosuch", "bindings/{v}/e/nosuch/q/plain"):
        assert scene.get(below).document == []
    assert scene.get("exchanges/{v}/nosuch/bindings/source").document == []


def test_45_13_a_connection(scene: Scene) -> None:
    document = connection_of(scene)
    wanted = {
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "auth_mechanism": "PLAIN",
        "state": "running",
        "user_provided_name": "demo",
        "channels": 1,
        "ssl": False,
        "send_pend": 0,
        "peer_host": "127.0.0.1",
        "user_who_performed_action": document["user"],
    }
    assert part(document, wanted) == wanted
    assert document["client_properties"]["connection_name"] == "demo"
    assert document["name"] == "{peer_host}:{peer_port} -> {host}:{port}".format(**document)
    assert isinstance(document["connected_at"], int)
    single = scene.get(f"connections/{quote(document['name'], safe='')}").document
    assert (single["name"], single["connected_at"]) == (document["name"], document["connected_at"])


def test_45_13_a_channel(scene: Scene) -> None:
    connection = connection_of(scene)
    name = quote(connection["name"], safe="")
    [document] = scene.get(f"connections/{name}/channels").document
    wanted = {
        "name": f"{connection['name']} (1)",
        "number": 1,
        "user": connection["user"],
        "vhost": scene.vhost,
        "state": "running",
        "consumer_count": 3,
        "prefetch_count": 7,
        "global_prefetch_count": 0,
        "confirm": False,
        "transactional": False,
        "messages_unacknowledged": 0,
        "messages_unconfirmed": 0,
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        "connection_details": {key: connection[key] for key in ("name", "peer_host", "peer_port")},
    }
    assert part(document, wanted) == wanted
    single = scene.get(f"channels/{quote(document['name'], safe='')}").document
    assert {each["consumer_tag"] for each in single["consumer_details"]} == {"first", "second", "only"}
    assert (single["publishes"], single["deliveries"]) == ([], [])


def test_45_13_consumers(scene: Scene) -> None:
    connection = connection_of(scene)
    documents = {each["consumer_tag"]: each for each in scene.get("consumers/{v}").document}
    wanted = {
        "queue": {"name": "active", "vhost": scene.vhost},
        "ack_required": True,
        "exclusive": False,
        "prefetch_count": 7,
        "active": True,
        "activity_status": "single_active",
        "arguments": {"x-priority": 3},
        "channel_details": {
            "name": f"{connection['name']} (1)",
            "number": 1,
            "connection_name": connection["name"],
            "node": connection["node"],
            "peer_host": connection["peer_host"],
            "peer_port": connection["peer_port"],
            "user": connection["user"],
        },
    }
    assert part(documents["first"], wanted) == wanted
    second, only = documents["second"], documents["only"]
    assert (second["ack_required"], second["active"], second["activity_status"]) == (False, False, "waiting")
    assert (only["exclusive"], only["active"], only["activity_status"]) == (True, True, "up")


def test_45_13_consumers_of_a_queue(scene: Scene) -> None:
    document = queue(scene, "active")
    tags = [each["consumer_tag"] for each in document["consumer_details"]]
    assert sorted(tags) == ["first", "second"]
    assert (document["consumers"], document["single_active_consumer_tag"]) == (2, "first")
