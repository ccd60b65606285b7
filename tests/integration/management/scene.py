"""The things that the samples show, on a Leveret."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.management import Management

VHOST = "mgmt_demo"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
LIMITED = {
    "x-dead-letter-exchange": "dlx",
    "x-max-length": 1000,
    "x-message-ttl": 3600000,
    "x-overflow": "reject-publish",
}
DEFINITIONS: dict[str, Any] = {
    "users": [
        {"name": name, "password": "demo", "tags": tag}
        for name, tag in (
            ("mgmt_admin", "administrator"),
            ("mgmt_mgr", "management"),
            ("mgmt_mon", "monitoring"),
            ("mgmt_pm", "policymaker"),
            ("mgmt_noperm", "management"),
        )
    ],
    "vhosts": [{"name": VHOST}],
    "permissions": [
        {"user": user, "vhost": VHOST, "configure": ".*", "write": ".*", "read": ".*"}
        for user in ("guest", "mgmt_admin", "mgmt_mgr", "mgmt_pm")
    ],
    "topic_permissions": [{"user": "mgmt_mgr", "vhost": VHOST, "exchange": "orders", "write": "^order", "read": ".*"}],
    "policies": [
        {
            "vhost": VHOST,
            "name": "all-ttl",
            "pattern": ".*",
            "apply-to": "queues",
            "definition": {"message-ttl": 7200000},
            "priority": 0,
        },
        {
            "vhost": VHOST,
            "name": "lazy-orders",
            "pattern": "^orders\\.",
            "apply-to": "queues",
            "definition": {"max-length": 50000, "overflow": "drop-head", "queue-mode": "lazy"},
            "priority": 1,
        },
    ],
    "queues": [
        {"name": name, "vhost": VHOST, "durable": True, "auto_delete": False, "arguments": arguments}
        for name, arguments in (
            ("orders.new", LIMITED),
            ("orders.archive", {"x-queue-mode": "lazy"}),
            ("plain", {}),
            ("prio", {"x-max-priority": 5}),
            ("qq", {"x-queue-type": "quorum"}),
            ("sac", {"x-single-active-consumer": True}),
        )
    ],
    "exchanges": [
        {
            "name": name,
            "vhost": VHOST,
            "type": kind,
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": arguments,
        }
        for name, kind, arguments in (
            ("orders", "topic", {"alternate-exchange": "orders.unrouted"}),
            ("dlx", "fanout", {}),
        )
    ],
    "bindings": [
        {
            "source": source,
            "vhost": VHOST,
            "destination": destination,
            "destination_type": kind,
            "routing_key": key,
            "arguments": arguments,
        }
        for source, destination, kind, key, arguments in (
            ("orders", "dlx", "exchange", "e2e", {}),
            ("orders", "orders.archive", "queue", "order.#", {}),
            ("orders", "orders.new", "queue", "order.new.#", {}),
            ("amq.headers", "plain", "queue", "", {"kind": "a", "x-match": "all"}),
        )
    ],
}


class Traffic:
    """A publisher and a consumer as in the samples; a context manager that ends them."""

    def __init__(self, url: str) -> None:
        self._parameters = pika.URLParameters(f"{url}/{VHOST}")
        self._parameters.client_properties = {"connection_name": "demo-publisher"}
        self._stack = ExitStack()
        self._publisher = self._open()
        self._consumer = self._open()
        self._parameters.client_properties = None
        self._stop = threading.Event()

    def _open(self) -> pika.BlockingConnection:
        connection = pika.BlockingConnection(self._parameters)
        self._stack.callback(connection.close)
        return connection

    def __enter__(self) -> Traffic:
        self._publish(self._publisher.channel())
        self._consume(self._consumer.channel())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _publish(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        for number in range(20):
            channel.basic_publish("orders", f"order.new.{number}", b"0123456789ab")
            channel.basic_publish("", "orders.archive", b"x", PERSISTENT)
        channel.basic_publish("orders", "nowhere", b"x")

    def _consume(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=20)
        channel.basic_consume("orders.new", lambda *delivery: None, consumer_tag="worker-1")
        channel.basic_consume("sac", lambda *delivery: None, consumer_tag="sac-1")
        channel.basic_get("orders.archive", auto_ack=True)
        channel.queue_declare("", exclusive=True)
        self._consumer.process_data_events(time_limit=0.5)
        channel.basic_ack(0, multiple=True)
        self._consumer.process_data_events(time_limit=0.1)


def make(management: Management) -> None:
    """Make everything but the traffic."""
    management.request("POST", "definitions", body=DEFINITIONS)
    metadata = {"description": "demo vhost", "tags": "accounts,production"}
    management.request("PUT", "vhosts", VHOST, body=metadata)
    operator = {
        "pattern": "^orders\\.",
        "apply-to": "queues",
        "definition": {"max-length": 20000, "max-length-bytes": 104857600},
    }
    management.request("PUT", "operator-policies", VHOST, "cap", body=operator)
    for limit, value in (("max-queues", 50), ("max-connections", 100)):
        management.request("PUT", "vhost-limits", VHOST, limit, body={"value": value})
    management.request("PUT", "user-limits", "mgmt_mgr", "max-connections", body={"value": 10})
    management.request("PUT", "global-parameters", "mgmt_gp", body={"value": {"guest": "/"}})
