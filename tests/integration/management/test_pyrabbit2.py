"""pyrabbit2, an old client of the API that scripts and kombu's get_manager() still use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.leveret_process import LeveretProcess

# It ships no type information.
pyrabbit2: Any = importlib.import_module("pyrabbit2.api")


@pytest.fixture
def client(process: LeveretProcess) -> Any:
    """The client."""
    return pyrabbit2.Client(process.http_url.rpartition("@")[2], "guest", "guest", timeout=120)


@pytest.fixture
def vhost(client: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host of the test's own."""
    name = request.node.name
    client.create_vhost(name)
    yield name
    client.delete_vhost(name)


def test_the_broker(client: Any) -> None:
    assert client.is_alive()
    assert client.get_whoami()["name"] == "guest"
    assert client.get_overview()["rabbitmq_version"] == "3.10.8"
    assert [node["running"] for node in client.get_nodes()] == [True]
    assert isinstance(client.get_cluster_name()["name"], str)
    assert client.get_extensions()
    assert client.get_definitions()["users"]


def test_queues_and_messages(client: Any, vhost: str) -> None:
    assert client.create_queue(vhost, "q", durable=True)
    assert client.get_queue(vhost, "q")["durable"] is True
    assert client.publish(vhost, "amq.default", "q", "hello", properties={"delivery_mode": 2})
    assert client.get_queue_depth(vhost, "q") == 1
    (message,) = client.get_messages(vhost, "q", requeue=True)
    assert (message["payload"], message["properties"]) == ("hello", {"delivery_mode": 2})
    assert client.purge_queue(vhost, "q")
    assert client.get_queue_depth(vhost, "q") == 0
    assert [queue["name"] for queue in client.get_queues(vhost)] == ["q"]
    assert client.delete_queue(vhost, "q")
    with pytest.raises(pyrabbit2.http.HTTPError) as caught:
        client.get_queue(vhost, "q")
    assert caught.value.status == 404


def test_exchanges_and_bindings(client: Any, vhost: str) -> None:
    assert client.create_exchange(vhost, "x", "topic")
    assert client.get_exchange(vhost, "x")["type"] == "topic"
    client.create_queue(vhost, "q", durable=True)
    assert client.create_binding(vhost, "x", "q", "k")
    assert {(each["source"], each["routing_key"]) for each in client.get_queue_bindings(vhost, "q")} == {
        ("", "q"),
        ("x", "k"),
    }
    client.delete_binding(vhost, "x", "q", "k")
    assert [each["source"] for each in client.get_queue_bindings(vhost, "q")] == [""]
    assert client.delete_exchange(vhost, "x")


def test_users_permissions_and_policies(client: Any, vhost: str) -> None:
    assert client.create_user("rabbit", password="secret", tags="management")
    assert "rabbit" in [user["name"] for user in client.get_users()]
    assert client.set_vhost_permissions(vhost, "rabbit", "", ".*", "^q")
    assert client.get_permission(vhost, "rabbit")["write"] == "^q"
    assert [granted["vhost"] for granted in client.get_user_permissions("rabbit")] == [vhost]
    client.delete_permission(vhost, "rabbit")
    assert client.delete_user("rabbit")
    policy = {"pattern": "^q", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"}
    assert client.create_policy(vhost, "p", **policy)
    assert client.get_policy(vhost, "p") == {"vhost": vhost, "name": "p", **policy}
    client.delete_policy(vhost, "p")
    assert vhost in client.get_vhost_names()
