"""Python clients of RabbitMQ's HTTP API: AMQPStorm's, and pyrabbit2, which kombu's get_manager() still uses."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from amqpstorm.connection import Connection
from amqpstorm.exception import AMQPConnectionError
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError

from tests.conformance.http_api import Belongings
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import parse_url

# It ships no type information.
pyrabbit2: Any = importlib.import_module("pyrabbit2.api")


@pytest.fixture
def vhost(belongings: Belongings) -> str:
    """A virtual host of the test's own."""
    return belongings.vhost()


@pytest.fixture
def rabbit(process: LeveretProcess) -> Any:
    """pyrabbit2."""
    return pyrabbit2.Client(process.http_url.rpartition("@")[2], "guest", "guest", timeout=120)


@pytest.fixture
def storm(process: LeveretProcess) -> ManagementApi:
    """AMQPStorm."""
    return ManagementApi(process.http_url.replace("guest:guest@", ""), "guest", "guest", timeout=120)


def test_pyrabbit2(rabbit: Any, vhost: str) -> None:
    assert rabbit.is_alive()
    assert rabbit.get_overview()["rabbitmq_version"] == "3.10.8"
    assert rabbit.create_exchange(vhost, "x", "topic")
    assert rabbit.create_queue(vhost, "q", durable=True)
    assert rabbit.create_binding(vhost, "x", "q", "k")
    assert {(each["source"], each["routing_key"]) for each in rabbit.get_queue_bindings(vhost, "q")} == {
        ("", "q"),
        ("x", "k"),
    }
    rabbit.delete_binding(vhost, "x", "q", "k")
    assert rabbit.publish(vhost, "amq.default", "q", "hello", properties={"delivery_mode": 2})
    assert rabbit.get_queue_depth(vhost, "q") == 1
    (message,) = rabbit.get_messages(vhost, "q", requeue=True)
    assert (message["payload"], message["properties"]) == ("hello", {"delivery_mode": 2})
    assert rabbit.purge_queue(vhost, "q")
    policy = {"pattern": "^q", "definition": {"max-length": 1}, "priority": 0, "apply-to": "queues"}
    assert rabbit.create_policy(vhost, "p", **policy)
    assert rabbit.get_policy(vhost, "p") == {"vhost": vhost, "name": "p", **policy}
    assert rabbit.delete_queue(vhost, "q")
    with pytest.raises(pyrabbit2.http.HTTPError) as caught:
        rabbit.get_queue(vhost, "q")
    assert caught.value.status == 404
    assert rabbit.create_user("rabbit", password="secret", tags="management")
    assert rabbit.set_vhost_permissions(vhost, "rabbit", "", ".*", "^q")
    assert rabbit.get_permission(vhost, "rabbit")["write"] == "^q"
    assert rabbit.delete_user("rabbit")


def test_amqpstorm(storm: ManagementApi, vhost: str) -> None:
    assert storm.aliveness_test("/") == {"status": "ok"}
    node = storm.nodes()[0]["name"]
    assert storm.node(node)["name"] == node
    storm.queue.declare("q", vhost, durable=True, arguments={"x-max-length": 9})
    assert storm.queue.get("q", vhost)["arguments"] == {"x-max-length": 9}
    assert "q" in [queue["name"] for queue in storm.queue.list(show_all=True, name="q")]
    storm.exchange.declare("x", "topic", vhost, durable=True)
    storm.queue.bind("q", "x", "a.#", vhost)
    assert {binding["source"] for binding in storm.queue.bindings("q", vhost)} == {"", "x"}
    storm.queue.unbind("q", "x", "a.#", vhost, properties_key="a.%23")
    assert storm.exchange.bindings("x", vhost) == []
    properties = {"delivery_mode": 2, "headers": {"a": 1}, "content_type": "text/plain"}
    assert storm.basic.publish("hello", "q", virtual_host=vhost, properties=properties) == {"routed": True}
    peeked: Any = storm.basic.get("q", vhost, requeue=True, to_dict=True)
    assert [(each["payload"], each["properties"]) for each in peeked] == [("hello", properties)]
    storm.queue.delete("q", vhost)
    with pytest.raises(ApiError) as caught:
        storm.queue.get("q", vhost)
    assert caught.value.error_code == 404
    storm.user.create("storm", "secret", tags="management")
    storm.user.set_permission("storm", vhost, "", "^q", ".*")
    granted = {"user": "storm", "vhost": vhost, "configure": "", "write": "^q", "read": ".*"}
    permissions: Any = storm.user.get_permissions("storm")
    assert permissions == [granted]
    storm.user.delete("storm")


def test_amqpstorm_closes_a_connection(storm: ManagementApi, process: LeveretProcess) -> None:
    address = parse_url(process.url)
    with Connection(address.host, "guest", "guest", port=address.port) as connection:
        connection.channel()
        wait_until(lambda: bool(storm.channel.list()), "the channel")
        (shown,), (channel,) = storm.connection.list(), storm.channel.list()
        assert channel["connection_details"]["name"] == shown["name"]
        storm.connection.close(shown["name"], "because")
        wait_until(lambda: not connection.is_open, "the end of the connection")
        with pytest.raises(AMQPConnectionError, match="because"):
            connection.check_for_errors()
