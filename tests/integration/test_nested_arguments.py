"""How deep tables may be nested: the same everywhere, and a start reads whatever was stored."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.http_api import HttpApi, path
from tests.integration.restarts import Restarts
from tests.support.events import ConnectionClosed
from tests.support.leveret_process import LeveretProcess
from tests.support.management import Management
from tests.support.tables import Triple
from tests.support.transport import ConnectionDropped
from tests.support.wire import Channel

#: Levels, and whether they are allowed.
DEPTHS = [(127, True), (128, True), (129, False), (330, False), (5000, False)]


@pytest.fixture
def broker(process: LeveretProcess) -> Iterator[Restarts]:
    """Connections to it."""
    made = Restarts(process, killed=False)
    yield made
    made.disconnect()


@pytest.fixture
def http(process: LeveretProcess) -> HttpApi:
    """Its API."""
    return HttpApi(Management(process.http_url))


def table(depth: int) -> list[Triple]:
    """Arguments with this many levels of nested tables."""
    octets = b""
    for _ in range(depth - 1):
        octets = b"\x01kF" + struct.pack(">I", len(octets)) + octets
    # The letter brings the length along: the encoder of the tests would need too deep a stack.
    return [("k", "F" + struct.pack(">I", len(octets)).decode("latin-1"), octets)]


def document(depth: int) -> bytes:
    """The same as JSON, which Python's own encoder cannot make of the deepest ones."""
    return b'{"k":' * depth + b"{}" + b"}" * depth


@pytest.mark.parametrize("what", ["queue", "exchange", "binding", "consumer", "headers"])
@pytest.mark.parametrize(("depth", "allowed"), DEPTHS)
def test_over_amqp(broker: Restarts, http: HttpApi, what: str, depth: int, allowed: bool) -> None:
    channel, other = broker.channel(), broker.channel()
    queue = broker.queue(channel)
    if allowed:
        use(channel, what, queue, table(depth))
    else:
        with pytest.raises((ConnectionClosed, ConnectionDropped)):
            use(channel, what, queue, table(depth))
    other.queue_declare(queue, passive=True)
    for kind in ("queues", "exchanges", "bindings", "consumers", "definitions"):
        assert http.ask("GET", kind).status == 200


def use(channel: Channel, what: str, queue: str, arguments: list[Triple]) -> None:
    """Give a broker arguments or headers."""
    if what == "queue":
        channel.queue_declare(f"{queue}.deep", durable=True, arguments=arguments)
    elif what == "exchange":
        channel.exchange_declare(f"{queue}.x", durable=True, arguments=arguments)
    elif what == "binding":
        channel.queue_bind(queue, "amq.direct", "k", arguments=arguments)
    elif what == "consumer":
        channel.consume(queue, arguments=arguments)
    else:
        channel.publish("", queue, b"x", properties={"headers": arguments})
    channel.queue_declare(queue, passive=True)


@pytest.mark.parametrize("what", ["queue", "exchange", "binding", "headers", "global parameter", "import"])
@pytest.mark.parametrize(("depth", "allowed"), DEPTHS)
def test_over_http(broker: Restarts, http: HttpApi, what: str, depth: int, allowed: bool) -> None:
    queue, deep = broker.queue(broker.channel()), document(depth)
    declared = b'{"durable":true,"arguments":%s}' % deep
    entry = b'{"name":"%s.deep","vhost":"/","durable":true,"auto_delete":false,"arguments":%s}'
    method, below, body = {
        "queue": ("PUT", path("queues", "/", f"{queue}.deep"), declared),
        "exchange": ("PUT", path("exchanges", "/", f"{queue}.x"), declared),
        "binding": ("POST", path("bindings", "/", "e", "amq.direct", "q", queue), b'{"arguments":%s}' % deep),
        "headers": (
            "POST",
            path("exchanges", "/", "amq.default", "publish"),
            b'{"routing_key":"%s","properties":{"headers":%s},"payload":"","payload_encoding":"string"}'
            % (queue.encode(), deep),
        ),
        "global parameter": ("PUT", path("global-parameters", queue), b'{"value":%s}' % deep),
        "import": ("POST", "definitions", b'{"queues":[%s]}' % (entry % (queue.encode(), deep))),
    }[what]
    reply = http.ask(method, below, body)
    assert reply.status in (200, 201, 204) if allowed else reply.status == 400
    assert allowed or reply.document["error"] == "bad_request"
    for kind in ("queues", "exchanges", "bindings", "global-parameters", "definitions"):
        assert http.ask("GET", kind).status == 200


def test_it_all_comes_back_after_a_restart(broker: Restarts, http: HttpApi) -> None:
    """What the tests above have declared, as deep as it may be."""

    def kept() -> Any:
        found = http.get("definitions")
        return {kind: sorted(map(json.dumps, found[kind])) for kind in ("queues", "exchanges", "bindings")}

    before = kept()
    broker()
    assert kept() == before
    assert "could not be restored" not in broker.process.log_text()
