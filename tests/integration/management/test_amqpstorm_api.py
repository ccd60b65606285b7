"""AMQPStorm's management client, all of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from amqpstorm.connection import Connection
from amqpstorm.exception import AMQPConnectionError
from amqpstorm.management.api import ManagementApi
from amqpstorm.management.exception import ApiError
from amqpstorm.message import Message

from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import parse_url


@pytest.fixture
def api(process: LeveretProcess) -> ManagementApi:
    """The client."""
    return ManagementApi(process.http_url.replace("guest:guest@", ""), "guest", "guest", timeout=120)


@pytest.fixture
def vhost(api: ManagementApi, request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host of the test's own."""
    name = request.node.name
    api.virtual_host.create(name)
    yield name
    api.virtual_host.delete(name)


def test_the_broker(api: ManagementApi) -> None:
    assert api.aliveness_test("/") == {"status": "ok"}
    assert api.overview()["rabbitmq_version"] == "3.10.8"
    assert api.whoami()["name"] == "guest"
    node = api.nodes()[0]["name"]
    assert api.node(node)["name"] == node
    assert isinstance(api.cluster_name()["name"], str)
    assert api.healthchecks.get()["status"] == "ok"


def test_queues(api: ManagementApi, vhost: str) -> None:
    api.queue.declare("q", vhost, durable=True, arguments={"x-max-length": 9})
    assert api.queue.declare("q", vhost, passive=True)["name"] == "q"
    assert api.queue.get("q", vhost)["arguments"] == {"x-max-length": 9}
    assert [queue["name"] for queue in api.queue.list(vhost)] == ["q"]
    assert "q" in [queue["name"] for queue in api.queue.list(show_all=True, name="q")]
    api.queue.delete("q", vhost)
    with pytest.raises(ApiError) as caught:
        api.queue.get("q", vhost)
    assert caught.value.error_code == 404


def test_exchanges_and_bindings(api: ManagementApi, vhost: str) -> None:
    api.exchange.declare("x", "topic", vhost, durable=True)
    api.exchange.declare("y", "fanout", vhost)
    assert api.exchange.get("x", vhost)["type"] == "topic"
    assert {"x", "y", "amq.direct"} <= {exchange["name"] for exchange in api.exchange.list(vhost)}
    api.queue.declare("q", vhost)
    api.queue.bind("q", "x", "a.#", vhost)
    api.exchange.bind("y", "x", "b", vhost)
    assert {binding["source"] for binding in api.queue.bindings("q", vhost)} == {"", "x"}
    assert len(api.exchange.bindings("x", vhost)) == 2
    api.queue.unbind("q", "x", "a.#", vhost, properties_key="a.%23")
    api.exchange.unbind("y", "x", "b", vhost)
    assert api.exchange.bindings("x", vhost) == []
    api.exchange.delete("x", vhost)


def test_messages(api: ManagementApi, vhost: str) -> None:
    api.queue.declare("q", vhost)
    properties = {"delivery_mode": 2, "headers": {"a": 1}, "content_type": "text/plain"}
    assert api.basic.publish("hello", "q", virtual_host=vhost, properties=properties) == {"routed": True}
    peeked: Any = api.basic.get("q", vhost, requeue=True, to_dict=True)
    assert [(each["payload"], each["properties"]) for each in peeked] == [("hello", properties)]
    (message,) = api.basic.get("q", vhost)
    assert isinstance(message, Message)
    assert (message.body, message.content_type) == ("hello", "text/plain")
    assert api.basic.get("q", vhost) == []
    api.basic.publish("again", "q", virtual_host=vhost)
    api.queue.purge("q", vhost)
    assert api.basic.get("q", vhost) == []


def test_users_and_permissions(api: ManagementApi, vhost: str) -> None:
    api.user.create("storm", "secret", tags="management")
    assert api.user.get("storm")["tags"] == ["management"]
    assert "storm" in [user["name"] for user in api.user.list()]
    api.user.set_permission("storm", vhost, "", "^q", ".*")
    granted = {"user": "storm", "vhost": vhost, "configure": "", "write": "^q", "read": ".*"}
    assert api.user.get_permission("storm", vhost) == granted
    listed: list[Any] = [api.user.get_permissions("storm"), api.virtual_host.get_permissions(vhost)]
    assert listed[0] == [granted]
    assert granted in listed[1]
    api.user.delete_permission("storm", vhost)
    api.user.create("another", "secret")
    api.user.delete(["storm", "another"])
    assert [user["name"] for user in api.user.list()] == ["guest"]


def test_connections_and_channels(api: ManagementApi, process: LeveretProcess) -> None:
    address = parse_url(process.url)
    with Connection(address.host, "guest", "guest", port=address.port) as connection:
        connection.channel()
        wait_until(lambda: bool(api.channel.list()), "the channel")
        (shown,) = api.connection.list()
        (channel,) = api.channel.list()
        assert channel["connection_details"]["name"] == shown["name"]
        assert api.connection.get(shown["name"])["user"] == "guest"
        assert api.channel.get(channel["name"])["number"] == 1
        api.connection.close(shown["name"], "because")
        wait_until(lambda: not connection.is_open, "the end of the connection")
        with pytest.raises(AMQPConnectionError, match="because"):
            connection.check_for_errors()
