"""Messages that wait in a delayed exchange, over HTTP: counting, listing, showing, cancelling, delivering now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.http_api import HttpApi, bad_request, path
from tests.conformance.topology import bodies
from tests.integration.waiting import wait_until
from tests.support.leveret_process import LeveretProcess
from tests.support.wire import Channel, Connection

LONG = 3_600_000
GONE = "no message {} waits in exchange 'd' in vhost '/'"


@pytest.fixture
def channel(process: LeveretProcess, api: HttpApi) -> Iterator[Channel]:
    """A channel, a delayed exchange `d`, and a queue `q` that is bound to it with the key `k`."""
    with Connection(process.url) as connection:
        made = connection.channel()
        made.exchange_delete("d")
        made.exchange_declare("d", "x-delayed-message", durable=True, arguments=[("x-delayed-type", "S", "direct")])
        made.queue_declare("q", durable=True)
        made.queue_bind("q", "d", "k")
        made.queue_purge("q")
        yield made


def publish(channel: Channel, body: bytes, delay: int = LONG, **properties: Any) -> None:
    channel.publish("d", "k", body, {"headers": [("x-delay", "I", delay)], "delivery_mode": 2, **properties})
    channel.sync()


def waiting(api: HttpApi, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"{path('exchanges', '/', 'd', 'delayed')}{query}")["messages"]
    return found


def test_counts_of_the_exchange(api: HttpApi, channel: Channel, process: LeveretProcess) -> None:
    below = path("exchanges", "/", "d")
    columns = "columns=messages_delayed,message_bytes_delayed,next_delayed_at"
    nothing = {"messages_delayed": 0, "message_bytes_delayed": 0, "next_delayed_at": None}
    assert api.get(f"{below}?{columns}") == nothing
    now = time.time() * 1000
    publish(channel, b"123", 2 * LONG)
    publish(channel, b"45")
    found = api.get(f"{below}?{columns}")
    assert now + LONG <= found.pop("next_delayed_at") <= time.time() * 1000 + LONG + 1
    assert found == {"messages_delayed": 2, "message_bytes_delayed": 5}
    listed = api.get(f"{path('exchanges', '/')}?columns=name,messages_delayed&sort=messages_delayed")
    assert {"name": "d", "messages_delayed": 2} in listed
    assert {"name": "amq.topic"} in listed


def test_listing_and_showing(api: HttpApi, channel: Channel) -> None:
    for number, delay in enumerate((3 * LONG, LONG, 2 * LONG)):
        publish(channel, b"body %d" % number, delay, message_id=str(number))
    found = waiting(api)
    assert [each["properties"]["message_id"] for each in found] == ["1", "2", "0"]
    first = found[0]
    assert first.pop("due") - time.time() * 1000 == pytest.approx(LONG, abs=60_000)
    assert first == {
        "id": 2,
        "delay": LONG,
        "exchange": "d",
        "routing_key": "k",
        "payload_bytes": 6,
        "properties": {"headers": {"x-delay": -LONG}, "delivery_mode": 2, "message_id": "1"},
    }
    assert [each["id"] for each in waiting(api, "?offset=1&count=1")] == [3]
    assert waiting(api, "?offset=9") == []
    one = path("exchanges", "/", "d", "delayed", "3")
    shown = api.get(one)
    assert (shown["payload"], shown["payload_encoding"]) == ("body 2", "string")
    cut = api.get(f"{one}?encoding=base64&truncate=2")
    assert (cut["payload"], cut["payload_encoding"], cut["payload_bytes"]) == ("Ym8=", "base64", 6)


def test_what_is_refused(api: HttpApi, channel: Channel) -> None:
    below = path("exchanges", "/", "d", "delayed")
    for query, reason in (
        ("count=0", "count must be 1 to 1000, is 0"),
        ("count=1001", "count must be 1 to 1000, is 1001"),
        ("offset=-1", "offset must be 0 or more, is -1"),
        ("count=a", ["not_integer", "a"]),
    ):
        api.check("GET", f"{below}?{query}", None, 400, bad_request(reason))
    for number in ("1", "0", "-1", "x", "9" * 30, "+1"):
        expected = {"error": "not_found", "reason": GONE.format(number)}
        api.check("GET", f"{below}/{path(number)}", None, 404, expected)
        api.check("DELETE", f"{below}/{path(number)}", None, 404, expected)
        api.check("POST", f"{below}/{path(number)}/deliver", None, 404, expected)
    other = "exchange 'amq.topic' in vhost '/' has type 'topic', not 'x-delayed-message': no messages wait in it"
    api.check("GET", path("exchanges", "/", "amq.topic", "delayed"), None, 400, bad_request(other))
    missing = {"error": "not_found", "reason": "no exchange 'none' in vhost '/'"}
    api.check("GET", path("exchanges", "/", "none", "delayed"), None, 404, missing)


def test_cancelling(api: HttpApi, channel: Channel, process: LeveretProcess) -> None:
    publish(channel, b"1", 1500)
    publish(channel, b"2", 1500)
    below = path("exchanges", "/", "d", "delayed", "1")
    api.check("DELETE", below, None, 204)
    assert api.ask("DELETE", below).status == 404
    assert [each["id"] for each in waiting(api)] == [2]
    channel.consume("q", no_ack=True)
    assert bodies(channel.deliveries(1)) == [b"2"]
    # That is no loss.
    assert "loss_stats" not in api.get(path("exchanges", "/", "d"))


def test_delivering_now(api: HttpApi, channel: Channel) -> None:
    publish(channel, b"1")
    publish(channel, b"2")
    api.check("POST", path("exchanges", "/", "d", "delayed", "2", "deliver"), None, 204)
    channel.consume("q", no_ack=True)
    (delivery,) = channel.deliveries(1)
    assert (delivery.body, delivery.headers) == (b"2", [("x-delay", "l", -LONG)])
    assert [each["id"] for each in waiting(api)] == [1]


def test_publishing_over_http_is_routed(api: HttpApi, channel: Channel) -> None:
    body = {
        "routing_key": "k",
        "payload": "p",
        "payload_encoding": "string",
        "properties": {"headers": {"x-delay": LONG}},
    }
    api.check("POST", path("exchanges", "/", "d", "publish"), body, 200, {"routed": True})
    assert len(waiting(api)) == 1


def test_permissions(api: HttpApi, channel: Channel) -> None:
    publish(channel, b"1")
    api.check("PUT", path("users", "ann"), {"password": "conformance", "tags": "management"}, 201)
    rights = path("permissions", "/", "ann")
    below = path("exchanges", "/", "d", "delayed")
    requests = [("GET", below), ("GET", f"{below}/1"), ("POST", f"{below}/9/deliver"), ("DELETE", f"{below}/1")]
    for read, allowed in (("", False), ("^d$", True)):
        api.ask("PUT", rights, {"configure": "", "write": ".*", "read": read})
        for method, where in requests:
            status = api.ask(method, where, user="ann").status
            assert (status == 401) is not allowed, (method, where, status)
    assert waiting(api) == []


def test_losses(api: HttpApi, channel: Channel, process: LeveretProcess) -> None:
    channel.exchange_declare("lost", "x-delayed-message", arguments=[("x-delayed-type", "S", "direct")])
    policy = {"pattern": "^lost$", "definition": {"max-delayed": 2}, "apply-to": "exchanges"}
    api.check("PUT", path("policies", "/", "lost"), policy, 201)
    channel.publish("lost", "nowhere", b"x", {"headers": [("x-delay", "I", 1)]})
    channel.sync()
    wait_until(lambda: "loss_stats" in api.get(path("exchanges", "/", "lost")), "the loss")
    for _ in range(3):
        channel.publish("lost", "nowhere", b"x", {"headers": [("x-delay", "I", LONG)]})
    channel.sync()
    stats = api.get(path("exchanges", "/", "lost"))["loss_stats"]
    assert (stats["lost"], stats["drop_unroutable"], stats["refuse"]) == (2, 1, 1)
    channel.exchange_delete("lost")
    (row,) = [each for each in api.get(path("losses", "/")) if each["name"] == "lost"]
    assert (row["state"], row["lost"], row["refused"]) == ("deleted", 4, 1)
    assert (row["dropped"]["deleted"], row["unroutable"]["dropped"]) == (2, 1)


def test_definitions_have_the_exchange_and_not_its_messages(api: HttpApi, channel: Channel) -> None:
    publish(channel, b"1")
    exported = api.get("definitions")
    (exchange,) = [each for each in exported["exchanges"] if each["name"] == "d"]
    assert (exchange["type"], exchange["arguments"]) == ("x-delayed-message", {"x-delayed-type": "direct"})
    channel.exchange_delete("d")
    api.check("POST", "definitions", exported, 204)
    assert waiting(api) == []
    publish(channel, b"2", 1)
    channel.consume("q", no_ack=True)
    assert bodies(channel.deliveries(1)) == [b"2"]
