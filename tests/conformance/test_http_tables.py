"""Rule 45.12: field values that JSON does not have, as queues and messages show them."""

from __future__ import annotations

from tests.conformance.fixtures import Unique
from tests.conformance.http_api import HttpApi, path
from tests.support.tables import Triple
from tests.support.wire import Channel

TABLE: list[Triple] = [
    ("nothing", "V", None),
    ("octets", "x", b"\0\xff"),
    ("text", "x", "ü"),
    ("broken", "S", b"\xff"),
    ("time", "T", 1_700_000_000),
    ("list", "A", [("V", None), ("F", [("inner", "V", None)])]),
]
SHOWN = {
    "nothing": "undefined",
    "octets": "Not UTF-8, base64 is: AP8=",
    "text": "ü",
    "broken": "Not UTF-8, base64 is: /w==",
    "time": 1_700_000_000,
    "list": ["undefined", {"inner": "undefined"}],
}


def test_45_12_arguments(api: HttpApi, channel: Channel, vhost: str, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue, durable=True, arguments=TABLE)
    assert api.get(path("queues", vhost, queue))["arguments"] == SHOWN
    (exported,) = (each for each in api.get(path("definitions", vhost))["queues"] if each["name"] == queue)
    assert exported["arguments"] == SHOWN


def test_45_12_what_is_exported_can_be_imported(api: HttpApi, channel: Channel, vhost: str, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue, durable=True, arguments=TABLE)
    (exported,) = (each for each in api.get(path("definitions", vhost))["queues"] if each["name"] == queue)
    channel.queue_delete(queue)
    api.check("POST", path("definitions", vhost), {"queues": [exported]}, 204)
    assert api.get(path("queues", vhost, queue))["arguments"] == SHOWN


def test_45_12_headers(api: HttpApi, channel: Channel, vhost: str, unique: Unique) -> None:
    queue = unique()
    channel.queue_declare(queue)
    channel.publish("", queue, b"x", properties={"headers": TABLE})
    channel.sync(queue)
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    (message,) = api.ask("POST", path("queues", vhost, queue, "get"), wanted).document
    assert message["properties"]["headers"] == SHOWN
