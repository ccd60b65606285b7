"""A broker on which there is something to see on every page."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pika

from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.ui.clients import Client

#: What would do something, anywhere that it is taken for markup, an address or code; at most 60 bytes.
HOSTILE: Final = """<img src=x onerror="hit=1">'"&lt;%2F/${hit=1}\u202e🐇"""
PLAIN: Final = "orders"
_ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}


class Scene:
    """Objects of every kind that are all called the same; a context manager.

    Attributes:
        vhost: The virtual host in which everything is.
        names: What the object of a page is called, by the first part of the page's address.
    """

    def __init__(self, process: LeveretProcess, name: str = PLAIN) -> None:
        self.name = name
        self.vhost = name
        self.api = Management(process.http_url)
        self._make_vhost()
        self._make_exchanges_and_queues()
        # Without heartbeats: the client does not run while pages are looked at.
        url = f"{process.url}/{quote(self.vhost, safe='')}?heartbeat=0"
        said = {name: name, "product": name, "capabilities": {name: True}}
        self.client = Client(url, connection_name(name), said)
        self._fill()
        self._make_policies()
        connection = self.api.request("GET", "connections")[0]["name"]
        self.names = {"connections": connection, "channels": f"{connection} (1)"}
        for kind in ("exchanges", "queues", "policies", "operator-policies", "users", "vhosts"):
            self.names[kind] = name
        # It leaves all of them: none is a dead letter.
        self.names["jobs"] = self.api.request("POST", "queues", name, name, "return-messages", body={})["id"]

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        if self.client.connection.is_open:
            self.client.connection.close()

    def _make_vhost(self) -> None:
        name, request = self.name, self.api.request
        request("PUT", "vhosts", name, body={"description": name, "tags": name})
        request("PUT", "users", name, body={"password": name, "tags": f"management,{name}"})
        for user in ("guest", name):
            request("PUT", "permissions", name, user, body=_ALL)
        request(
            "PUT", "topic-permissions", name, name, body={"exchange": name, "write": name_pattern(name), "read": ".*"}
        )
        request("PUT", "vhost-limits", name, "max-queues", body={"value": 50})
        request("PUT", "user-limits", name, "max-channels", body={"value": 50})

    def _make_exchanges_and_queues(self) -> None:
        name, vhost, request = self.name, self.vhost, self.api.request
        request("PUT", "exchanges", vhost, name, body={"type": "topic", "arguments": {name: name}})
        dead = {"x-dead-letter-exchange": name, "x-dead-letter-routing-key": name, name: name}
        request("PUT", "queues", vhost, name, body={"durable": True, "arguments": dead})
        request("PUT", "queues", vhost, f"{name}.late", body={"durable": True, "arguments": {"x-max-length": 100}})
        request("PUT", "queues", vhost, f"{name}.gone", body={"arguments": {"x-max-length": 1}})
        request("POST", "bindings", vhost, "e", name, "q", f"{name}.late", body={"routing_key": name})
        request("POST", "bindings", vhost, "e", name, "e", name, body={"routing_key": name, "arguments": {name: name}})
        request("POST", "bindings", vhost, "e", name, "q", name, body={"routing_key": name, "arguments": {name: name}})

    def _make_policies(self) -> None:
        name, request = self.name, self.api.request
        limit = {"pattern": name_pattern(name), "definition": {"max-length": 10}, "priority": 1}
        request("PUT", "policies", name, name, body=limit)
        request("PUT", "policies", name, f"{name} too", body={**limit, "priority": 0})
        request("PUT", "operator-policies", name, name, body={**limit, "definition": {"max-length-bytes": 10_000}})

    def _fill(self) -> None:
        name, channel = self.name, self.client.channel
        channel.confirm_delivery()
        properties = pika.BasicProperties(content_type=name, headers={name: name, "list": [name]}, correlation_id=name)
        for queue in (f"{name}.gone", name):
            for _ in range(20):
                channel.basic_publish("", queue, name.encode(), properties)
        channel.basic_publish(name, "nobody", b"")
        self.api.request("DELETE", "queues", self.vhost, f"{name}.gone")
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume(f"{name}.late", lambda *_: None, consumer_tag=name, arguments={name: name})
        self.client.pump()


def connection_name(name: str) -> str:
    """What the client calls its connection."""
    return f"{name} at work"


def name_pattern(name: str) -> str:
    """A regular expression with a name in it, which fits more than that."""
    return f".*|{quote(name, safe='<>= ')}"
